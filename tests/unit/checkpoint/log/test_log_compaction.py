"""A log is compacted by an entry of its own, and a start costs the same however many runs there were (decision 58)."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import commit, leave, offsets, own, purge, run_batch

from penstock.checkpoint.log.compaction import ASKED, COMMANDS, EVERY, compact
from penstock.checkpoint.log.entries import Commit, Release, Restore, Save, StagedFile, Takeover, Unsave
from penstock.checkpoint.log.fencing import OwnedLog
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.purge import Purge
from penstock.checkpoint.log.queries import find_restore_by_command, newest_commits
from penstock.checkpoint.log.recovery import Damage, find_restorable, recover
from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CheckpointCorrupt, Fenced, LogGap, NotFound

STRIDE = 256
KEEP = 3


class Counting(MemoryStore):
    """A store that counts what is read, and what is asked after."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.lists = 0, 0

    def read(self, path: str) -> bytes:
        """Count, and read."""
        self.reads += 1
        return super().read(path)

    def exists(self, path: str) -> bool:
        """Count, and look."""
        self.reads += 1
        return super().exists(path)

    def list(self, prefix: str) -> list[str]:
        """Count, and list."""
        self.lists += 1
        return super().list(prefix)


def finite(log: Log, number: int, *, batches: int = 1, command: str | None = None) -> None:
    """Run as a job does that ends by itself: own the log, restore if a command says so, run, compact, release."""
    owned = own(log, f"w{number}", command=command)
    first = recover(log).next_batch
    if command is not None:
        restore(owned, None, command)
    for batch in range(first, first + batches):
        run_batch(owned, batch, floor=max(0, batch - KEEP))
    compact(log, owned)
    Purge(log).run(owned.compaction, at_most=1_000)
    leave(owned)


def restore(owned: OwnedLog, batch: int | None, command: str | None = None, **other: Any) -> None:
    """Go back to a batch, or to nothing."""
    fields = {"source": "empty" if batch is None else "batch", "saved": None, "partitions": None} | other
    owned.append(Restore(epoch=owned.epoch, writer=owned.writer, command=command, batch=batch, **fields))


def cost(store: Counting, log: Log) -> int:
    """Return what a start asks the store."""
    store.reads = 0
    survey(log)
    recover(log)
    find_restore_by_command(log, "none")
    newest_commits(log, 5)
    return store.reads


