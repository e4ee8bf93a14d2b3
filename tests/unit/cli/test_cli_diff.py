"""`penstock diff` as people run it: what it says of changed code is what `penstock run` does with it (F51)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Shell
from project_samples import JOB, make_project

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.fault("F51")]

WITHOUT = """
from penstock import Job, seconds
from penstock.sinks import Delta


def build(conf):
    job = Job("orders", partitions=2)
    orders = job.source("orders", conf.source("orders"), event_time="t", max_out_of_order=seconds(5))
    orders.write("copy", Delta(conf.table("copy")))
    return job
"""


FILTERED = JOB.replace("max_out_of_order=seconds(5))", 'max_out_of_order=seconds(9)).filter("v > 3")')


@pytest.mark.sample(seconds=35)
def test_a_source_that_cannot_be_read_on_and_other_settings_are_told(shell: Shell) -> None:
    """A6: another order_by is refused by both alike; a filter and a bound are told, and go on."""
    toml = shell.root / "conf" / "jobs" / "orders.toml"
    before = toml.read_text()
    code, _, err = shell.run("restore", "orders", "--from", "batch=0")
    assert code == 0, err
    toml.write_text(before.replace('order_by = "t"', 'order_by = "v"'))
    code, out, err = shell.run("diff", "orders")
    assert (code, out.splitlines()[-1], "PEN-SRC-005" in err) == (78, "a start would be refused", True)
    code, _, refused = shell.run("run", "orders", "--available-now")
    assert code == 78
    assert err[err.index("PEN-SRC-005") :].split()[:9] == refused[refused.index("PEN-SRC-005") :].split()[:9]
    toml.write_text(before)
    (shell.root / "jobs" / "orders.py").write_text(FILTERED)
    code, out, err = shell.run("diff", "orders")
    assert code == 0, err
    assert "max_out_of_order was 5 s and is 9 s" in out
    assert ["filter", "filter_1", "new", "predicate was none and is v > 3"] in [
        line.split(maxsplit=3) for line in out.splitlines()
    ]


def error_in(printed: str) -> str:
    """Return what is told of an error, without what Spark says when it starts."""
    return printed[printed.index("PEN-CKP-016 step 'minutely' cannot resume from its state: its windows were") :]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A project of 200 orders in two batches, of which one was run."""
    project = Shell(make_project(tmp_path / "project", rows=200, more='copy = "tables/copy"\n'))
    code, _, err = project.run("run", "orders", "--available-now")
    assert code == 0, err
    yield project
    project.end()


@pytest.mark.sample(seconds=40)
def test_a_change_is_told_before_a_start_and_by_it_alike(shell: Shell, tmp_path: Path) -> None:
    """Both end with the same code; what the diff accepts, the start does. Another root is compared as well."""
    shutil.copytree(shell.root / "checkpoints", tmp_path / "copy")
    (tmp_path / "copy").chmod(0o700)
    module = shell.root / "jobs" / "orders.py"
    log = shell.root / "checkpoints" / "orders" / "log"
    entries = sorted(path.name for path in log.iterdir())
    module.write_text(JOB.replace("minutes(1)", "minutes(2)"))
    code, out, err = shell.run("diff", "orders", "--json")
    diff = json.loads(out)
    assert (code, diff["accepted"], diff["running"]) == (78, False, False)
    assert diff["findings"][0]["says"] == ["its windows were of 1 min every 1 min and are of 2 min every 2 min"]
    code, _, refused = shell.run("run", "orders")
    assert (code, error_in(refused)) == (78, error_in(err))

    module.write_text(WITHOUT)
    code, out, err = shell.run("diff", "orders", "--against", str(tmp_path / "copy"))
    lines = [line.split(maxsplit=3) for line in out.splitlines()]
    assert (code, lines[-1]) == (78, ["a", "start", "would", "be refused"])
    assert lines[1] == ["step", "minutely", "dropped", "its state would be lost; --drop minutely lets it go"]
    assert (lines[2][:3], lines[3][:3]) == (["source", "orders", "kept"], ["sink", "copy", "new"])
    entered = sorted(path.name for path in log.iterdir())
    assert len(entered) == len(entries) + 2, "the start that was refused, its release, and nothing else"
    code, out, err = shell.run("diff", "orders", "--drop", "minutely")
    assert (code, out.splitlines()[-1]) == (0, "a start would be accepted"), err
    code, _, err = shell.run("run", "orders", "--drop", "minutely", "--available-now")
    assert code == 0, err
