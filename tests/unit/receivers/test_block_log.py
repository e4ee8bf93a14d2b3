"""What a receiver has acknowledged is in the chain once, whatever crashes, and whoever wakes late (F47, FAULTS 4.1).

Rows are numbers, and a block has one. The world has writers of all epochs, of which any may write at any time, and one
reader with committed positions.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from examples import examples
from faulty_store import Fault, FaultyStore, Lasting, Plan
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.locate import root_of, store_at
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import BlocksGone, CheckpointCorrupt, EpochSealed, PenstockError, StorageUnavailable
from penstock.receivers.block_log import BEGINNING, QUIET, BlockChain, BlockLog, BlockWriter
from penstock.receivers.blocks import Place, encoded, rows_in
from tools.hdfs_server import HdfsServer

NAME = "orders-0"
AT_THE_SEAL = 2
"""The call by which a first start creates its seal: before it the folder of its epoch is begun."""


def stream(row: int) -> bytes:
    """Return a block's rows: one number."""
    return encoded(pa.table({"k": [row]}))


def kept(store: CheckpointStore, start: Place = BEGINNING) -> list[int]:
    """Return the rows that the chain has from a place on."""
    log = BlockLog(store, NAME)
    rows: list[int] = []
    for place, _ in log.follow(start):
        path = log.path(place)
        rows += rows_in(store.read(path), receiver=NAME, place=place, path=path)["k"].to_pylist()
    return rows


def started(store: CheckpointStore, known: Place = BEGINNING) -> BlockWriter:
    """Start a receiver: the epoch before it is sealed."""
    log = BlockLog(store, NAME)
    return BlockWriter(log, log.end_epochs(known))


class Crash(BaseException):
    """The process is gone."""


@dataclass
class World:
    """A store, the writers that were started on it, and what they have acknowledged."""

    store: CheckpointStore
    writers: list[BlockWriter] = field(default_factory=list)
    sent: int = 0
    acknowledged: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    positions: list[Place] = field(default_factory=lambda: [BEGINNING])

    def start(self) -> None:
        """Start a receiver, by a driver that knows the newest position."""
        self.writers.append(started(self.store, self.positions[-1]))

    def start_anew(self) -> None:
        """Start a receiver, by a driver that has read no position yet."""
        self.writers.append(started(self.store, BlockLog(self.store, NAME).first()))

    def write(self, which: int) -> None:
        """Have any writer that was ever started write a row; it tells its sender what it tells."""
        if self.writers:
            row, self.sent = self.sent, self.sent + 1
            try:
                self.writers[which % len(self.writers)].write(stream(row), 1)
            except (EpochSealed, CheckpointCorrupt):
                return
            self.acknowledged.append(row)

    def stop(self, which: int) -> None:
        """Have any writer that was ever started end its epoch."""
        if self.writers:
            self.writers[which % len(self.writers)].seal()

    def batch(self) -> None:
        """Read what is there, and commit."""
        log = BlockLog(self.store, NAME)
        cursor = log.follow(self.positions[-1])
        rows = []
        for place, _ in cursor:
            path = log.path(place)
            rows += rows_in(self.store.read(path), receiver=NAME, place=place, path=path)["k"].to_pylist()
        self.read += rows
        self.positions.append(cursor.place)

    def sweep(self, back: int) -> None:
        """Delete what no position needs that is not older than so many."""
        BlockLog(self.store, NAME).sweep(self.positions[-min(back, len(self.positions))])

    def check(self) -> None:
        """Compare with the model: what was acknowledged was read once, in the order of the acknowledgements."""
        assert len(self.read) == len(set(self.read)), "a row was read twice"
        assert [row for row in self.read if row in set(self.acknowledged)] == self.acknowledged
        assert set(self.read) <= set(range(self.sent))


STEP = st.one_of(
    st.just(("start", 0)),
    st.just(("start_anew", 0)),
    st.tuples(st.just("write"), st.integers(0, 5)),
    st.tuples(st.just("stop"), st.integers(0, 5)),
    st.just(("batch", 0)),
    st.tuples(st.just("sweep"), st.integers(1, 3)),
)
FAULTS = [Fault.BEFORE, Fault.AFTER, Fault.FULL]


def play(world: World, steps: list[tuple[str, int]]) -> None:
    """Run the steps; what crashes, or gets no answer, is left as it is."""
    for name, number in steps:
        try:
            getattr(world, name)(*([number] if name in {"write", "stop", "sweep"} else []))
        except BlocksGone:
            raise  # nothing is gone here, whatever crashes
        except (Crash, PenstockError):
            continue


