"""The record of a stream, written in turns, and who supervises: of all who read one record, one writes the next."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from faulty_store import Fault, FaultyStore, Lasting, Plan

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import CheckpointCorrupt, CommitUnknown, StorageUnavailable
from penstock.rates.limits import Limits
from penstock.supervise.records import LeaseWatch, StreamRecords, supervised_jobs
from penstock.supervise.stream import Answered, DriverSlot, Phase, StartOptions, Stream, Wish

FOLDER = "_control/streams/flights"
PATIENCE = 10.0


def of(store):
    return StreamRecords(store, "flights")


def noting(note):
    """Return a change that writes a note, and tells what it was asked about."""
    return lambda stream: (stream.model_copy(update={"note": note}), stream.note)


def counting(stream):
    """Count one up."""
    return stream.model_copy(update={"streak": stream.streak + 1}), stream.streak


def path(number, folder=FOLDER):
    return f"{folder}/{number:012d}"


def damage(store, number, folder=FOLDER):
    store.delete(path(number, folder))
    store.create(path(number, folder), b"torn")


# --- records that follow from one another ---------------------------------------------------------
def control(store, **other):
    return Records(store, "streams", "flights", strides=(4, 16), **other)


def test_of_all_who_read_the_same_record_one_puts_the_next():
    """Also when they do it in the same moment."""
    store = MemoryStore()
    for last in range(-1, 19):
        start = threading.Barrier(4)

        def put(writer, last=last, start=start):
            mine = control(store)
            start.wait()
            return mine.put_after(last, {"writer": writer})

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(put, range(4)))
        assert sorted(won) == [False, False, False, True]
        assert control(store).newest().body == {"writer": won.index(True)}
        assert control(store).tail() == last + 1


def test_a_number_long_past_is_not_put_again_though_it_was_pruned():
    """Who slept while the records went on has not followed from the newest."""
    store = MemoryStore()
    for number in range(40):
        assert control(store).put_after(number - 1, {"n": number})
    control(store).prune()
    assert not store.exists(path(10))
    assert control(store).put_after(9, {"n": "asleep"}) is False
    assert (control(store).tail(), control(store).newest().body) == (39, {"n": 39})


@pytest.mark.fault("F23")
@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.BEFORE])
def test_a_record_whose_acknowledgement_was_lost_is_the_writers_own(fault):
    """It is there once, and the writer is told so."""
    inner = MemoryStore()
    store = FaultyStore(inner, Plan(fault, at=1))
    assert control(store).put_after(-1, {"n": 0}) is True
    assert store.fired
    assert inner.list("") == [path(0)]


@pytest.mark.fault("F13")
def test_a_record_that_was_torn_is_not_the_writers():
    """Its number is spent, and nobody reads it."""
    store = FaultyStore(MemoryStore(), Plan(Fault.TORN, at=1))
    assert control(store).put_after(-1, {"n": 0}) is False
    assert (control(store).tail(), control(store).newest()) == (0, None)


def test_a_damaged_record_keeps_its_number_and_is_left_out():
    """The next comes after it; kept are those that can be read, oldest first."""
    store = MemoryStore()
    assert control(store).tail() == -1
    for number in range(5):
        control(store).put({"n": number})
    damage(store, 4)
    assert (control(store).tail(), control(store).newest().seq) == (4, 3)
    damage(store, 1)
    assert [(kept.seq, kept.body) for kept in control(store).kept()] == [(n, {"n": n}) for n in (0, 2, 3)]


def test_a_record_that_is_pruned_while_it_is_listed_is_left_out():
    """Another supervisor tidies up in between."""

    class Pruned(MemoryStore):
        def list(self, prefix):
            paths = super().list(prefix)
            self.delete(path(1))
            return paths

    store = Pruned()
    for number in range(3):
        control(store).put({"n": number})
    assert [kept.seq for kept in control(store).kept()] == [0, 2]


# --- the record of a stream -------------------------------------------------------------------------
def test_a_stream_that_nobody_asked_for_stands_stopped():
    """It has no record and no history, and makes none by being looked at."""
    store = MemoryStore()
    assert of(store).newest() == Stream()
    assert (of(store).newest().phase, of(store).number(), of(store).history()) == (Phase.STOPPED, -1, [])
    assert store.list("") == []


def test_a_change_is_the_next_record():
    """All of it comes back as it was written, whatever its fields hold."""
    full = Stream(
        wish=Wish.DRAIN,
        asked_at=5,
        first=2,
        start="batch=3",
        available_now=True,
        command="c",
        limits=Limits(rows=7),
        answered=(Answered(id="c", verb="start", generation=2),),
        generation=3,
        phase=Phase.BACKOFF,
        until=9,
        driver=DriverSlot(generation=3, at=8, host="h", handle={"host": "h", "pid": 1, "start": "2"}),
        failures=(1, 2),
        version="abc",
    )
    store = MemoryStore()
    assert of(store).update(lambda stream: (full, stream)) == (full, Stream())
    assert (of(store).newest(), of(store).number(), of(store).history()) == (full, 0, [(0, full)])


def test_what_nobody_asks_for_is_not_in_a_record():
    """A driver of an older version reads such a record: it refuses fields that it does not know."""
    store = MemoryStore()
    of(store).update(lambda _: (Stream(note="a", checks={"c": 7}), None))
    assert control(store).newest().body["checks"] == {"c": 7}
    of(store).update(lambda stream: (stream.having(checks={}), None))
    assert {"saves", "unsaves", "checks", "options"} & set(control(store).newest().body) == set()


def test_no_change_writes_nothing():
    """What is told beside it is returned all the same."""
    store = MemoryStore()
    of(store).update(noting("a"))
    stands = of(store).newest()
    assert of(store).update(lambda stream: (stream, "told")) == (stands, "told")
    assert of(store).number() == 0


def test_a_change_that_is_refused_writes_nothing():
    """The error of the one who decides comes through."""
    store = MemoryStore()

    def refuse(stream):
        raise LookupError

    with pytest.raises(LookupError):
        of(store).update(refuse)
    assert store.list("") == []


@pytest.mark.fault("F07")
def test_who_was_slower_decides_anew_from_what_the_other_wrote():
    """Its first decision is dropped, and exactly one record is written by each."""
    store = MemoryStore()
    asked = []

    def slow(stream):
        if not asked:
            of(store).update(noting("the other's"))
        asked.append(stream.note)
        return stream.model_copy(update={"streak": 1}), None

    after, _ = of(store).update(slow)
    assert asked == [None, "the other's"]
    assert (after.note, after.streak, of(store).number()) == ("the other's", 1, 1)


@pytest.mark.fault("F07")
def test_a_record_that_comes_between_the_two_looks_is_not_written_over():
    """The number is read first: a newer record than that number makes the writer look again."""
    store = MemoryStore()
    mine = of(store)
    newest, calls = mine.newest, []

    def late():
        if not calls:
            of(store).update(noting("between"))
        calls.append(1)
        return newest()

    mine.newest = late
    after, note = mine.update(noting("mine"))
    assert (note, after.note, len(calls)) == ("between", "mine", 2)
    assert [stream.note for _, stream in of(store).history()] == ["between", "mine"]


@pytest.mark.fault("F07")
def test_changes_made_at_once_are_all_made_and_each_follows_from_another():
    """Four who count up come to the sum of their counts, and none is told the same number."""
    store = MemoryStore()
    start = threading.Barrier(4)

    def count(_):
        start.wait()
        return [of(store).update(counting)[1] for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        streaks = [number for part in pool.map(count, range(4)) for number in part]
    assert sorted(streaks) == list(range(80))
    assert (of(store).newest().streak, of(store).number()) == (80, 79)


def test_whoever_is_always_beaten_is_told_that_nothing_is_known():
    """It does not try for ever."""
    store = MemoryStore()

    def beaten(stream):
        of(store).update(counting)
        return stream.model_copy(update={"note": "mine"}), None

    with pytest.raises(CommitUnknown):
        of(store).update(beaten)
    assert of(store).newest().note is None


def test_a_record_is_replaced_only_while_it_stands():
    """Who decided on what no longer stands is told so, and has changed nothing."""
    store = MemoryStore()
    before, _ = of(store).update(noting("a"))
    after = before.model_copy(update={"note": "b"})
    assert of(store).replace(before, after) is True
    assert of(store).replace(before, before.model_copy(update={"note": "c"})) is False
    assert (of(store).newest(), of(store).number()) == (after, 1)


@pytest.mark.fault("F07")
def test_of_two_who_replace_the_same_record_one_does():
    """Each starts a driver only where it was the one."""
    store = MemoryStore()
    for round_ in range(20):
        before, start = of(store).newest(), threading.Barrier(2)

        def replace(note, before=before, start=start):
            start.wait()
            return of(store).replace(before, before.model_copy(update={"note": note}))

        with ThreadPoolExecutor(2) as pool:
            won = list(pool.map(replace, [f"{round_} a", f"{round_} b"]))
        assert sorted(won) == [False, True]
        assert of(store).newest().note == f"{round_} {'ab'[won.index(True)]}"
    assert of(store).number() == 19


@pytest.mark.fault("F13", "F49")
def test_a_damaged_newest_record_is_passed_over():
    """The one before it is in force, and the next is written after the damaged one."""
    store = MemoryStore()
    for note in "abc":
        of(store).update(noting(note))
    damage(store, 2)
    assert of(store).newest().note == "b"
    assert of(store).number() == 2
    assert of(store).update(noting("d"))[1] == "b"
    assert [(number, stream.note) for number, stream in of(store).history()] == [(0, "a"), (1, "b"), (3, "d")]


@pytest.mark.fault("F23")
def test_a_change_whose_acknowledgement_was_lost_counts_as_made():
    """At whichever of the writes: it is made once, and its writer is told what it decided."""
    for at in range(1, 6):
        inner = MemoryStore()
        store = FaultyStore(inner, Plan(Fault.AFTER, at=at))
        assert [of(store).update(counting)[1] for _ in range(5)] == [0, 1, 2, 3, 4]
        assert (store.fired, of(inner).number()) == (True, 4)


@pytest.mark.fault("F13", "F23")
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.TORN], ids=lambda fault: fault.value)
def test_at_whichever_call_storage_fails_a_change_is_made_once_or_not_at_all(fault):
    """What its writer was told is made; what raised may be made, once, and the next change follows from it."""
    at, fired = 0, True
    while fired:
        at += 1
        inner, made, failed = MemoryStore(), 0, 0
        store = FaultyStore(inner, Plan(fault, at=at))
        for _ in range(4):
            try:
                of(store).update(counting)
            except (StorageUnavailable, CommitUnknown):
                failed += 1
            else:
                made += 1
        fired = store.fired
        assert made <= of(inner).newest().streak <= made + failed <= 4
    assert at > 3


@pytest.mark.fault("F23")
def test_storage_that_fails_after_the_write_leaves_no_doubt_unsaid():
    """StorageUnavailable means that nothing was changed; else it is CommitUnknown, at whichever call it fails."""
    at, fired = 0, True
    while fired:
        at += 1
        inner = MemoryStore()
        store = FaultyStore(inner, Plan(Fault.BEFORE, at=at, lasting=Lasting.FROM_THEN_ON))
        try:
            of(store).update(counting)
        except StorageUnavailable:
            assert of(inner).newest().streak == 0
        except CommitUnknown:
            pass
        fired = store.fired


@pytest.mark.fault("F23")
def test_a_change_is_made_though_tidying_up_after_it_fails():
    """Old records that cannot be deleted now are deleted another time."""
    inner = MemoryStore()
    for _ in range(100):
        of(inner).update(counting)

    class NoListing(FaultyStore):
        def list(self, prefix):
            raise StorageUnavailable("no answer", where=prefix)

    assert of(NoListing(inner)).update(counting)[1] == 100
    assert of(inner).newest().streak == 101


def test_pruning_keeps_the_last_hundred_and_the_newest():
    """After 300 changes few older ones are left, and the history is in order."""
    store = MemoryStore()
    for _ in range(300):
        of(store).update(counting)
    history = of(store).history()
    assert (of(store).newest().streak, of(store).number(), of(store).update(counting)[1]) == (300, 299, 300)
    assert [(number, stream.streak) for number, stream in history[-100:]] == [(n, n + 1) for n in range(200, 300)]
    assert [number for number, _ in history] == sorted(number for number, _ in history)
    assert len(history) < 210


@pytest.mark.fault("F21", "F49")
@pytest.mark.parametrize(
    "body",
    [{"wish": "FLY"}, {"later": 1}, {"generation": "1"}, {"limits": {"later": 1}}],
    ids=["value", "field", "type", "limit"],
)
def test_a_record_that_is_whole_and_no_streams_is_named(body):
    """It was meant, perhaps by a later Penstock: it is not passed over in silence."""
    store = MemoryStore()
    Records(store, "streams", "flights").put(body)
    with pytest.raises(CheckpointCorrupt, match=path(0)):
        of(store).newest()


def test_jobs_are_those_that_have_records():
    """Sorted, each once; what else lies in the control root is none."""
    store = MemoryStore()
    assert supervised_jobs(store) == []
    for job in ("flights", "arrivals", "flights"):
        StreamRecords(store, job).update(counting)
    Records(store, "status", "departures").put({})
    LeaseWatch(store, writer="a", place="h:1", patience=PATIENCE).hold(wall=0, monotonic=0.0)
    assert supervised_jobs(store) == ["arrivals", "flights"]


def test_what_older_drivers_do_not_know_is_said_only_where_it_means_something():
    """They would take the record for damage, and hear of no order any more."""
    store = MemoryStore()
    options = StartOptions(partitions=2, state={"a": "t"}, truncate_sinks=True, drop=("x",))
    for number, asked_options in enumerate([None, options, None]):
        of(store).update(lambda stream, n=number, o=asked_options: (stream.having(note=str(n), options=o), None))
        assert of(store).newest().options == asked_options
        newest = control(store).newest()
        assert newest is not None
        assert ("options" in newest.body, "saves" in newest.body) == (asked_options is not None, False)
