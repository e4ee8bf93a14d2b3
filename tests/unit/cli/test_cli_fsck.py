"""`penstock fsck` reads checkpoints without anything else, and says what each damage means for who goes on (DESIGN 5)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import commit, leave, offsets, own
from received_blocks import Pushed
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import Restore, Save
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.format import FORMAT_VERSION, encode
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.errors import StorageUnavailable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two jobs with batches 0 to 3 each; batch 1 of `a` is saved as `early`."""
    for job in ("a", "b"):
        folder = tmp_path / job
        folder.mkdir(mode=0o700)
        store = LocalStore(folder)
        open_or_create(store, now=0)
        owned = own(Log(store))
        for batch in range(4):
            owned.append(offsets(batch))
            done = owned.append(commit(batch))
            if (job, batch) == ("a", 1):
                owned.append(Save(epoch=owned.epoch, writer=owned.writer, name="early", commit=done))
        leave(owned)
    return tmp_path


def fsck(root: Path, *more: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["fsck", str(root), *more])
    return ran.exit_code, ran.output


def meanings(root: Path, job: str = "a") -> dict[str, str]:
    """Return what was found of a job, and what each of it means."""
    code, out = fsck(root, "--json")
    jobs = json.loads(out.splitlines()[0])["jobs"]
    assert code == (78 if any(report["problems"] for report in jobs.values()) else 0)
    return {problem["what"]: problem["means"] for problem in jobs[job]["problems"]}


def slots(root: Path, job: str = "a") -> list[Path]:
    return sorted((root / job / "log").iterdir())


def test_what_is_whole_is_said_to_be(root: Path) -> None:
    """Of a root, and of one job."""
    code, out = fsck(root)
    assert (code, out.count("; all is as it was written")) == (0, 2)
    code, out = fsck(root / "a")
    assert (code, out) == (0, "a: 4 batches, 0 files of state, 0.0 MiB; all is as it was written\n")


def test_blocks_of_a_source_that_was_dropped_are_named_with_what_to_do(root: Path) -> None:
    """They are no damage, so the command ends as without them."""
    Pushed(root / "a", receivers=1).add(6)
    code, out = fsck(root / "a")
    assert code == 0
    assert "all is as it was written\n  blocks/s-0: 3 blocks, 0.0 MiB, of a source 's' that no kept batch has\n" in out
    assert "if the job dropped this source, delete the folder" in out
    _, out = fsck(root, "--json")
    (left,) = json.loads(out.splitlines()[0])["jobs"]["a"]["left_blocks"]
    assert (left["folder"], left["blocks"], left["bytes"] > 0) == ("blocks/s-0", 3, True)


def test_a_torn_entry_at_the_end_is_given_up_by_the_next_start(root: Path) -> None:
    """And says nothing of the other job."""
    last = slots(root)[-1]
    last.write_bytes(last.read_bytes()[:-5])
    (means,) = meanings(root).values()
    assert means == (
        "the next start abandons it, if no sink shows that it was a batch; else restore with --from batch=N to one of "
        "0, 1, 2, 3, or --from saved=NAME to early"
    )
    assert meanings(root, "b") == {}


def test_a_commit_in_the_middle_stops_the_job_and_says_where_to_go_back_to(root: Path) -> None:
    """To batches that can be read; what the damage is stands once."""
    middle = slots(root)[4]  # Takeover, Offsets 0, Commit 0, Offsets 1, Commit 1, Save, ...
    middle.write_bytes(b"x" + middle.read_bytes()[1:])
    problems = meanings(root)
    assert all(
        means.startswith("the job does not start; restore with --from batch=N to one of") for means in problems.values()
    )
    assert sum(middle.name in what for what in problems) == 1
    assert all("2, 3, or --from saved=NAME to early" in means for means in problems.values())


@pytest.mark.fault("F16")
def test_only_batches_of_the_line_in_force_are_named(root: Path) -> None:
    """Behind a restore to batch 1 the job stands on it, and not on what came after it."""
    log = Log(LocalStore(root / "a"))
    owned = own(log, "w2")
    who = {"epoch": owned.epoch, "writer": owned.writer}
    owned.append(Restore(**who, batch=1, source="batch", saved=None, partitions=None))
    for batch in (4, 5):
        owned.append(offsets(batch, **who))
        done = owned.append(commit(batch, **who))
    assert done.place is not None
    path = root / "a" / log.path(done.place.slot)
    path.write_bytes(path.read_bytes()[:-1])
    (means,) = meanings(root).values()
    assert (
        means == "the job does not start; restore with --from batch=N to one of 0, 1, 4, or --from saved=NAME to early"
    )