@pytest.mark.fault("F47")
@given(
    steps=st.lists(STEP, max_size=25),
    fault=st.sampled_from(FAULTS),
    at=st.integers(1, 40),
    error=st.sampled_from([Crash, StorageUnavailable]),
    lasting=st.sampled_from(Lasting),
)
@settings(max_examples=examples(200))
def test_what_was_acknowledged_is_read_once(
    steps: list[tuple[str, int]], fault: Fault, at: int, error: type[BaseException], lasting: Lasting
) -> None:
    """Whatever the order of starts, writes and ends of any epoch, batches and sweeps, and whichever call fails.

    A writer may write a second row after an error: where the first one is there, it never acknowledges.
    """
    inner = MemoryStore()
    world = World(FaultyStore(inner, Plan(fault, at, lasting, error)))
    play(world, steps)
    world.store = inner
    world.batch()
    world.check()


SCRIPT = [
    ("start", 0), ("write", 0), ("write", 0), ("batch", 0), ("write", 0), ("start", 0), ("write", 0), ("write", 1),
    ("batch", 0), ("sweep", 2), ("write", 1), ("start", 0), ("write", 1), ("write", 2), ("sweep", 1), ("batch", 0),
    ("write", 0), ("write", 2), ("stop", 2), ("start", 0), ("sweep", 1), ("write", 3), ("stop", 3), ("start_anew", 0),
    ("write", 4),
]  # fmt: skip


@pytest.mark.fault("F47")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_a_crash_at_each_call_of_the_store_loses_nothing(fault: Fault) -> None:
    """One call after the other, until the script ends with none struck."""
    for at in range(1, 1_000):
        inner = MemoryStore()
        faulty = FaultyStore(inner, Plan(fault, at, error=Crash))
        world = World(faulty)
        play(world, SCRIPT)
        world.store = inner
        world.batch()
        world.check()
        if not faulty.fired:
            assert at > 5
            return
    raise AssertionError("the script does not end")


def test_a_writer_that_wakes_late_is_refused() -> None:
    """Its block would follow the seal, where no reader comes by."""
    store = MemoryStore()
    old = started(store)
    old.write(stream(1), 1)
    new = started(store)
    with pytest.raises(EpochSealed):
        old.write(stream(2), 1)
    new.write(stream(3), 1)
    with pytest.raises(EpochSealed):
        old.write(stream(4), 1)
    assert kept(store) == [1, 3]


@pytest.mark.remedy("PEN-SRC-030")
def test_rows_of_a_sealed_epoch_are_kept_when_they_are_sent_again() -> None:
    """By the receiver that was started since; they are there once."""
    store = MemoryStore()
    old, new = started(store), started(store)
    with pytest.raises(EpochSealed):
        old.write(stream(1), 1)
    new.write(stream(1), 1)
    assert kept(store) == [1]


def test_a_seal_and_a_block_race_for_one_number() -> None:
    """A block that came first is passed, and is in the chain; the seal has the number after it."""
    inner = MemoryStore()
    first = started(inner)

    def rival(store: CheckpointStore, path: str, data: bytes) -> None:
        first.write(stream(1), 1)

    new = started(FaultyStore(inner, Plan(Fault.DELAYED, at=AT_THE_SEAL, rival=rival)))
    assert new.place == Place(2, 1)
    assert kept(inner) == [1]
    with pytest.raises(EpochSealed):
        first.write(stream(2), 1)


def test_of_two_starters_at_once_each_has_an_epoch_of_its_own() -> None:
    """The one that seals last writes last; the other one's receiver is refused."""
    inner = MemoryStore()
    others: list[BlockWriter] = []

    def rival(store: CheckpointStore, path: str, data: bytes) -> None:
        others.append(started(inner))

    mine = started(FaultyStore(inner, Plan(Fault.DELAYED, at=AT_THE_SEAL, rival=rival)))
    (other,) = others
    assert mine.place.epoch > other.place.epoch
    mine.write(stream(1), 1)
    with pytest.raises(EpochSealed):
        other.write(stream(2), 1)
    assert kept(inner) == [1]


@pytest.mark.fault("F23", "F47")
def test_a_block_whose_answer_was_lost_is_written_once() -> None:
    """The caller writes the same rows again, and finds its own block."""
    store = FaultyStore(MemoryStore(), Plan(Fault.AFTER, at=AT_THE_SEAL + 1))
    writer = started(store)
    assert writer.write(stream(1), 1) == Place(1, 0)
    assert writer.write(stream(2), 1) == Place(1, 1)
    assert kept(store.inner) == [1, 2]


@pytest.mark.fault("F25", "F47")
def test_a_store_that_is_away_keeps_the_number_for_the_same_rows() -> None:
    """SPARK-4707: what could not be written is written later, and not passed over."""
    inner = MemoryStore()
    writer = started(inner)
    writer.log = BlockLog(FaultyStore(inner, Plan(Fault.BEFORE, at=1, lasting=Lasting.FROM_THEN_ON)), NAME)
    with pytest.raises(PenstockError):
        writer.write(stream(1), 1)
    writer.log = BlockLog(inner, NAME)
    assert writer.write(stream(1), 1) == Place(1, 0)


