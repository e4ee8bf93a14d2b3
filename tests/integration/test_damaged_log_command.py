"""The end of a log is damaged, and people do what the commands tell them: real Spark, real Delta (F13, F68)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Shell
from project_samples import expected_totals, make_project

from penstock.checkpoint.log.entries import Void
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore

pytestmark = pytest.mark.timeout(900)

RUN = ("run", "orders", "--available-now", "--json")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A project of 400 orders in four batches."""
    project = Shell(make_project(tmp_path / "project", rows=400))
    yield project
    project.end()


def log_of(shell: Shell) -> Log:
    """Return the job's log."""
    return Log(LocalStore(shell.root / "checkpoints" / "orders"))


def last(shell: Shell) -> Path:
    """Return the file of the last entry."""
    log = log_of(shell)
    return shell.root / "checkpoints" / "orders" / log.path(log.find_tail())


def flip(path: Path) -> None:
    """Change one bit of a file."""
    data = path.read_bytes()
    path.write_bytes(data[:9] + bytes([data[9] ^ 1]) + data[10:])


@pytest.mark.sample(seconds=50)
@pytest.mark.remedy("PEN-CKP-001")
@pytest.mark.fault("F13", "F68")
def test_what_the_commands_say_of_a_damaged_end_is_true_and_their_remedy_works(shell: Shell) -> None:
    """A Release is given up by the next start; a Restore stops it, and going back as fsck says brings each row once."""
    code, _, err = shell.run(*RUN)
    assert code == 0, err
    whole = shell.totals()
    assert whole == expected_totals(400)

    flip(last(shell))
    code, out, _ = shell.run("fsck", "checkpoints")
    assert (code, "the next start abandons it" in out) == (78, True)
    code, out, err = shell.run(*RUN)
    assert (code, "log.entry_given_up" in out + err) == (0, True), err
    assert shell.totals() == whole
    assert [type(entry) for _, entry in log_of(shell).entries_back(log_of(shell).find_tail())][1] is Void

    code, _, err = shell.run("restore", "orders", "--from", "batch=1", "--truncate-sinks")
    assert code == 0, err
    last(shell).unlink()  # the Release: the driver died right behind the Restore
    last(shell).write_bytes(b"")
    entries = sorted((shell.root / "checkpoints" / "orders" / "log").iterdir())
    code, _, err = shell.run(*RUN)
    assert (code, "PEN-CKP-001 the file is empty; it may be a Restore" in err) == (78, True), err
    assert sorted((shell.root / "checkpoints" / "orders" / "log").iterdir()) == entries
    code, out, _ = shell.run("fsck", "checkpoints")
    named = re.search(r"restore with --from batch=N to one of ([\d, ]+)", out)
    assert (code, named is not None) == (78, True), out
    assert named is not None
    batch = named[1].split(", ")[-1]
    code, _, err = shell.run("restore", "orders", "--from", f"batch={batch}", "--truncate-sinks")
    assert code == 0, err
    code, _, err = shell.run(*RUN)
    assert code == 0, err
    assert shell.totals() == whole


@pytest.mark.sample(seconds=30)
@pytest.mark.remedy("PEN-CKP-003")
@pytest.mark.fault("F16")
def test_a_takeover_that_nothing_needs_any_more_may_be_lost(shell: Shell) -> None:
    """The first slot of all is gone: the job stops, fsck names batches, and going back to one is all that is needed."""
    code, _, err = shell.run(*RUN)
    assert code == 0, err
    whole = shell.totals()
    (shell.root / "checkpoints" / "orders" / log_of(shell).path(0)).unlink()
    code, _, err = shell.run(*RUN)
    assert (code, "PEN-CKP-003" in err) == (78, True), err
    code, out, _ = shell.run("fsck", "checkpoints")
    assert (code, "restore with --from batch=N to one of 0, 1, 2, 3" in out) == (78, True), out
    code, _, err = shell.run(*RUN, "--from", "batch=2", "--truncate-sinks")
    assert code == 0, err
    assert shell.totals() == whole
    code, out, err = shell.run("fsck", "checkpoints")
    assert code == 0, out


@pytest.mark.sample(seconds=30)
@pytest.mark.remedy("PEN-CKP-028", "PEN-CKP-029")
@pytest.mark.fault("F17", "F19")
def test_a_checkpoint_that_is_gone_or_in_part_is_not_begun_anew_unasked(shell: Shell) -> None:
    """Nothing is shown twice by a start that nobody meant; what is put back goes on, and what is meant is done."""
    code, _, err = shell.run(*RUN)
    assert code == 0, err
    whole, folder = shell.totals(), shell.root / "checkpoints" / "orders"
    (folder / "log").rename(shell.root / "log")
    (folder / "metadata.json").rename(shell.root / "metadata.json")
    code, _, err = shell.run(*RUN)
    assert (code, "PEN-CKP-028 the log is gone, and there is state" in err) == (78, True), err
    (shell.root / "log").rename(folder / "log")
    (shell.root / "metadata.json").rename(folder / "metadata.json")
    code, _, err = shell.run(*RUN)
    assert (code, shell.totals()) == (0, whole), err

    (shell.root / "checkpoints").rename(shell.root / "not mounted")
    code, _, err = shell.run(*RUN)
    assert (code, "PEN-CKP-029 there is no checkpoint, and the table of sink 'totals' has batches" in err) == (78, True)
    assert not folder.exists()
    code, _, err = shell.run(*RUN, "--new-lineage")
    assert code == 0, err
    assert shell.totals() == sorted(whole * 2)
