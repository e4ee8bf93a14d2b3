"""What travels between the Python stages of a batch arrives whole and in one order (decision 0002)."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime import rows as rows_module
from penstock.runtime.rows import CARRIER, RECEIPT, Emitter, Item, receipt, receipts_of, split_carriers

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])


def rows_of(*values: int) -> pa.Table:
    """Return rows of COLUMNS."""
    return pa.table([[f"k{v}" for v in values], list(values)], schema=COLUMNS)


def emitted(emitter: Emitter, items: list[Item], partition: int = 0) -> pa.Table:
    """Return what a task sends, as one table of the stage's output schema."""
    return pa.Table.from_batches(list(emitter.emit(items, partition)), schema=emitter.schema)


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
    sent = emitted(Emitter(stage=0), [receipt("read", rows={"0": 3}), Item("p", rows_of(1), 0), receipt("x", n=None)])
    found = receipts_of(zip(sent["_port"].to_pylist(), sent["_payload"].to_pylist(), strict=True))
    assert list(found) == [{"kind": "read", "rows": {"0": 3}}, {"kind": "x", "n": None}]


def test_no_items_no_rows() -> None:
    """A task with nothing to say sends no batch."""
    assert list(Emitter(stage=0).emit([], 3)) == []
    assert emitted(Emitter(stage=0), [Item("p", rows_of(), 0)]).num_rows == 0


def test_a_receipt_goes_to_a_partition_that_exists() -> None:
    """A receipt rides the next shuffle: its partition is one of that shuffle's."""
    emitter = Emitter(stage=0, home=3)
    assert [emitted(emitter, [receipt("x")], p)["_pid"].to_pylist() for p in range(5)] == [[0], [1], [2], [0], [1]]


@settings(max_examples=50)
@given(st.permutations([(stage, partition) for stage in range(3) for partition in range(3)]))
def test_the_order_of_payloads_does_not_depend_on_who_came_first(arrived: list[tuple[int, int]]) -> None:
    """SEMANTICS 1.6: by stage, task and place in the task, however the tables arrive after a shuffle."""
    parts = {
        (stage, partition): emitted(
            Emitter(stage=stage), [Item("p", rows_of(100 * stage + 10 * partition + i), 0) for i in range(3)], partition
        )
        for stage, partition in arrived
    }
    carriers, rest = split_carriers(pa.concat_tables(parts[key] for key in arrived))
    found = [unpacked(p)["v"][0].as_py() for p in carriers["_payload"].to_pylist()]
    assert found == [100 * s + 10 * p + i for s, p, i in itertools.product(range(3), range(3), range(3))]
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
    assert sent.schema.names == [*CARRIER.names, *COLUMNS.names]
    carriers, rows = split_carriers(sent)
    assert rows.to_pylist() == [{"k": "k1", "v": 1}, {"k": "k2", "v": 2}]
    assert carriers["_port"].to_pylist() == ["b", RECEIPT]


def test_a_lane_takes_its_columns_in_its_own_order_and_types() -> None:
    """The rows of a port may carry more columns than the hop reads."""
    wide = pa.table({"more": [True], "v": pa.array([1], pa.int32()), "k": ["x"]})
    assert split_carriers(emitted(LANE, [Item("a", wide)]))[1].to_pylist() == [{"k": "x", "v": 1}]


def test_payloads_of_earlier_stages_pass_through_and_those_of_the_lane_are_opened() -> None:
    """Rows for a later hop wait as payloads; when the hop is next they become its columns."""
    earlier = emitted(Emitter(stage=0, home=2), [Item("a", rows_of(1), 0), Item("b", rows_of(2), 1), receipt("x")])
    passed = pa.Table.from_batches(list(LANE.forward(earlier)), schema=LANE.schema)
    carriers, rows = split_carriers(passed)
    assert rows.to_pylist() == [{"k": "k1", "v": 1}]
    assert carriers.to_pylist() == [r for r in earlier.to_pylist() if r["_port"] != "a"]


def test_without_a_lane_everything_passes_as_it_is() -> None:
    """A stage that no hop follows forwards what it does not own, in its order."""
    earlier = emitted(Emitter(stage=0), [Item("a", rows_of(1), 0), receipt("x")])
    assert pa.Table.from_batches(list(Emitter(stage=1).forward(earlier))).equals(earlier)