@pytest.mark.fault("F23", "F47")
def test_other_rows_never_take_a_number_whose_outcome_is_unknown() -> None:
    """The first block may have been read and deleted: in its hole the other rows would be acknowledged, and lost."""
    inner = MemoryStore()
    writer = started(inner)
    writer.log = BlockLog(FaultyStore(inner, Plan(Fault.AFTER, at=1, error=Crash)), NAME)
    with pytest.raises(Crash):
        writer.write(stream(1), 1)
    assert kept(inner) == [1]
    started(inner)
    BlockLog(inner, NAME).sweep(Place(2, 1))
    with pytest.raises(EpochSealed):
        writer.write(stream(2), 1)
    writer.seal()
    assert BlockLog(inner, NAME).listed() == [Place(0, 0), Place(1, 1)]


def test_seals_stay_when_blocks_go() -> None:
    """Else a writer of long ago would find its next number free, and acknowledge what nobody reads."""
    store = MemoryStore()
    world = World(store)
    for _ in range(3):
        world.start()
        world.write(len(world.writers) - 1)
        world.write(len(world.writers) - 1)
    world.batch()
    log = BlockLog(store, NAME)
    assert log.sweep(world.positions[-1]) == 5
    assert log.listed() == [Place(0, 0), Place(1, 2), Place(2, 4), Place(3, 5)]
    for which in range(3):
        world.write(which)
    assert world.acknowledged == [0, 1, 2, 3, 4, 5, 8]
    world.batch()
    world.check()


def test_the_chain_begins_with_the_oldest_block_that_is_kept() -> None:
    """For a job that begins with nothing: at the beginning, at a block, or at the end."""
    store = MemoryStore()
    log, world = BlockLog(store, NAME), World(store)
    assert log.first() == BEGINNING
    world.start()
    assert log.first() == Place(1, 0)
    for _ in range(2):
        world.write(-1)
    world.batch()
    world.start()
    world.write(-1)
    assert log.first() == Place(1, 0)
    log.sweep(Place(1, 1))
    assert log.first() == Place(1, 1)
    log.sweep(world.positions[-1])
    assert log.first() == Place(2, 2)
    world.batch()
    log.sweep(world.positions[-1])
    assert log.first() == Place(2, 2), "the newest block"
    world.start()
    log.sweep(world.positions[-1])
    assert log.first() == Place(3, 3)


@pytest.mark.fault("F47", "F72")
def test_who_knows_no_position_seals_after_the_newest_block() -> None:
    """Receivers may start before a batch is planned; a seal further ahead leaves the old writer what nobody reads."""
    store = MemoryStore()
    log, world = BlockLog(store, NAME), World(store)
    world.start()
    for _ in range(3):
        world.write(-1)
    world.batch()
    log.sweep(world.positions[-1])
    writer = BlockWriter(log, log.end_epochs(log.first()))
    assert writer.place == Place(2, 3)
    world.write(0)
    writer.write(stream(3), 1)
    assert world.acknowledged == [0, 1, 2]
    world.batch()
    assert world.read == [0, 1, 2, 3]


@pytest.mark.remedy("PEN-SRC-031")
def test_a_hole_is_named_and_never_taken_for_the_end() -> None:
    """F18: a folder of blocks that was deleted in part; with the files put back the chain is whole."""
    store = MemoryStore()
    world = World(store)
    world.start()
    world.write(0)
    world.write(0)
    log = BlockLog(store, NAME)
    log.refuse_hole(Place(1, 2))
    gone = store.read(log.path(Place(1, 0)))
    store.delete(log.path(Place(1, 0)))
    with pytest.raises(BlocksGone):
        log.refuse_hole(Place(1, 0))
    with pytest.raises(BlocksGone):
        log.end_epochs(Place(1, 0))
    assert log.first() == Place(1, 1)
    store.create(log.path(Place(1, 0)), gone)
    assert log.end_epochs(Place(1, 0)) == Place(2, 2)
    assert kept(store) == [0, 1]


def twice_started() -> BlockLog:
    """Return the blocks of a receiver: two of epoch 1, and two of epoch 2, of which none is swept."""
    world = World(MemoryStore())
    for _ in range(2):
        world.start()
        world.write(-1)
        world.write(-1)
    return BlockLog(world.store, NAME)


def delete_epochs(log: BlockLog, *epochs: int) -> dict[str, bytes]:
    """Delete the folders of epochs, and return the files that they had."""
    folders = tuple(f"blocks/{NAME}/{epoch:06}/" for epoch in epochs)
    gone = {path: log.store.read(path) for path in log.store.list(f"blocks/{NAME}") if path.startswith(folders)}
    for path in gone:
        log.store.delete(path)
    return gone


