"""`penstock supervise` over all control roots of a project: they are looked for, and left in good order."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from project_samples import make_project
from structlog.testing import capture_logs
from supervisor_samples import Drivers, ask, supervisor_of

from penstock.checkpoint.control_records import Records
from penstock.errors import ConfigError, RootUnsafe, StorageFull
from penstock.runtime.process.project import Project
from penstock.supervise.commands import Verb
from penstock.supervise.records import LeaseRecords
from penstock.supervise.service import leave_all, look_for_roots
from penstock.time.clock import ManualClock


@pytest.fixture
def root(tmp_path):
    """A project with two jobs."""
    root = make_project(tmp_path / "project", rows=10)
    shutil.copy(root / "jobs" / "orders.py", root / "jobs" / "second.py")
    return root


def test_roots_are_looked_for_again_and_one_that_is_refused_keeps_no_other(root):
    """A job with a root of its own is added, one is refused, and a broken file is mended, while a supervisor runs."""
    made, known, complaints = [], {}, {}

    def make(path):
        if path.name == "refused":
            raise RootUnsafe("others may write in it", where=str(path))
        made.append(path.name)
        return path

    project = Project(root)
    with capture_logs() as logs:
        assert look_for_roots(project, known, complaints, make) == [root / "checkpoints"]
        (root / "conf" / "jobs" / "orders.toml").write_text('[checkpoint]\nroot = "refused"\n')
        (root / "conf" / "jobs" / "second.toml").write_text("[checkpoint\n")
        for _ in range(3):
            assert look_for_roots(project, known, complaints, make) == []
        (root / "conf" / "jobs" / "second.toml").write_text('[checkpoint]\nroot = "own"\n')
        assert look_for_roots(project, known, complaints, make) == [root / "own"]
    assert made == ["checkpoints", "own"]
    assert sorted(line["job"] for line in logs) == ["orders", "second"]
    (root / "conf" / "penstock.toml").write_text("[checkpoint\n")
    with pytest.raises(ConfigError):
        look_for_roots(Project(root), {}, {}, make)


@pytest.mark.fault("F77")
def test_the_leases_of_all_roots_are_given_back_whatever_one_of_them_says(tmp_path: Path, clock: ManualClock) -> None:
    """A record that cannot be read, or a root that takes no writes: who stands by for the others need not wait."""
    roots = [supervisor_of(tmp_path / name, Drivers(), clock) for name in ("one", "two", "three")]
    for each in roots:
        ask(each, Verb.START)
        each.tick()
    Records(roots[0].store, "streams", "a").put({"wish": "of a later version"})
    with pytest.MonkeyPatch.context() as patched, capture_logs() as logged:

        def full(**_: object) -> None:
            raise StorageFull("no room")

        patched.setattr(roots[1], "leave", full)
        leave_all(roots)
    assert [LeaseRecords(each.store).holder().left for each in roots] == [True, False, True]
    events = [(line["event"], line.get("go_on")) for line in logged]
    assert events.count(("supervisor.left", ["j"])) == 3
    assert events.count(("supervisor.trouble", None)) == 2
