"""Numbered records: status, heartbeats, commands."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from faulty_store import Fault, FaultyStore, Plan
from hypothesis import given
from hypothesis import strategies as st
from test_format import forged

from penstock.checkpoint.control_records import STRIDES, Records, error_body, error_in
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.numbered_files import Sequence
from penstock.errors import CommitUnknown, FormatTooNew, PathEscapes, PenstockError, StorageUnavailable


def records(store: MemoryStore | FaultyStore, **other: object) -> Records:
    """Return the status records of a job, with strides small enough for a test."""
    return Records(store, "status", "flights", strides=(4, 16), **other)  # type: ignore[arg-type]


def test_the_newest_record_counts() -> None:
    """None at first; then the last one put, with its number, for every reader."""
    store = MemoryStore()
    mine = records(store)
    assert mine.newest() is None
    for number in range(40):
        assert mine.put({"batch": number}) == number
        newest = records(store).newest()
        assert newest
        assert (newest.seq, newest.body) == (number, {"batch": number})
    assert store.list("")[0] == "_control/status/flights/000000000000"


@given(puts=st.integers(1, 150), every=st.integers(1, 9), keep=st.integers(1, 5))
def test_pruning_leaves_few_and_the_newest(puts: int, every: int, keep: int) -> None:
    """However often it is done, the newest is found and the newest `keep` are there."""
    store = MemoryStore()
    mine = records(store)
    for number in range(puts):
        mine.put({"n": number})
        if number % every == 0:
            mine.prune(keep)
    mine.prune(keep)
    newest = records(store).newest()
    assert newest
    assert newest.seq == puts - 1
    left = [int(path[-12:]) for path in store.list("")]
    assert set(range(max(0, puts - keep), puts)) <= set(left)
    assert len(left) <= 8 + 8 + keep + puts // 16 + 1
    assert records(store).put({}) == puts


def test_a_year_of_heartbeats_leaves_some_hundred_files() -> None:
    """What STRIDES promises, by the rule and without writing them."""
    year = 365 * 24 * 3600 // 5
    kept = Sequence(MemoryStore(), "_control/status/flights", STRIDES)
    tail = year - 1
    near = [seq for seq in range(tail - 70_000, tail + 1) if not kept.expendable(seq, tail)]
    far = [seq for seq in range(0, tail - 70_000, STRIDES[1]) if not kept.expendable(seq, tail)]
    assert len(near) + len(far) < 300


@pytest.mark.fault("F07")
def test_records_put_at_once_all_get_numbers() -> None:
    """Two commands given in the same moment are both there."""
    store = MemoryStore()
    start = threading.Barrier(4)

    def put(writer: int) -> list[int]:
        mine = records(store)
        start.wait()
        return [mine.put({"writer": writer}) for _ in range(25)]

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for part in pool.map(put, range(4)) for number in part]
    assert sorted(numbers) == list(range(100))


@pytest.mark.fault("F30")
@given(before=st.integers(1, 20), meanwhile=st.integers(0, 80))
def test_a_writer_that_slept_through_a_prune_is_not_lost_in_a_hole(before: int, meanwhile: int) -> None:
    """Its number may be free again; then the record is put once more, where readers look."""
    store = MemoryStore()
    sleeper, busy = records(store), records(store)
    for number in range(before):
        sleeper.put({"n": number})
    for number in range(meanwhile):
        busy.put({"n": number})
    busy.prune()
    seq = sleeper.put({"n": "awake"})
    newest = busy.newest()
    assert newest
    assert (seq, newest.seq, newest.body) == (before + meanwhile, before + meanwhile, {"n": "awake"})


def test_such_holes_do_occur() -> None:
    """The number after the sleeper's last is pruned, and so is the nearest milestone after it."""
    store = MemoryStore()
    mine = records(store)
    for number in range(40):
        mine.put({"n": number})
    mine.prune()
    left = [int(path[-12:]) for path in store.list("")]
    assert left == [0, 16, 32, 36, 37, 38, 39]


