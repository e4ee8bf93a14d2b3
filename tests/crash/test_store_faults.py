"""Every call to the store fails once, and then for good: the loop that SQLite's authors test with (FAULTS 4.1).

Begin with the first call and count up until a run ends in which the fault did not strike.
Each run either shows what the undisturbed one shows, or ends with a named error and a clean restart shows it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fake_engine import SECOND, Witness, World, ledger_of, make_driver, quick_folder, run_to_end, windowed_job
from faulty_store import Fault, FaultyStore, Lasting, Plan
from oracle import judge

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.store import CheckpointStore, prove_exclusive
from penstock.errors import (
    CheckpointCorrupt,
    CommitUnknown,
    NotExclusive,
    PenstockError,
    StorageFull,
    StorageUnavailable,
)

TIMES = [0, 3, 1, 6, 9, 2, 12, 30]
GRAPH = windowed_job()

NAMED: dict[Fault, tuple[type[PenstockError], ...]] = {
    Fault.BEFORE: (StorageUnavailable, CommitUnknown),
    Fault.AFTER: (StorageUnavailable,),
    Fault.FULL: (StorageFull,),
    Fault.STALE: (),
    Fault.TORN: (CheckpointCorrupt, StorageUnavailable, CommitUnknown, NotExclusive),
}
"""What a run may end with under each fault."""


def drive(world: World, store: CheckpointStore, name: str) -> None:
    """Start a job as the command does, and run it to its end."""
    prove_exclusive(store)
    metadata = open_or_create(store, now=SECOND)
    log = Log(store, stride=4)
    run_to_end(make_driver(world, store, name, graph=GRAPH, log=log, uuid=metadata.uuid))


def sweep(fault: Fault, lasting: Lasting) -> Counter[str]:
    """Let each call fail in turn; return how the runs ended."""
    with quick_folder() as root:
        return _sweep(root, fault, lasting)


def _sweep(root: Path, fault: Fault, lasting: Lasting) -> Counter[str]:
    ends: Counter[str] = Counter()
    for at in range(1, 10_000):
        world, inner = World(root=root / str(at), times=TIMES), Witness()
        store = FaultyStore(inner, Plan(fault, at=at, lasting=lasting))
        try:
            drive(world, store, "first")
            ends["finished"] += 1
        except PenstockError as error:
            named = isinstance(error, NAMED[fault])
            if not named:
                raise AssertionError(f"call {at}: {error!r}") from error
            ends[type(error).__name__] += 1
        ends["restart " + restarted(world, inner, at, torn=fault is Fault.TORN)] += 1
        if not store.fired:
            return ends
    raise AssertionError("the sweep does not end")


def restarted(world: World, store: Witness, at: int, *, torn: bool) -> str:
    """Run a driver over a sound store; it finishes, or finds a torn entry that it may not give up."""
    try:
        drive(world, store, "second")
    except CheckpointCorrupt as error:
        if not torn:
            raise AssertionError(f"call {at}: {error}") from error
        wrongs = judge(ledger_of(world, store, GRAPH, finished=False)) if store.entries() else []
        assert wrongs == [], f"call {at}: {wrongs}"
        return "refused"
    wrongs = judge(ledger_of(world, store, GRAPH, finished=True))
    assert wrongs == [], f"call {at}: {wrongs}"
    return "finished"


@pytest.mark.slow
@pytest.mark.parametrize("lasting", Lasting, ids=lambda lasting: lasting.value)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault.BEFORE, marks=pytest.mark.fault("F27")),
        pytest.param(Fault.AFTER, marks=pytest.mark.fault("F23")),
        pytest.param(Fault.FULL, marks=pytest.mark.fault("F27")),
        pytest.param(Fault.STALE, marks=pytest.mark.fault("F29")),
    ],
    ids=lambda fault: fault.value,
)
def test_every_call_to_the_store_may_fail(fault: Fault, lasting: Lasting) -> None:
    """The same rows in the end, after an error with a name or none."""
    ends = sweep(fault, lasting)
    runs = sum(n for end, n in ends.items() if end.startswith("restart"))
    assert ends["restart finished"] == runs > 3
    if fault is Fault.STALE:
        assert ends["finished"] == runs


@pytest.mark.fault("F13")
def test_every_create_may_be_torn() -> None:
    """A store that breaks its word: torn Offsets, Takeovers and Releases are given up, a torn Commit stops the job."""
    ends = sweep(Fault.TORN, Lasting.ONCE)
    commits = 5
    assert ends["restart refused"] >= commits
    assert ends["restart finished"] >= commits
