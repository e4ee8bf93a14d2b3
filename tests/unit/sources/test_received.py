"""What receivers have kept is read block by block, and exactly as often as the log says (SEMANTICS 9.1, F47)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pushing import Counting
from received_blocks import SCHEMA, Pushed, write
from source_reading import end_of_batch

from penstock import millis
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.errors import BlocksGone, ConfigError
from penstock.receivers import Receiver
from penstock.receivers.block_log import BEGINNING, QUIET, BlockWriter
from penstock.receivers.blocks import Place
from penstock.receivers.hole_closing import close_holes
from penstock.sources import Receive
from penstock.sources.backlog import ReadLimit
from penstock.sources.base import ERROR, POSITION, RAW, SourceReader
from penstock.sources.received import Encode
from penstock.testing.source_contract import Feed, Grow, SourceContract, read, spans


class TestReceivedBlocks(SourceContract):
    """Two receivers that start again now and then; blocks of one row, because a batch takes them whole."""

    @pytest.fixture
    def feed(self, tmp_path: Path) -> Feed:
        def make(rows: int) -> SourceReader:
            makes = getattr(self, "makes", 0) + 1
            self.makes = makes
            self.pushed = Pushed(tmp_path / f"job{makes}", a_block=1)
            self.pushed.add(rows)
            return self.pushed.reader()

        return make

    @pytest.fixture
    def grow(self) -> Grow:
        return lambda reader, rows: self.pushed.add(rows)


def test_a_batch_takes_whole_blocks(tmp_path: Path) -> None:
    """However low the limit; a place is a block."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(8)
    reader = pushed.reader()
    end = end_of_batch(reader, None, ReadLimit(rows=3))
    assert reader.rows(reader.span(None, end)) == 2
    assert end == {"receivers": {"0": [1, 1]}}