@pytest.mark.fault("F13", "F49")
def test_a_damaged_record_is_passed_over() -> None:
    """Torn, copied from another number, or of another kind: the one before it counts, and the next put goes on."""
    store = MemoryStore()
    mine = records(store)
    for number in range(3):
        mine.put({"n": number})
    path = "_control/status/flights/00000000000"
    store.create(f"{path}3", store.read(f"{path}1"))
    store.create(f"{path}4", b"")
    store.create(f"{path}5", forged(b'{"seq":5,"body":[]}'))
    store.create(f"{path}6", forged(b'{"seq":6,"body":{}}', kind="command"))
    newest = mine.newest()
    assert newest
    assert newest.seq == 2
    assert mine.put({}) == 7
    for number in range(8):
        store.delete(f"{path}{number}")
        store.create(f"{path}{number}", b"")
    assert mine.newest() is None


@pytest.mark.fault("F21")
def test_a_record_of_a_later_format_is_named() -> None:
    """A command of a later Penstock is not passed over in silence."""
    store = MemoryStore()
    store.create("_control/status/flights/000000000000", forged(b"{}", version=2))
    with pytest.raises(FormatTooNew):
        records(store).newest()


@pytest.mark.fault("F23", "F29")
@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.STALE, Fault.TORN])
def test_records_survive_lost_answers_stale_lists_and_torn_writes(fault: Fault) -> None:
    """Each put is there once, at whichever call the fault strikes."""
    at, fired = 0, True
    while fired:
        at += 1
        inner = MemoryStore()
        store = FaultyStore(inner, Plan(fault, at=at))
        mine = records(store)
        for number in range(12):
            mine.put({"n": number})
            with suppress(StorageUnavailable):
                mine.prune()
        fired = store.fired
        newest = records(inner).newest()
        assert newest
        assert (newest.body, newest.seq) == ({"n": 11}, 12 if fired and fault is Fault.TORN else 11)
    assert at > 10


def test_a_store_that_does_not_acknowledge_leaves_the_outcome_open() -> None:
    """The caller may put again: the newest wins."""

    class Silent(MemoryStore):
        def create(self, path: str, data: bytes) -> None:
            raise StorageUnavailable(f"no answer for {len(data)} bytes", where=path)

    with pytest.raises(CommitUnknown):
        records(Silent()).put({})


@pytest.mark.fault("F61")
@pytest.mark.parametrize("job", ["../flights", "a/../../b", "Flights", "a:b"])
def test_job_names_cannot_leave_the_folder(job: str) -> None:
    """Names come from people."""
    store = MemoryStore()
    with pytest.raises(PathEscapes):
        Records(store, "status", job).put({})
    assert store.list("") == []


class PrunedMeanwhile(MemoryStore):
    """Has other writers put and prune between a reader's search and its read, a number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def read(self, path: str) -> bytes:
        """Let them come first."""
        if self.left:
            self.left -= 1
            others = records(self)
            for _ in range(5):
                others.put({"n": others.tail() + 1})
            others.prune()
        return super().read(path)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_record_that_is_pruned_while_it_is_looked_for_has_a_newer_one(times: int) -> None:
    """None would say that nobody ever wrote one: of a stream, that nobody wants it to run."""
    store = PrunedMeanwhile()
    mine = records(store)
    for number in range(3):
        mine.put({"n": number})
    store.left = times
    newest = mine.newest()
    assert newest
    assert (newest.seq, newest.body) == (2 + 5 * times, {"n": 2 + 5 * times})


def test_behind_a_damaged_record_the_newest_that_is_left_is_found() -> None:
    """Also where those right before it are pruned."""
    store = MemoryStore()
    mine = records(store)
    for number in range(10):
        mine.put({"n": number})
    mine.prune()
    tail = store.list("")[-1]
    store.delete(tail)
    store.create(tail, b"torn")
    newest = mine.newest()
    assert newest
    assert newest.seq == 8


@pytest.mark.parametrize("error", [FormatTooNew("of a later version", where="a/b"), PathEscapes("..")])
def test_an_answer_names_an_error_by_its_code(error: PenstockError) -> None:
    """Who asked gets the same error; one of a code that is not known has its words all the same."""
    body = json.loads(json.dumps(error_body(error)))
    again = error_in(body)
    assert (type(again), again.what, again.where) == (type(error), error.what, error.where)
    unknown = error_in({**body, "code": "PEN-NEW-999"})
    assert (type(unknown), unknown.what) == (PenstockError, error.what)
