"""A gate decides rule by rule and as a whole, and closes when it fails itself (SEMANTICS 11.1 to 11.4, 11.8)."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pytest

from penstock.errors import GateError
from penstock.quality import compile_suite, fails_mask, load_suite
from penstock.quality.compile import CompiledGate
from penstock.quality.measure import Partial
from penstock.quality.suite import Severity
from penstock.quality.verdict import Status

TYPES = {"whole": "bigint", "real": "double", "money": "decimal(20,2)", "text": "string", "at": "timestamp"}
ARROW = {
    "whole": pa.int64(), "real": pa.float64(), "money": pa.decimal128(20, 2), "text": pa.string(),
    "at": pa.timestamp("us", "UTC"),
}  # fmt: skip


def gate_of(*expectations: tuple, columns: dict[str, str] | None = None) -> CompiledGate:
    """Return the gate of (type, kwargs) or (type, kwargs, severity)."""
    listed = [
        {"type": type_, "kwargs": kwargs, "severity": rest[0] if rest else "critical"}
        for type_, kwargs, *rest in expectations
    ]
    return compile_suite(load_suite({"name": "s", "expectations": listed}, where="test"), columns or TYPES)


def on(column: str, metric: str, **bounds: object) -> tuple:
    return (f"expect_column_{metric}_to_be_between", {"column": column, **bounds})


NOT_NULL = "expect_column_values_to_not_be_null"
UNIQUE = "expect_column_values_to_be_unique"
ROWS = "expect_table_row_count_to_be_between"


def with_status(*statuses: int) -> pa.Table:
    """Return rows of one column that the first row rule of a gate found so."""
    return pa.table({"v": pa.nulls(len(statuses), pa.int32()), "_gate_1": pa.array(statuses, pa.int8())})


# --- the share of rows -----------------------------------------------------------------------

BETWEEN = "expect_column_values_to_be_between"
SHARES = [
    # statuses (0 expected, 1 unexpected, 2 null), mostly, success
    ([0, 0, 0], 1, True),
    ([0, 0, 1], 1, False),
    ([0, 0, 1], 0.66, True),
    ([0, 0, 1], 2 / 3, True),
    ([0, 0, 1], 0.67, False),
    ([0] * 19 + [1], 0.95, True),
    ([0] * 18 + [1], 0.95, False),
    ([0] * 9 + [1] + [2] * 90, 0.95, False),
    ([1, 1], 0, True),
    ([2, 2], 1, True),
    ([2, 1], 0.5, False),
]


@pytest.mark.parametrize(("statuses", "mostly", "success"), SHARES)
def test_mostly_is_the_share_of_the_values_that_are_there(statuses, mostly, success):
    """11.3: nulls are not counted, the share is compared as GX compares it, and only nulls pass."""
    gate = gate_of((BETWEEN, {"column": "v", "min_value": 0, "mostly": mostly}), columns={"v": "int"})
    verdict = gate.decide([gate.measure(with_status(*statuses))])
    [result] = verdict.results
    assert (result.unexpected, result.considered) == (statuses.count(1), len(statuses) - statuses.count(2))
    assert result.success is success
    assert verdict.status is (Status.PASSED if success else Status.FAILED)
    assert verdict.withheld_mask == (0 if success else 1)


def test_rows_are_marked_by_the_critical_rules_they_fail():
    """11.3: tasks tell rows apart by a mask; a rule that only warns has no bit in it, and a null fails no bit."""
    gate = gate_of(
        (NOT_NULL, {"column": "v"}, "warning"), (NOT_NULL, {"column": "v"}), (BETWEEN, {"column": "v", "min_value": 0}),
        columns={"v": "int"},
    )  # fmt: skip
    rows = {"_gate_1": [1, 1, 1, 0], "_gate_2": [0, 1, 0, 0], "_gate_3": [0, 1, 1, 2]}
    table = pa.table({name: pa.array(values, pa.int8()) for name, values in rows.items()})
    assert fails_mask(table, gate).to_pylist() == [0b00, 0b11, 0b10, 0b00]
    assert fails_mask(table.slice(0, 0), gate).type == pa.int64()


def test_a_row_is_withheld_only_by_a_rule_that_failed_as_a_whole():
    """11.3: a rule that passed by `mostly` withholds none of the rows that fail it; its bit is not in the verdict."""
    gate = gate_of(
        (BETWEEN, {"column": "v", "min_value": 0, "mostly": 0.5}), (BETWEEN, {"column": "v", "min_value": 9}),
        columns={"v": "int"},
    )  # fmt: skip
    statuses = pa.table({"_gate_1": pa.array([1, 0, 0], pa.int8()), "_gate_2": pa.array([0, 0, 1], pa.int8())})
    verdict = gate.decide([gate.measure(statuses)])
    assert verdict.withheld_rules == verdict.failed_rules == (gate.rules[1].name,)
    assert [mask & verdict.withheld_mask for mask in fails_mask(statuses, gate).to_pylist()] == [0, 0, 0b10]


# --- table rules -----------------------------------------------------------------------------


def test_large_sums_of_whole_numbers_do_not_overflow():
    """A sum of longs is kept whole until it is compared as a double."""
    gate = gate_of(on("whole", "sum", min_value=2.0**64, strict_min=True))
    rows = pa.table({"whole": pa.array([2**63 - 1] * 3, pa.int64())})
    [result] = gate.decide([gate.measure(rows)]).results
    assert (result.observed, result.success) == (float(3 * (2**63 - 1)), True)


BOUNDS = [
    # observed values, metric, bounds, success
    ([1, 5], "max", {"max_value": 5}, True),
    ([1, 5], "max", {"max_value": 5, "strict_max": True}, False),
    ([1, 5], "min", {"min_value": 1, "strict_min": True}, False),
    ([1, 5], "min", {"min_value": 1, "strict_max": True}, True),
    ([1, 5], "mean", {"min_value": 3, "max_value": 3}, True),
    ([2**53 + 1], "max", {"max_value": float(2**53)}, False),
    ([None, None], "sum", {"min_value": 0}, False),
    ([None, None], "sum", {}, False),
    ([None, None], "min", {}, False),
    ([1, 2], "min", {"min_value": 5, "max_value": 1}, False),
]


@pytest.mark.parametrize(("values", "metric", "bounds", "success"), BOUNDS)
def test_bounds_hold_with_and_without_their_ends(values, metric, bounds, success):
    """11.2: a sum, mean, minimum or maximum over no value is none, and none fails whatever the bounds."""
    gate = gate_of(on("whole", metric, **bounds))
    [result] = gate.decide([gate.measure(pa.table({"whole": pa.array(values, pa.int64())}))]).results
    assert result.success is success


MOMENTS = [
    (dt.datetime(2013, 1, 2, 23, 59, tzinfo=dt.UTC), {"max_value": "2013-01-02"}, True),
    (dt.datetime(2013, 1, 2, 23, 59, tzinfo=dt.UTC), {"max_value": "2013-01-02", "strict_max": True}, False),
    (dt.datetime(2013, 1, 2, 23, 59, tzinfo=dt.UTC), {"max_value": "2013-01-02T23:58:00"}, False),
    (dt.datetime(2013, 1, 2, tzinfo=dt.UTC), {"min_value": "2013-01-02T00:00:00"}, True),
]


@pytest.mark.parametrize(("moment", "bounds", "success"), MOMENTS)
def test_a_timestamp_beside_dates_is_compared_by_its_date(moment, bounds, success):
    """11.2: as GX does, 23:59 is not after the same day; beside timestamps the time counts."""
    gate = gate_of(on("at", "max", **bounds))
    [result] = gate.decide([gate.measure(pa.table({"at": pa.array([moment], ARROW["at"])}))]).results
    assert result.success is success


def test_a_date_beside_timestamps_is_its_midnight():
    """11.2: an observed date is compared as the first moment of its day."""
    gate = gate_of(on("d", "max", max_value="2013-01-02T00:00:00", strict_max=True), columns={"d": "date"})
    for day, success in ((1, True), (2, False)):
        [result] = gate.decide([gate.measure(pa.table({"d": [dt.date(2013, 1, day)]}))]).results
        assert result.success is success


def test_row_counts_are_compared_as_whole_numbers():
    """The row count is that of all tasks together."""
    gate = gate_of((ROWS, {"min_value": 3, "max_value": 3}))
    rows = pa.table({"whole": [1, 2, 3]})
    assert gate.decide([gate.measure(rows.slice(0, 1)), gate.measure(rows.slice(1))]).status is Status.PASSED
    assert gate.decide([gate.measure(rows.slice(0, 2))]).status is Status.FAILED


# --- verdicts --------------------------------------------------------------------------------


def test_no_rows_are_no_evaluation():
    """11.1: without rows the verdict is EMPTY, also under a rule that would fail on an empty table."""
    gate = gate_of((ROWS, {"min_value": 1}))
    empty = gate.measure(pa.table({"whole": pa.array([], pa.int64())}))
    for partials in ([], [empty], [empty, empty]):
        verdict = gate.decide(partials)
        assert (verdict.status, verdict.results, verdict.rows) == (Status.EMPTY, (), 0)
        assert gate.decide_units(partials) == []


def test_only_critical_rules_make_a_verdict_fail():
    """11.4: warnings are recorded with their numbers and the unit passes."""
    gate = gate_of((ROWS, {"max_value": 1}, "warning"), (ROWS, {"max_value": 1}, "info"), (ROWS, {"max_value": 2}))
    verdict = gate.decide([gate.measure(pa.table({"whole": [1, 2]}))])
    assert verdict.status is Status.PASSED
    assert [(r.success, r.severity) for r in verdict.results] == [
        (False, Severity.WARNING), (False, Severity.INFO), (True, Severity.CRITICAL)]  # fmt: skip
    assert verdict.noted_rules == (gate.rules[0].name, gate.rules[1].name)


def test_a_verdict_is_told_in_plain_json():
    """A Commit records the verdict; infinities and moments are text, absent numbers are absent."""
    gate = gate_of(on("real", "sum"), on("at", "min"), on("whole", "max"), (UNIQUE, {"column": "whole"}, "info"))
    row = {"whole": None, "real": math.inf, "at": dt.datetime(2013, 1, 1, tzinfo=dt.UTC)}
    table = pa.table({name: pa.array([value], ARROW[name]) for name, value in row.items()})
    assert gate.decide([gate.measure(table)]).to_json() == {
        "status": "failed",
        "rows": 1,
        "results": [
            {"rule": "s:1:expect_column_sum_to_be_between(real)", "severity": "critical", "success": True,
             "observed": "inf"},
            {"rule": "s:2:expect_column_min_to_be_between(at)", "severity": "critical", "success": True,
             "observed": "2013-01-01T00:00:00"},
            {"rule": "s:3:expect_column_max_to_be_between(whole)", "severity": "critical", "success": False,
             "observed": None},
            {"rule": "s:4:expect_column_values_to_be_unique(whole)", "severity": "info", "success": True,
             "unexpected": 0, "considered": 0},
        ],
    }  # fmt: skip


# --- a gate that fails -----------------------------------------------------------------------


@pytest.mark.fault("F53")
def test_a_gate_that_crashes_is_an_error_of_its_own():
    """11.8, F53: a missing hidden column, one left null, a column of another type: GateError, never a verdict."""
    gate = gate_of((BETWEEN, {"column": "v", "min_value": 0}), on("v", "sum"), columns={"v": "int"})
    status = pa.array([0], pa.int8())
    for table, named in (
        (pa.table({"v": [1]}), "_gate_1"),
        (pa.table({"v": [1], "_gate_1": pa.array([None], pa.int8())}), "not evaluated for 1 rows"),
        (pa.table({"v": ["x"], "_gate_1": status}), "failed: Arrow"),
        (pa.table({"w": [1], "_gate_1": status}), "v"),
    ):
        with pytest.raises(GateError, match=named):
            gate.measure(table)
    with pytest.raises(GateError, match="_gate_1"):
        fails_mask(pa.table({"v": [1]}), gate)


@pytest.mark.fault("F53")
def test_damaged_measurements_are_an_error_of_their_own():
    """11.8: bytes that changed on the way to the driver are not judged; every flipped byte is noticed."""
    gate = gate_of((ROWS, {"min_value": 1}))
    data = gate.measure(pa.table({"whole": [1]})).to_bytes()
    for place in range(len(data)):
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(GateError):
            Partial.from_bytes(damaged)
    for cut in (0, 5, len(data) - 1):
        with pytest.raises(GateError, match="damaged"):
            Partial.from_bytes(data[:cut])


def test_measurements_of_other_units_or_rules_do_not_mix():
    """Partials of another gate, or measured by other columns, are refused instead of being added up."""
    gate, other = gate_of((ROWS, {})), gate_of((UNIQUE, {"column": "whole"}))
    rows = pa.table({"whole": [1]})
    with pytest.raises(GateError, match="different"):
        gate.decide([gate.measure(rows), gate.measure(rows, ["whole"])])
    with pytest.raises(GateError, match="different"):
        gate.decide([gate.measure(rows), other.measure(rows)])
    with pytest.raises(GateError, match="by units"):
        gate.decide([gate.measure(rows, ["whole"])])


def test_a_partial_does_not_grow_with_the_rows():
    """What a task sends is a few numbers a unit, and for uniqueness its distinct values; never a list of rows."""
    gate = gate_of(
        *(on("whole", metric) for metric in ("min", "max", "sum", "mean")),
        (BETWEEN, {"column": "whole", "min_value": 0}),
    )
    sizes = []
    for rows in (10, 100_000):
        status = pa.array([0] * rows, pa.int8())
        partial = gate.measure(pa.table({"whole": [7] * rows, "_gate_5": status}))
        sizes.append(len(partial.to_bytes()))
    assert sizes[1] < sizes[0] + 200
    unique = gate_of((UNIQUE, {"column": "whole"}))
    assert unique.measure(pa.table({"whole": [7, 7, 8] * 1000})).values[1].num_rows == 2