def test_a_span_names_runs_of_blocks(tmp_path: Path) -> None:
    """It is small, whatever the number of blocks, and names the epochs."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(14)
    reader = pushed.reader()
    span = reader.span(None, end_of_batch(reader, None))
    assert span == {"receivers": ["0"], "blocks": {"0": [[1, 0, 4], [2, 4, 7]]}, "rows": 14}


def test_a_source_without_a_checkpoint_waits(tmp_path: Path) -> None:
    """`penstock diff` asks before the first start; nothing is made."""
    pushed = Pushed(tmp_path / "job")
    reader = pushed.reader()
    reader.keep_in(LocalFolder(tmp_path / "none"), "s")
    end = end_of_batch(reader, None)
    assert end == {"receivers": {"0": [0, 0], "1": [0, 0]}}
    assert end_of_batch(reader, end) == end
    assert not (tmp_path / "none").exists()
    assert reader.known(0, None) == BEGINNING
    assert not reader.ended(end)


def test_a_receiver_that_is_added_begins_with_its_first_block(tmp_path: Path) -> None:
    """The position before did not have it."""
    pushed = Pushed(tmp_path / "job")
    pushed.add(8)
    before = end_of_batch(pushed.reader(receivers=1), None)
    del before["receivers"]["1"]  # which had no block then
    reader = pushed.reader()
    rows = read(reader, reader.span(before, end_of_batch(reader, before)))["k"].to_pylist()
    assert sorted(rows) == [0, 1, 4, 5]


def test_a_receiver_that_is_taken_away_is_read_to_its_end(tmp_path: Path) -> None:
    """What it has acknowledged is read, and then it holds no watermark back (SEMANTICS 2.4)."""
    pushed = Pushed(tmp_path / "job")
    pushed.add(4)
    before = end_of_batch(pushed.reader(), None)
    pushed.add(4)
    reader = pushed.reader(receivers=1)
    assert reader.backlog(before).keys() == {"0", "1"}
    after = end_of_batch(reader, before)
    assert len(read(reader, reader.span(before, after))) == 4
    assert reader.backlog(after).keys() == {"0"}
    assert end_of_batch(reader, after) == after


@pytest.mark.fault("F47")
def test_blocks_of_a_receiver_that_was_dropped_are_read_from_a_position_before_them(tmp_path: Path) -> None:
    """10.1: a job restored to nothing, or to a batch before them, lost their rows in silence."""
    pushed = Pushed(tmp_path / "job", receivers=3)
    pushed.add(12)
    assert read(pushed.reader(), pushed.reader().span(None, end_of_batch(pushed.reader(), None))).num_rows == 12
    reader = pushed.reader(receivers=1)
    after = end_of_batch(reader, None)
    assert read(reader, reader.span(None, after)).num_rows == 12
    assert reader.backlog(after).keys() == {"0"}, "they run no more, so they hold no watermark back"
    before = {"receivers": {"0": after["receivers"]["0"]}}
    again = pushed.reader(receivers=1)
    assert read(again, again.span(before, end_of_batch(again, before))).num_rows == 8


def test_a_restore_reads_again_what_is_kept(tmp_path: Path) -> None:
    """SEMANTICS 10.1: an older position gives the rows after it, also to a reader that was beyond."""
    pushed = Pushed(tmp_path / "job")
    pushed.add(20)
    reader = pushed.reader()
    ranges = spans(reader, limit=4)
    first, last = ranges[1][1], ranges[-1][1]
    again = end_of_batch(reader, first)
    assert again == last
    assert read(reader, reader.span(first, again)).num_rows == 20 - 8


def test_blocks_go_when_no_position_needs_them(tmp_path: Path) -> None:
    """Neither a kept Commit nor a saved one; a job that begins with nothing reads what is left."""
    pushed = Pushed(tmp_path / "job")
    pushed.add(20)
    reader = pushed.reader()
    positions = [end for _, end in spans(reader, limit=4)]
    assert reader.sweep(positions) == 4 // 2
    assert reader.sweep([positions[2], positions[1]]) == 4 // 2
    assert reader.sweep([positions[2], {"receivers": {}}]) == 0
    assert reader.sweep([positions[2], {"topics": {}}]) == 0, "a source of Kafka had the name before"
    assert reader.sweep([]) == 0
    fresh = pushed.reader()
    assert read(fresh, fresh.span(None, end_of_batch(fresh, None))).num_rows == 12
    with pytest.raises(BlocksGone):
        pushed.reader().backlog(positions[0])


def test_what_went_before_a_beginning_is_passed_over(tmp_path: Path) -> None:
    """10.1: a job that begins anew reads the oldest block that is kept; the rows before come from nowhere else."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(14)
    reader = pushed.reader()
    whole = end_of_batch(reader, None)
    positions = read(reader, reader.span(None, whole))[POSITION].to_pylist()
    assert reader.passed_over(None, whole, reader.span(None, whole)) == {}
    half = {"receivers": {"0": [1, 3]}}
    pushed.started(0)
    for floor in (half, whole):
        reader.sweep([floor])
        again = pushed.reader()
        end = end_of_batch(again, None)
        span = again.span(None, end)
        left = read(again, span)[POSITION].to_pylist() if span["rows"] else []
        ((first, begun),) = again.passed_over(None, end, span)["0"]
        assert [at for at in positions if not first <= at < begun] == left
        assert again.passed_over(floor, end, again.span(floor, end)) == {}


@pytest.mark.fault("F18")
def test_a_block_that_is_deleted_under_a_running_job_is_named(tmp_path: Path) -> None:
    """The job waited for it for ever, and read nothing that was acknowledged after it."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(4)
    reader = pushed.reader()
    end = end_of_batch(reader, None)
    for _ in range(3 * QUIET):
        assert reader.backlog(end)["0"].rows == 0, "nothing has come, and nothing is gone"
    pushed.add(4)
    log = pushed.log(0)
    data = log.store.read(log.path(Place(1, 2)))
    log.store.delete(log.path(Place(1, 2)))
    with pytest.raises(BlocksGone, match="block 2 of epoch 1 is gone"):
        list(map(reader.backlog, [end] * QUIET))
    log.store.create(log.path(Place(1, 2)), data)
    assert reader.backlog(end)["0"].rows == 4


@pytest.mark.fault("F18")
def test_the_rows_of_a_lost_block_are_passed_over(tmp_path: Path) -> None:
    """10.1: so rows of it that are in the quarantine are sent from there, and all others are read."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(14)
    reader = pushed.reader()
    before = read(reader, reader.span(None, end_of_batch(reader, None)))
    log = pushed.log(0)
    log.store.delete(log.path(Place(1, 2)))
    assert close_holes(log) == 1
    again = pushed.reader()
    end = end_of_batch(again, None)
    span = again.span(None, end)
    ((first, after),) = again.passed_over(None, end, span)["0"]
    kept = [row for row in before.select(["k", POSITION]).to_pylist() if not first <= row[POSITION] < after]
    assert read(again, span).select(["k", POSITION]).to_pylist() == kept
    assert [row["k"] for row in kept] == [0, 1, 2, 3, *range(6, 14)]