@pytest.mark.fault("F68")
def test_a_log_that_may_have_ended_for_a_move_names_no_way_back(root: Path) -> None:
    """No restore would be let there."""
    log = Log(LocalStore(root / "a"))
    owned = own(log, "w2", command="move to /elsewhere/a")
    log.store.create(log.path(owned.next_slot), b"")
    (means,) = meanings(root).values()
    assert "the move of the job to /elsewhere/a may have ended the log" in means
    assert "--from" not in means


def test_a_gap_is_found(root: Path) -> None:
    """An entry that is gone and that nothing has purged."""
    slots(root)[4].unlink()
    assert any("missing" in what for what in meanings(root))


def test_a_checkpoint_without_its_uuid_is_no_ones(root: Path) -> None:
    """Sinks know it by that."""
    path = root / "a" / "metadata.json"
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    assert all("no driver starts: sinks know the checkpoint by its uuid" in means for means in meanings(root).values())
    path.unlink()
    assert list(meanings(root)) == ["there is no metadata.json"]
    path.write_bytes(data)
    assert meanings(root) == {}


@pytest.mark.fault("F17")
def test_the_error_of_a_root_has_a_remedy_for_each_of_its_jobs(root: Path) -> None:
    """One for all says PEN-CKP-004 or PEN-CKP-040, also beside damage that a restore would go past."""
    for job in ("a", "b"):
        slots(root, job)[4].unlink()
        (root / job / "metadata.json").write_bytes(b"x")
    assert "\nPEN-CKP-040 damaged: a, b" in fsck(root)[1]
    (root / "a" / "metadata.json").unlink()
    assert "\nPEN-CKP-001 damaged: a, b" in fsck(root)[1]
    assert "\nPEN-CKP-004 damaged: a\n" in fsck(root / "a")[1]


@pytest.mark.fault("F17")
def test_newer_metadata_is_to_be_read_by_the_newer_penstock(root: Path) -> None:
    """And not to be put back from a backup."""
    path = root / "a" / "metadata.json"
    path.write_bytes(encode("metadata", {}, version=FORMAT_VERSION + 1))
    assert "\nPEN-CKP-002 damaged: a\n" in fsck(root / "a")[1]


def test_a_save_that_cannot_be_read_keeps_all_files(root: Path) -> None:
    """Which it names is not known any more."""
    save = slots(root)[5]
    save.write_bytes(save.read_bytes()[:-9])
    problems = meanings(root)
    assert any(what.startswith("saved as early: cannot be read") for what in problems)
    assert "it cannot be restored, and no file of state is deleted any more" in problems.values()


def test_a_job_that_may_not_be_read_is_named_and_the_others_are_verified(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is what may not be read of a job that has more; nothing looks empty because it is closed (F28)."""
    (root / "_control").mkdir()
    (root / "b" / "snapshots").mkdir()
    deny(monkeypatch, root / "a", root / "_control", root / "b" / "snapshots")
    assert [*meanings(root)] == [f"not permitted: Permission denied ({root}/a/log)"]
    (of_b,) = meanings(root, "b").items()
    assert of_b[0] == f"not permitted: Permission denied ({root}/b/snapshots)"
    assert of_b[1].startswith("no data checkpoint can be restored or added. Give the job's user")


def test_a_storage_that_is_away_is_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F30: nothing is known of its files, so one waits for it; no checkpoint is called damaged."""

    def away(_: LocalStore, path: str) -> bytes:
        raise StorageUnavailable("no answer", where=path)

    monkeypatch.setattr(LocalStore, "read", away)
    code, out = fsck(root)
    assert (code, "damaged" in out, "PEN-CKP-009" in out) == (75, False, True)


def deny(monkeypatch: pytest.MonkeyPatch, *closed: Path) -> None:
    """Let nobody look into these folders, as the system does that is not root's."""

    def closing(real: Callable[..., Any], *, itself: bool) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **more: Any) -> Any:
            inside = isinstance(path, str | Path) and any(Path(path).is_relative_to(c) for c in closed)
            if inside and (itself or Path(path) not in closed):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *args, **more)

        return call

    monkeypatch.setattr(os, "stat", closing(os.stat, itself=False))
    monkeypatch.setattr(os, "scandir", closing(os.scandir, itself=True))


def test_where_there_is_nothing_it_says_so(tmp_path: Path) -> None:
    """A wrong folder is no sound checkpoint."""
    code, out = fsck(tmp_path)
    assert (code, "there is no checkpoint below it" in out) == (2, True)
    code, out = fsck(tmp_path / "x")
    assert (code, "there is no such folder" in out) == (2, True)
