"""What travels between the Python stages of a batch arrives whole and in one order (decision 0002)."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import AccountingBroken
from penstock.runtime.tasks import transport as rows_module
from penstock.runtime.tasks.transport import (
    BATCH_BYTES,
    ENVELOPE,
    RECEIPT,
    Carrier,
    Emitter,
    Item,
    cut,
    ran,
    receipt,
    receipts_of,
    split_carriers,
)

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])


def rows_of(*values: int) -> pa.Table:
    """Return rows of COLUMNS."""
    return pa.table([[f"k{v}" for v in values], list(values)], schema=COLUMNS)


def emitted(emitter: Emitter, items: list[Item], partition: int = 0) -> pa.Table:
    """Return what a task sends, as one table of the stage's output schema."""
    return pa.Table.from_batches(list(emitter.emit(items, partition)), schema=emitter.schema)


def split(sent: pa.Table) -> tuple[list[Carrier], pa.Table]:
    """Return the carriers and the rows as one table."""
    carriers, rows = split_carriers(sent.to_batches())
    return carriers, pa.Table.from_batches(
        rows, schema=pa.schema([f for f in sent.schema if f.name not in ENVELOPE.names])
    )


def unpacked(payload: bytes) -> pa.Table:
    """Return the rows of a payload."""
    return pa.ipc.open_stream(payload).read_all()


def test_a_payload_is_the_table_it_was() -> None:
    """Rows come back with their types and nulls; a slice of a table brings only its own rows."""
    table = pa.table([["a", None, "c", "d"], [1, 2, None, 4]], schema=COLUMNS)
    (sent,) = emitted(Emitter(stage=0), [Item("p", table.slice(1, 2), 0)]).to_pylist()
    assert unpacked(sent["_payload"]).to_pylist() == [{"k": None, "v": 2}, {"k": "c", "v": None}]
    assert unpacked(sent["_payload"]).schema == COLUMNS
    assert (sent["_pid"], sent["_port"]) == (0, "p")


def test_a_receipt_comes_back_as_it_was_said() -> None:
    """DESIGN 4: receipts and counts travel as rows of the job's result."""
    sent = emitted(Emitter(stage=0), [receipt("read", rows={"0": 3}), receipt("x", n=None)])
    receipts = receipts_of(zip(sent["_port"].to_pylist(), sent["_payload"].to_pylist(), strict=True), "a")
    assert list(receipts) == [{"kind": "read", "rows": {"0": 3}}, {"kind": "x", "n": None}]


def test_rows_that_no_stage_took_stop_the_batch() -> None:
    """What reaches the driver and is no receipt was lost on its way to a step."""
    sent = emitted(Emitter(stage=0), [receipt("x"), Item("step:w/0", rows_of(1), 0)])
    with pytest.raises(AccountingBroken, match="step:w/0"):
        list(receipts_of(zip(sent["_port"].to_pylist(), sent["_payload"].to_pylist(), strict=True), "a"))


def test_what_another_attempt_at_the_batch_has_sent_stops_it() -> None:
    """Decision 208: rows of a shuffle that ran before come with its receipt; those of this attempt say nothing more."""
    sent = emitted(Emitter(stage=0), [ran("a"), receipt("x"), ran("b")])
    rows = list(zip(sent["_port"].to_pylist(), sent["_payload"].to_pylist(), strict=True))
    assert list(receipts_of(rows[:2], "a")) == [{"kind": "x"}]
    with pytest.raises(AccountingBroken, match=r"run a, .* run b"):
        list(receipts_of(rows, "a"))


def test_no_items_no_rows() -> None:
    """A task with nothing to say sends no batch."""
    assert list(Emitter(stage=0).emit([], 3)) == []
    assert emitted(Emitter(stage=0), [Item("p", rows_of(), 0)]).num_rows == 0


def test_a_receipt_goes_to_a_partition_that_exists() -> None:
    """A receipt rides the next shuffle: its partition is one of that shuffle's."""
    emitter = Emitter(stage=0, home=3)
    assert [emitted(emitter, [receipt("x")], p)["_pid"].to_pylist() for p in range(5)] == [[0], [1], [2], [0], [1]]


@settings(max_examples=examples(20))
@given(st.permutations([(stage, partition) for stage in range(3) for partition in range(3)]))
def test_the_order_of_payloads_does_not_depend_on_who_came_first(arrived: list[tuple[int, int]]) -> None:
    """SEMANTICS 1.6: by stage, task and place in the task, however the tables arrive after a shuffle."""
    parts = {
        (stage, partition): emitted(
            Emitter(stage=stage), [Item("p", rows_of(100 * stage + 10 * partition + i), 0) for i in range(3)], partition
        )
        for stage, partition in arrived
    }
    carriers, rest = split(pa.concat_tables(parts[key] for key in arrived))
    payloads = [carrier.table()["v"][0].as_py() for carrier in carriers]
    assert payloads == [100 * s + 10 * p + i for s, p, i in itertools.product(range(3), range(3), range(3))]
    assert rest.num_rows == 0


