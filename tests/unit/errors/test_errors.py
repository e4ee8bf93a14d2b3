"""Every error has one root, a code that stays, and says what to do (STYLE 2.8)."""

from __future__ import annotations

import functools
import pickle
import re
from pathlib import Path

import pytest

from penstock import errors
from penstock.errors import EXIT_FENCED, EXIT_PERSON, EXIT_RETRY, EXIT_SOFTWARE, Fenced, HolderAlive, PenstockError

PLATFORM = Path(errors.__file__).parents[2]
LEAVES = [PenstockError, *(e for e in vars(errors).values() if isinstance(e, type) and PenstockError in e.__mro__[1:])]
NAMES = [e.__name__ for e in LEAVES]
SECTIONS = ("JOB", "CNF", "ENV", "CKP", "STA", "SRC", "OPR", "SNK", "QLT", "RAT", "SUP")


def test_codes_are_unique() -> None:
    """A code means one thing, and every class has its own rather than the one of its parent."""
    codes = [e.code for e in LEAVES]
    assert sorted(codes) == sorted(set(codes))
    assert all("code" in vars(e) for e in LEAVES)


@pytest.mark.parametrize("error", LEAVES[1:], ids=NAMES[1:])
def test_an_error_has_a_code_a_remedy_and_an_exit_code(error: type[PenstockError]) -> None:
    """STYLE 2.8: the remedy is a sentence or more; the exit code is one that a supervisor knows (DESIGN 11)."""
    section, number = re.fullmatch(r"PEN-([A-Z]{3})-(\d{3})", error.code).groups()  # type: ignore[union-attr]
    assert section in SECTIONS
    assert len(number) == 3
    assert re.fullmatch(r"[A-Z`].*\.", error.remedy)
    assert error.exit_code in (EXIT_RETRY, EXIT_FENCED, EXIT_PERSON)


@pytest.mark.parametrize("error", LEAVES, ids=NAMES)
def test_a_message_says_what_where_and_what_to_do(error: type[PenstockError]) -> None:
    """STYLE 2.8: fields are attributes, so that nobody parses text; the builtin it derives from changes nothing."""
    raised = error("the pipe is shut", where="jobs/a.py:7", batch=3, seen="x")
    assert str(raised) == f"{error.code} the pipe is shut (jobs/a.py:7). {error.remedy}"
    assert (raised.batch, raised.seen) == (3, "x")  # type: ignore[attr-defined]
    assert (raised.what, raised.where, raised.fields) == ("the pipe is shut", "jobs/a.py:7", {"batch": 3, "seen": "x"})
    assert str(error("the pipe is shut")) == f"{error.code} the pipe is shut. {error.remedy}"
    with pytest.raises(PenstockError, match="the pipe is shut"):
        raise raised


@pytest.mark.parametrize("error", LEAVES[1:], ids=NAMES[1:])
def test_an_error_survives_the_way_from_a_task(error: type[PenstockError]) -> None:
    """Errors cross processes: nothing of what was said is lost."""
    unpickled = pickle.loads(pickle.dumps(error("x", where="y", batch=3)))
    assert (type(unpickled), str(unpickled), unpickled.batch) == (error, str(error("x", where="y")), 3)


def test_only_fencing_ends_with_77() -> None:
    """DESIGN 11: 77 is never restarted, so nothing else may end with it; and ours never end with the bug's code."""
    assert {e for e in LEAVES if e.exit_code == EXIT_FENCED} == {Fenced, HolderAlive}
    assert EXIT_SOFTWARE not in {e.exit_code for e in LEAVES}
    assert (EXIT_SOFTWARE, EXIT_RETRY, EXIT_FENCED, EXIT_PERSON) == (70, 75, 77, 78)


RETRIED = {
    "StorageFull", "StorageUnavailable", "CommitUnknown", "ComputeFailed", "EngineGone", "SinkError", "SinkConflict",
    "SupervisorAbsent", "ClusterUnavailable", "RootMissing", "SortedCopyDamaged", "SourceUnavailable",
    "SinkUnavailable", "SinkBusy", "EpochSealed", "ReceiversTakeAllCores", "CannotListen",
}  # fmt: skip


def test_a_retry_is_advised_only_where_it_may_help() -> None:
    """DESIGN 11: 75 restarts a job without a person; the list is looked at whenever it grows."""
    assert {e.__name__ for e in LEAVES if e.exit_code == EXIT_RETRY} == RETRIED


@functools.cache
def sources() -> tuple[str, ...]:
    """Return the modules in which errors may be raised."""
    return tuple(p.read_text(encoding="utf-8") for p in PLATFORM.rglob("*.py") if p.parent.name != "errors")


@pytest.mark.parametrize("error", [e for e in LEAVES if not e.__subclasses__()], ids=lambda e: e.__name__)
def test_every_leaf_is_raised_somewhere(error: type[PenstockError]) -> None:
    """An error that nothing raises is a promise that nobody keeps."""
    name = error.__name__
    used = re.compile(rf"\b{name}\(|\braise {name}\b|= {name}\b|\braise job_error\(.*, {name}\)")
    assert any(map(used.search, sources()))