@pytest.mark.fault("F18")
def test_a_block_of_a_fixed_batch_that_is_gone_is_named(tmp_path: Path) -> None:
    """Before the batch is computed again, and where it is planned."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(6)
    reader = pushed.reader()
    end = end_of_batch(reader, None)
    span = reader.span(None, end)
    log = pushed.log(0)
    log.store.delete(log.path(Place(1, 1)))
    with pytest.raises(BlocksGone, match="fixed"):
        reader.verify(span)
    with pytest.raises(BlocksGone):
        read(reader, span)
    with pytest.raises(BlocksGone):
        pushed.reader().span({"receivers": {"0": [1, 0]}}, end)
    with pytest.raises(BlocksGone):
        pushed.reader().backlog(None)


def test_what_waits_is_counted_in_rows_and_bytes(tmp_path: Path) -> None:
    """Limits of both kinds bound a batch, and too much holds senders up."""
    pushed = Pushed(tmp_path / "job", receivers=1)
    pushed.add(6)
    reader = pushed.reader()
    waiting = reader.backlog(None)["0"]
    assert (waiting.next, waiting.latest, waiting.rows) == (0, 3, 6)
    assert waiting.bytes == reader.waiting_bytes(0) > 300
    assert reader.waiting_bytes(1) == 0
    end = end_of_batch(reader, None)
    reader.backlog(end)
    assert reader.waiting_bytes(0) == 0
    assert reader.known(0, None) == Place(1, 3)


def test_an_order_says_where_a_receiver_writes(tmp_path: Path) -> None:
    """The supervisor sends it to the process."""
    order = Pushed(tmp_path / "job").reader().order(1, Place(3, 4), 10.0)
    assert (order.index, order.receivers, order.log, order.place) == (1, 2, "s-1", Place(3, 4))
    assert (order.rate, order.most, order.checkpoint) == (10.0, 1_000, str(tmp_path / "job"))
    assert order.replication == 2


# --- what is stored ----------------------------------------------------------------------------

TWO = pa.schema([("k", pa.int64()), ("s", pa.string())])


def test_rows_and_arrow_are_stored_alike() -> None:
    """One row, several, a table, a batch; a column that is left out is null."""
    encode = Encode(TWO)
    wanted = encode([{"k": 1, "s": "a"}])
    assert wanted.schema.names == ["k", "s", ERROR, RAW]
    assert encode({"k": 1, "s": "a"}).equals(wanted)
    table = pa.table({"s": ["a"], "k": pa.array([1], pa.int32())})
    assert encode(table).equals(wanted)
    assert encode(table.to_batches()[0]).equals(wanted)
    assert encode(table.select(["k"]))["s"].to_pylist() == [None]
    assert encode([]).num_rows == 0


def test_a_row_that_does_not_fit_is_a_bad_record_in_its_place() -> None:
    """SEMANTICS 9.3: the others of the call are none the worse."""
    stored = Encode(TWO)([{"k": 1}, {"k": "x"}, {"z": 1}])
    assert stored["k"].to_pylist() == [1, None, None]
    assert [bool(error) for error in stored[ERROR].to_pylist()] == [False, True, True]
    assert stored[RAW].to_pylist()[1] == '{"k": "x"}'
    bent = Encode(SCHEMA)(pa.table({"k": ["1", "x"]}))
    assert (bent["k"].to_pylist(), bent[ERROR].null_count) == ([1, None], 1)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([1], "not int"),
        ("ab", "not str"),
        (5, "not int"),
        (None, "not NoneType"),
        (pa.table({"z": [1]}), "a column 'z'"),
    ],
    ids=["no dicts", "a text", "a number", "nothing", "another column"],
)
def test_what_is_no_rows_is_an_error_of_the_receiver(rows: object, words: str) -> None:
    """It is code that is wrong, and not a sender."""
    with pytest.raises(TypeError, match=words):
        Encode(SCHEMA)(rows)  # type: ignore[arg-type]


# --- settings ----------------------------------------------------------------------------------


class Silent(Receiver):
    """A receiver that never begins."""


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"receivers": 0}, "receivers is 0"),
        ({"splits": 0}, "splits is 0"),
        ({"replication": 0}, "replication is 0"),
        ({"block_bytes": 2**27}, "67,108,864 bytes at most"),
        ({"block_interval": millis(0)}, "block_interval"),
        ({"block_interval": 5}, "block_interval"),
        ({"receiver": object()}, "no penstock.receivers.Receiver"),
        ({"receiver": int}, "no penstock.receivers.Receiver"),
        ({"receiver": Silent}, "a Silent, which lacks on_start"),
        ({"receiver": Silent()}, "a Silent, which lacks on_start"),
    ],
    ids=[
        "no receiver",
        "no task",
        "no copy",
        "large blocks",
        "no interval",
        "a number",
        "an object",
        "another class",
        "no start",
        "none to run",
    ],
)
def test_a_setting_that_no_receiver_can_have_is_refused(settings: dict, reason: str) -> None:
    """When the job is built."""
    with pytest.raises(ConfigError, match=reason):
        Receive(**{"receiver": Counting, "schema": "k long", **settings})


@pytest.mark.spark
def test_a_source_opens_with_its_columns(tmp_path: Path, spark: object) -> None:
    """DDL is Spark's."""
    reader = Receive(Counting(3), schema="k long", receivers=2).open(spark)
    assert reader.schema == SCHEMA
    assert reader.receiving.receivers == 2
    pushed = Pushed(tmp_path / "job", receivers=1)
    write(pushed.writers[0], [{"k": 7}])
    reader.keep_in(pushed.folder, "s")
    assert read(reader, reader.span(None, end_of_batch(reader, None)))["k"].to_pylist() == [7]