@pytest.mark.fault("F30")
def test_an_owner_compacts_without_listing_the_log() -> None:
    """It knows the last slot. Before the first milestone some thousand names stand there, and a batch waits."""
    store = Counting()
    log = Log(store, stride=STRIDE)
    owned = own(log, "w")
    compactions = 0
    for batch in range(3 * EVERY):
        run_batch(owned, batch, floor=max(0, batch - KEEP))
        if owned.compaction is None:
            compact(log, owned)  # the first looks for old commands in all entries
            continue
        store.lists = 0
        made = compact(log, owned)
        assert not store.lists
        if made is not None:
            compactions += 1
            assert recover(log).compaction == made.placed.slot
            assert store.lists  # any other reader has to look for the last slot
    assert compactions > 2


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.fault("F30")
@pytest.mark.parametrize("batches", [0, 1], ids=["nothing new", "one batch"])
def test_a_start_after_a_thousand_finite_runs_costs_what_it_costs_after_a_few(batches: int) -> None:
    """In reads, and in names that the folder holds but for milestones: one in 4,096 slots for a real job."""
    store = Counting()
    log = Log(store, stride=STRIDE)
    costs: dict[int, int] = {}
    names: dict[int, int] = {}
    for number in range(1_200):
        finite(log, number, batches=batches if number else 1)
        if number % 600 > 520:  # as many runs as stand between two Compactions, early and late
            costs[number // 600] = max(cost(store, log), costs.get(number // 600, 0))
            names[number // 600] = len([path for path in store.list("log") if int(path[4:]) % STRIDE])
    assert costs[1] <= costs[0] + 10, "the search for the tail takes some steps more"
    assert costs[1] < 3 * (EVERY + 2 * KEEP) + 60
    assert max(names.values()) < STRIDE + 3 * EVERY + 4 * KEEP
    recovered = recover(log)
    assert (recovered.next_batch, len(recovered.kept)) == ((1_200, KEEP + 1) if batches else (1, 1))


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.fault("F30")
def test_a_hundred_thousand_finite_runs_cost_what_the_first_cost() -> None:
    """In reads of a whole run and of a start, each a process of its own, over a log with a real job's milestones."""
    store = Counting()
    runs: dict[int, int] = {}
    starts: dict[int, int] = {}
    for number in range(100_000):
        store.reads = 0
        finite(Log(store), number)
        # Ten strides of slots and more: whoever passes a milestone purges the slots of the stride before it.
        ten_thousand = number // 10_000
        runs[ten_thousand] = runs.get(ten_thousand, 0) + store.reads
        if number % 97 == 0:
            starts[ten_thousand] = max(starts.get(ten_thousand, 0), cost(store, Log(store)))
    # Each doubling of the log adds two questions to a process's first search for the tail, and none to the others.
    # Between the middles of the first and the last ten thousand there are four doublings.
    assert runs[9] - runs[0] <= 12 * 10_000, runs
    assert starts[9] - starts[0] <= 12, starts
    assert len(store.list("log")) < 2 * 4_096
    assert recover(Log(store)).next_batch == 100_000


def long_log(store: MemoryStore) -> tuple[Log, OwnedLog]:
    """Return a log with two Compactions and what they are to remember: names, a held batch, a Restore, commands."""
    log = Log(store, stride=8)
    owned = own(log, "w0")
    held = {"out": [StagedFile(path="f", size=1, rows=1, checksum="c", stats={})]}
    for batch in range(4):
        owned.append(offsets(batch, owned.epoch, owned.writer))
        done = owned.append(commit(batch, owned.epoch, owned.writer, held=held if batch == 1 else {}))
        if batch % 2:
            owned.append(Save(epoch=owned.epoch, writer=owned.writer, name=f"at_{batch}", commit=done))
    leave(owned)
    for number in range(3):
        owned = own(log, f"r{number}", command=f"dag/{number}/task")
        restore(owned, 2, f"dag/{number}/task")
        leave(owned)
    owned = own(log, "w1")
    for batch in range(4, 30):
        run_batch(owned, batch, floor=1 if owned.compaction is None else batch - KEEP)
        compact(log, owned, every=12)
        Purge(log).run(owned.compaction, at_most=1_000)
    return log, owned


@pytest.mark.fault("F30", "F69")
def test_what_was_said_long_ago_is_known_still() -> None:
    """Names and what they pin, held batches and that a restore has undone them, commands, batches in use."""
    store = MemoryStore()
    log, _ = long_log(store)
    recovered = recover(log)
    assert not store.exists(log.path(2)), "the Commit of batch 0"
    assert {name: recovered.saves[name].batch for name in recovered.saves} == {"at_1": 1, "at_3": 3}
    assert (list(recovered.held), recovered.held[1].held["out"][0].path, recovered.held.undone) == ([1], "f", set())
    assert [find_restore_by_command(log, f"dag/{n}/task") is not None for n in range(4)] == [True, True, True, False]
    assert [kept.batch for kept in recovered.kept] == [26, 27, 28, 29]
    assert find_restorable(recovered, saved="at_3").batch == 3
    assert (recovered.used, recovered.next_batch, recovered.floor, recovered.problems) == (29, 30, 26, ())
    assert recovered.committed_by is not None
    assert recovered.committed_by.writer == "w1"


def test_a_held_batch_is_undone_and_brought_back_by_restores_since() -> None:
    """Whether its own line of batches is in force, a Compaction later and without its Commit (SEMANTICS 11.5)."""
    log, owned = long_log(MemoryStore())
    undone = []
    for batch, source, saved in (
        (None, "empty", None),
        (29, "batch", None),
        (3, "saved", "at_3"),
        (None, "empty", None),
    ):
        leave(owned)
        owned = own(log, "r")
        pinned = None if saved is None else recover(log).saves[saved]
        restore(owned, batch, source=source, saved=saved, commit=pinned)
        compact(log, owned, every=0)
        undone.append(recover(log).held.undone)
    assert undone == [{1}, set(), set(), {1}]


@pytest.mark.fault("F13", "F68")
@pytest.mark.parametrize("harm", ["empty", "cut", "gone body", "every byte"])
def test_a_damaged_compaction_is_no_loss(harm: str) -> None:
    """All since the one before it is there; and where nobody can tell what it was, the job stops and can be restored."""
    store = MemoryStore()
    log, owned = long_log(store)
    run_batch(owned, 30, floor=27)
    slot = owned.compaction
    assert slot is not None
    whole, data = recover(log), store.read(log.path(slot))
    cases = {
        "empty": [b""],
        "cut": [data[:-1], data[: len(data) // 2]],
        "gone body": [data[: data.index(b"\n") + 1]],
        "every byte": [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, len(data), 7)],
    }
    stopped = 0
    for broken in cases[harm]:
        store.delete(log.path(slot))
        store.create(log.path(slot), broken)
        recovered = recover(log, Damage.LIST)
        stopped += bool(recovered.problems)
        if recovered.problems:
            assert isinstance(recovered.problems[0], CheckpointCorrupt)
        for name in ("commit", "next_batch", "floor", "saves", "held", "commands", "pending", "used", "time"):
            assert getattr(recovered, name) == getattr(whole, name), name
        assert {kept.batch for kept in whole.kept} <= {kept.batch for kept in recovered.kept}
        newer = Purge(log)
        newer.run(slot)
        assert newer.run(slot, at_most=1_000) == 0, "nothing goes by one that cannot be read"
    assert stopped == (len(cases[harm]) if harm == "empty" else 0)


@pytest.mark.fault("F13", "F68")
@pytest.mark.parametrize("harm", ["cut", "empty"])
def test_a_damaged_first_compaction_is_no_loss(harm: str) -> None:
    """What it remembers from below the floor is read once more, by a restore where nothing tells what it was."""
    store = MemoryStore()
    log = Log(store, stride=8)
    owned = own(log)
    held = {"out": [StagedFile(path="f", size=1, rows=1, checksum="c", stats={})]}
    for batch in range(20):
        owned.append(offsets(batch))
        floor = 0 if owned.compaction is None else batch - KEEP
        done = owned.append(commit(batch, floor=floor, held=held if batch == 1 else {}))
        if batch == 2:
            owned.append(Save(epoch=1, writer="w1", name="early", commit=done))
        if batch == 9:
            compact(log, owned, every=0)
    slot, whole = owned.compaction, recover(log)
    assert slot is not None
    path = log.path(slot)
    data = store.read(path)
    store.delete(path)
    store.create(path, data[:-1] if harm == "cut" else b"")
    recovered = recover(log, Damage.LIST)
    assert bool(recovered.problems) == (harm == "empty")
    for name in ("commit", "next_batch", "floor", "saves", "held", "commands", "kept"):
        assert getattr(recovered, name) == getattr(whole, name), name
    assert (list(recovered.held), list(recovered.saves)) == ([1], ["early"])


@pytest.mark.fault("F13")
def test_an_entry_that_a_compaction_names_and_that_is_lost_is_told() -> None:
    """A Commit that can be gone back to, or the one in force: the job stops with its path, as for any other."""
    store = MemoryStore()
    log, owned = long_log(store)
    compact(log, owned, every=0)
    for slot in (recover(log).kept[0].placed.slot, recover(log).kept[-1].placed.slot):
        data = store.read(log.path(slot))
        store.delete(log.path(slot))
        with pytest.raises((CheckpointCorrupt, LogGap), match=f"missing.*{log.path(slot)}"):
            recover(log)
        store.create(log.path(slot), data)
    assert recover(log).problems == ()


@pytest.mark.fault("F07", "F08", "F30")
@pytest.mark.parametrize("left", [False, True], ids=["asleep", "claimed only"])
def test_a_driver_that_sleeps_through_many_runs_is_fenced(*, left: bool) -> None:
    """The Takeover in its next slot stays, whatever goes; one that only claimed finds the tail elsewhere."""
    store = MemoryStore()
    log = Log(store, stride=8)
    finite(log, 0)
    sleeper = own(log, "sleeper")
    if not left:
        sleeper.append(offsets(1, sleeper.epoch, "sleeper"))
    slot = sleeper.next_slot
    for number in range(1, 200):
        owned = own(log, f"w{number}")
        compact(log, owned, every=8)
        Purge(log).run(owned.compaction, at_most=1_000)
        leave(owned)
    assert isinstance(log.read(slot), Takeover)
    assert len(store.list("log")) < 120, "of 400"
    with pytest.raises(Fenced):
        sleeper.append(offsets(2, sleeper.epoch, "sleeper"))
    assert isinstance(log.read(slot), Takeover)


def test_a_takeover_goes_with_the_release_before_it_or_not_at_all() -> None:
    """A purge that is cut short between the two leaves the Release: alone, the Takeover could not be told from another."""
    store = MemoryStore()
    log = Log(store, stride=1_024)
    for number in range(40):
        leave(own(log, f"w{number}"))
    owned = own(log, "last")
    for _ in range(2):
        compact(log, owned, every=0)
    for number in range(2_000):
        run_batch(owned, number)
    delete, left = store.delete, 7

    def dying(path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        delete(path)

    store.delete = dying  # type: ignore[method-assign]
    done = False
    while not done:
        left = 7
        with suppress(KeyboardInterrupt):
            done = Purge(log).run(owned.compaction, at_most=1_000) == 0
        slots = {int(path[4:]) for path in store.list("log")}
        for slot in range(2, 80):
            if slot in slots and isinstance(log.read(slot), Takeover):
                assert isinstance(log.read(slot - 1), Release)
    assert {slot for slot in slots if slot < 80} == {0, 79}, "the first milestone, and what the owner follows"


@pytest.mark.sample(seconds=8)
@pytest.mark.slow
def test_what_a_compaction_holds_is_bounded() -> None:
    """Commands, and how many held batches are asked after at once; those that were decided on go in turn."""
    log = Log(MemoryStore(), stride=STRIDE)
    asked: list[int] = []
    owned = own(log, "w0")
    files = {"out": [StagedFile(path="f", size=1, rows=1, checksum="c", stats={})]}
    for batch in range(100):
        owned.append(offsets(batch, owned.epoch, owned.writer))
        owned.append(commit(batch, owned.epoch, owned.writer, held=files))

    def decided_on(batch: int) -> bool:
        asked.append(batch)
        return batch > 0

    left = []
    while not left or left[-1] > 1:
        asked.clear()
        made = compact(log, owned, decided_on=decided_on, every=0)
        assert made is not None
        assert len(asked) <= ASKED
        left.append(len(made.held))
        assert len(left) < 20
    assert list(recover(log).held) == [0]
    leave(owned)
    for number in range(COMMANDS + 50):
        finite(log, number, batches=0, command=f"c{number}")
    owned = own(log, "w")
    made = compact(log, owned, every=0)
    assert made is not None
    assert (len(made.commands), len(made.restores)) == (COMMANDS, 1)
    assert find_restore_by_command(log, f"c{COMMANDS + 49}") is not None


def test_a_log_with_damage_is_not_compacted() -> None:
    """What is lost in it, the entries before may still tell."""
    store = MemoryStore()
    log = Log(store, stride=8)
    owned = own(log)
    for batch in range(8):
        run_batch(owned, batch)
    store.delete(log.path(6))
    assert compact(log, owned, every=1) is None


@pytest.mark.fault("F22")
def test_a_log_of_format_version_1_is_read_compacted_and_gone_on_with() -> None:
    """As the last Penstock that wrote it read it: with a name, a held batch, Restores, a Void and pending Offsets."""
    files = json.loads((Path(__file__).parents[3] / "golden" / "log-version-1.json").read_text())
    store = MemoryStore()
    for path, text in files.items():
        assert '"version":1,' in text or text == "torn"
        store.create(path, text.encode())
    log = Log(store, stride=4)

    def recovered_facts() -> tuple[Any, ...]:
        recovered = recover(log)
        assert recovered.commit is not None
        saves = {name: recovered.saves[name].batch for name in recovered.saves}
        return (
            recovered.commit.batch,
            recovered.used,
            recovered.floor,
            [k.batch for k in recovered.kept],
            saves,
            recovered.problems,
        )

    wanted = (2, 8, 1, [1, 2, 3, 4, 5, 7], {"first": 2}, ())
    assert recovered_facts() == wanted
    before = recover(log)
    assert before.pending is not None
    assert (before.pending.batch, before.time, list(before.held), before.held.undone) == (8, 8_000_000, [3], {3})
    owned = own(log, "new")
    assert purge(log, owned) >= 10
    assert recovered_facts() == wanted
    assert recover(log).pending == before.pending
    assert find_restore_by_command(log, "dag/run/task") == find_restore_by_command(Log(_copy(files)), "dag/run/task")
    assert isinstance(owned.append(commit(8, owned.epoch, owned.writer, floor=1)), Commit)
    assert recover(log).next_batch == 9


def _copy(files: dict[str, str]) -> MemoryStore:
    store = MemoryStore()
    for path, text in files.items():
        store.create(path, text.encode())
    return store


def test_a_name_is_let_go_and_can_be_given_again() -> None:
    """Before and behind a Compaction; its Save goes with the next purge."""
    store = MemoryStore()
    log, owned = long_log(store)
    slot = recover(log).saves.refs["at_1"].slot
    owned.append(Unsave(epoch=owned.epoch, writer=owned.writer, name="at_1"))
    assert list(recover(log).saves) == ["at_3"]
    run_batch(owned, 30)
    purge(log, owned)
    with pytest.raises(NotFound):
        log.read(slot)
    done = recover(log).commit
    assert done is not None
    owned.append(Save(epoch=owned.epoch, writer=owned.writer, name="at_1", commit=done))
    assert {name: saved.batch for name, saved in recover(log).saves.items()} == {"at_3": 3, "at_1": 30}


def test_entries_do_not_carry_names_and_a_start_reads_none() -> None:
    """However many were given; the first Compaction takes over from the entries (SEMANTICS 10.2)."""
    store = Counting()
    log = Log(store, stride=STRIDE)
    owned = own(log)
    sizes, costs = [], []
    for number in range(730):
        done = run_batch(owned, number, floor=max(0, number - KEEP))
        owned.append(Save(epoch=owned.epoch, writer=owned.writer, name=f"n{number}", commit=done))
        compact(log, owned)
        if number in {100, 729}:
            sizes.append(len(store.read(log.path(owned.next_slot - 2))))
            costs.append(cost(store, log))
    assert sizes[1] < sizes[0] + 10
    assert costs[1] <= costs[0] + EVERY
    assert len(recover(log).saves) == 730