@pytest.mark.remedy("PEN-SRC-031")
@pytest.mark.fault("F18", "F47")
@pytest.mark.parametrize("epochs", [(2,), (1,), (0, 1), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("known", [None, Place(1, 0), Place(2, 2)], ids=str)
def test_whole_epochs_that_are_gone_before_they_were_read_are_named(
    epochs: tuple[int, ...], known: Place | None
) -> None:
    """Nothing in the chain followed the newest one, and a job without a position began after the oldest one.

    With the files put back the chain is whole.
    """
    log = twice_started()
    gone = delete_epochs(log, *epochs)
    begin = log.first() if known is None else known
    if known is None and epochs == (0, 1, 2):
        assert begin == BEGINNING, "a receiver that never ran has no files either"
    elif known is not None and max(epochs) < known.epoch:  # all that is gone was read
        assert [place.number for place, _ in BlockChain.opened(log, begin).blocks] == [2, 3]
    else:
        with pytest.raises(BlocksGone, match="gone"):
            BlockChain.opened(log, begin)
        with pytest.raises(BlocksGone, match="gone"):
            log.end_epochs(begin)
    for path, data in gone.items():
        log.store.create(path, data)
    assert log.end_epochs(BEGINNING) == Place(3, 4)
    assert kept(log.store) == [0, 1, 2, 3]


@pytest.mark.fault("F18", "F47")
def test_a_job_that_runs_names_an_epoch_that_is_gone() -> None:
    """After as many looks that found nothing as with a block in the middle."""
    log = twice_started()
    chain = BlockChain.opened(log, Place(2, 2))
    delete_epochs(log, 2)
    for _ in range(QUIET - 1):
        chain.grow()
    with pytest.raises(BlocksGone, match="folder of epoch 2"):
        chain.grow()


def test_seals_of_an_older_version_do_not_say_that_an_epoch_was_begun() -> None:
    """Which none was then, so its folder is missed by nobody; the next start begins one."""
    log = twice_started()
    delete_epochs(log, 2)
    old = log.path(Place(1, 2))
    log.store.delete(old)
    facts = {"receiver": NAME, "epoch": 1, "number": 2, "writer": "w"}
    log.store.create(old, fileformat.encode("seal", facts, version=1))
    assert [place.number for place, _ in BlockChain.opened(log, BEGINNING).blocks] == [0, 1]
    assert log.end_epochs(BEGINNING) == Place(3, 2)
    delete_epochs(log, 3)
    with pytest.raises(BlocksGone, match="folder of epoch 3"):
        log.refuse_hole(Place(3, 2))


def test_receivers_share_a_store_and_nothing_else() -> None:
    """`orders-1` is no part of `orders-10`."""
    store = MemoryStore()
    one, ten = BlockLog(store, "orders-1"), BlockLog(store, "orders-10")
    BlockWriter(ten, ten.end_epochs(BEGINNING)).write(stream(1), 1)
    assert one.listed() == []
    assert one.end_epochs(BEGINNING) == Place(1, 0)


def test_a_name_that_is_no_place_is_passed_over() -> None:
    """A listing may show what somebody has put there."""
    store = MemoryStore()
    store.create(f"blocks/{NAME}/notes", b"x")
    assert BlockLog(store, NAME).listed() == []


# --- on HDFS -----------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.sample(seconds=25)
@pytest.mark.fault("F47")
def test_blocks_on_hdfs_are_a_chain_and_have_the_copies_that_were_wanted(hdfs: HdfsServer) -> None:
    """A writer that was sealed off is refused, and its rows from before are read; other files have HDFS's copies."""
    root = hdfs.url(secrets.token_hex(8))
    folder = root_of(root)
    store = folder.store()
    log = BlockLog(store, NAME)
    old = BlockWriter(BlockLog(store_at(folder.address, replication=2), NAME), log.end_epochs(BEGINNING))
    for row in range(3):
        old.write(stream(row), 1)
    new = BlockWriter(log, log.end_epochs(BEGINNING))
    with pytest.raises(EpochSealed):
        old.write(stream(99), 1)
    new.write(stream(3), 1)
    assert kept(store) == [0, 1, 2, 3]
    top = f"/checkpoints/{root.rpartition('/')[2]}"
    copies = [hdfs.client().status(f"{top}/{log.path(place)}")["replication"] for place in log.listed()]
    usual = copies[0]  # of a seal
    assert usual != 2
    assert copies == [usual, 2, 2, 2, usual, usual]
    assert log.sweep(Place(2, 3)) == 3
    assert kept(store, Place(1, 3)) == [3]