@pytest.mark.fault("F18", "F47")
@pytest.mark.parametrize("kept", [0, 3], ids=["all that was read", "the newest that was read"])
def test_a_start_seals_behind_what_batches_have_read(tmp_path: Path, kept: int) -> None:
    """After a kill, blocks that the log says are read may be gone: no number is given twice, and the job goes on."""
    pushed = Pushed(tmp_path / "job", receivers=1, a_block=1)
    pushed.add(4)
    position = end_of_batch(pushed.reader(), None)
    log = pushed.log(0)
    for number in range(kept, 4):
        log.store.delete(log.path(Place(1, number)))
    begin = log.end_epochs(pushed.reader().known(0, position))
    assert begin == Place(2, 4)
    write(BlockWriter(log, begin), [{"k": 4}])
    reader = pushed.reader()
    end = end_of_batch(reader, position)
    assert end == {"receivers": {"0": [2, 5]}}
    assert reader.rows(reader.span(position, end)) == 1


@pytest.mark.fault("F18", "F47")
def test_a_start_refuses_the_hole_of_a_block_that_no_batch_has_read(tmp_path: Path) -> None:
    """The log says what is read, and the blocks after it show that one is gone."""
    pushed = Pushed(tmp_path / "job", receivers=1, a_block=1)
    pushed.add(2)
    position = end_of_batch(pushed.reader(), None)
    pushed.add(2)
    log = pushed.log(0)
    log.store.delete(log.path(Place(1, 2)))
    with pytest.raises(BlocksGone):
        log.end_epochs(pushed.reader().known(0, position))