@pytest.mark.parametrize("count", [1, 7, 1000, 1001])
def test_a_payload_above_the_bound_is_cut(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 4: Arrow and the JVM take no payload without bound; the pieces make the table, in its order."""
    monkeypatch.setattr(rows_module, "_MOST_BYTES", 1000)
    table = pa.table({"v": pa.array(range(count), pa.int64())})
    sent = emitted(Emitter(stage=0), [Item("p", table, 0)])
    pieces = [unpacked(p) for p in sent["_payload"].to_pylist()]
    assert pa.concat_tables(pieces).equals(table)
    assert max(p.nbytes for p in pieces) <= 1000
    assert len(pieces) == -(-count * 8 // 1000)
    assert sent["_order"].to_pylist() == sorted(sent["_order"].to_pylist())


def test_a_row_above_the_bound_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is never cut: a payload holds one at least."""
    monkeypatch.setattr(rows_module, "_MOST_BYTES", 10)
    sent = emitted(Emitter(stage=0), [Item("p", pa.table({"s": ["x" * 100, "y" * 100]}), 0)])
    assert [unpacked(p)["s"].to_pylist() for p in sent["_payload"].to_pylist()] == [["x" * 100], ["y" * 100]]


# --- lanes -----------------------------------------------------------------------------------

LANE = Emitter(stage=1, home=2, lane="a", columns=COLUMNS)


def test_the_rows_of_the_lane_become_columns_and_others_stay_payloads() -> None:
    """Only what Spark has to evaluate next travels as columns."""
    sent = emitted(LANE, [Item("a", rows_of(1, 2)), Item("b", rows_of(3), 1), receipt("x")])
    assert sent.schema.names == [*ENVELOPE.names, *COLUMNS.names]
    carriers, rows = split(sent)
    assert rows.to_pylist() == [{"k": "k1", "v": 1}, {"k": "k2", "v": 2}]
    assert [carrier.port for carrier in carriers] == ["b", RECEIPT]


def test_a_lane_takes_its_columns_in_its_own_order_and_types() -> None:
    """The rows of a port may carry more columns than the hop reads."""
    wide = pa.table({"more": [True], "v": pa.array([1], pa.int32()), "k": ["x"]})
    assert split(emitted(LANE, [Item("a", wide)]))[1].to_pylist() == [{"k": "x", "v": 1}]


def test_payloads_of_earlier_stages_pass_through_and_those_of_the_lane_are_opened() -> None:
    """Rows for a later hop wait as payloads; when the hop is next they become its columns."""
    earlier = emitted(Emitter(stage=0, home=2), [Item("a", rows_of(1), 0), Item("b", rows_of(2), 1), receipt("x")])
    passed = pa.Table.from_batches(list(LANE.forward(split(earlier)[0])), schema=LANE.schema)
    carriers, rows = split(passed)
    assert rows.to_pylist() == [{"k": "k1", "v": 1}]
    assert carriers == [c for c in split(earlier)[0] if c.port != "a"]


def test_what_a_task_has_sent_is_let_go_of() -> None:
    """Whether it made it or passed it on: a worker lives as long as its job, and would keep each batch."""
    emitter, table = Emitter(stage=0), rows_of(*range(20_000))
    before = pa.total_allocated_bytes()
    for _ in range(3):
        sent = emitted(emitter, [Item("p", table, pid=0), receipt("read", rows=1)])
        passed = list(emitter.forward(split(sent)[0]))
        assert pa.total_allocated_bytes() - before < 2 * table.nbytes, "that of the last round at most"
        del sent, passed
    assert pa.total_allocated_bytes() - before < table.nbytes


def test_without_a_lane_everything_passes_as_it_is() -> None:
    """A stage that no hop follows forwards what it does not own, in its order."""
    earlier = emitted(Emitter(stage=0), [Item("a", rows_of(1), 0), receipt("x")])
    assert pa.Table.from_batches(list(Emitter(stage=1).forward(split(earlier)[0]))).equals(earlier)


# --- more than an array of Arrow holds ---------------------------------------------------------

MANY = 33
LARGE = bytes(64 << 20)
"""33 of these are 2.06 GiB; they share their memory here, and are as many bytes to Arrow as if they did not."""


@pytest.mark.sample(seconds=3)
@pytest.mark.slow
@pytest.mark.fault("F75")
def test_a_task_sends_more_than_two_gib() -> None:
    """The carriers of a task are cut into batches, in their order; none is larger than the bound and one payload."""
    sent = Emitter(stage=0).emit((Item("p", LARGE, number) for number in range(MANY)), 0)
    batches = [(batch["_pid"].to_pylist(), batch["_payload"].nbytes) for batch in sent]
    assert [pid for pids, _ in batches for pid in pids] == list(range(MANY))
    assert max(size for _, size in batches) < BATCH_BYTES + len(LARGE)


@pytest.mark.sample(seconds=20)
@pytest.mark.slow
@pytest.mark.fault("F75")
def test_a_partition_takes_and_passes_on_more_than_two_gib() -> None:
    """Only the order of payloads is sorted: what comes in falling order leaves in rising order, cut again."""
    (four,) = Emitter(stage=0).emit((Item("p", LARGE, pid) for pid in range(4)), 0)
    at = four.schema.get_field_index("_order")
    arrived = (four.set_column(at, ENVELOPE.field("_order"), pa.array(range(n, n + 4))) for n in range(MANY, 0, -4))
    carriers, rows = split_carriers(arrived)
    assert (rows, sum(carrier.payload.size for carrier in carriers) > 2**31) == ([], True)
    orders = [order for batch in Emitter(stage=1).forward(carriers) for order in batch["_order"].to_pylist()]
    assert orders == sorted(orders)
    assert len(orders) == len(carriers) == MANY + 3


@pytest.mark.fault("F75")
@given(st.lists(st.integers(0, 40), max_size=6))
def test_the_rows_of_a_task_are_cut(counts: list[int]) -> None:
    """A task works on so many bytes at a time, whatever batches they came in; in its order, and each row once."""
    numbers = iter(range(1_000))
    given_rows = [pa.record_batch({"v": pa.array([next(numbers) for _ in range(n)], pa.int64())}) for n in counts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "BATCH_BYTES", 80)
        tables = list(cut(given_rows))
    assert [v for table in tables for v in table["v"].to_pylist()] == list(range(sum(counts)))
    assert all(table.nbytes <= 80 for table in tables)
    assert bool(tables) == bool(counts)
