"""The receipts of a batch are merged, and their sums must hold before anything is committed (SEMANTICS 2.10)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.agg import count
from penstock.checkpoint.log.entries import ManifestRef
from penstock.errors import AccountingBroken, NondeterministicStep
from penstock.graph.durations import seconds
from penstock.graph.specs.time_windows import TimeWindows
from penstock.graph.steps import StepNode
from penstock.graph.windows import Tumbling
from penstock.runtime.driver.receipts import BatchReceipts, check_accounting, collect, totals


def read(rows: dict[str, int], highest: dict[str, int] | None = None, **quarantined: int) -> dict[str, Any]:
    """Return what an ingest task says of source `s`."""
    return {"kind": "read", "source": "s", "rows": rows, "highest": highest or {}, "quarantined": quarantined}


def filtered(rows: int, kept: int, dropped: int) -> dict[str, Any]:
    """Return what a task says of filter `f`."""
    return {"kind": "filter", "of": "filter:f", "counts": {"rows": rows, "kept": kept, "filtered": dropped}}


def window(rows: int, counted: int, late: int = 0, *, partly_late: int = 0, in_no_window: int = 0) -> dict[str, Any]:
    """Return what a map-side task says of window step `w`."""
    counts = {"rows": rows, "counted": counted, "late": late, "partly_late": partly_late, "in_no_window": in_no_window}
    return {"kind": "step", "counted_as": "window:w", "counts": counts}


def state(
    partition: int = 0,
    *,
    merged: int = 0,
    due: int | None = None,
    due_time: int | None = None,
    checksum: str | None = "a",
    fetched: int = 0,
) -> dict[str, Any]:
    """Return what the task that owns a state partition of step `w` says."""
    manifest = None if checksum is None else {"path": f"m{checksum}", "size": 3, "checksum": checksum}
    receipt = {"kind": "state", "step": "w", "partition": partition, "manifest": manifest, "due": due}
    receipt |= {"counted_as": "window:w", "due_time": due_time, "counts": {"merged": merged}}
    return {**receipt, "written": 10, "rewritten": 4, "size": 100, "fetched": fetched}


def staged(
    sink: str = "out", rows: int = 2, *, path: str = "p", unit: int | None = None, **more: Any
) -> dict[str, Any]:
    """Return what a task says of a file that it staged."""
    file = {"path": path, "size": 50, "rows": rows, "checksum": "c", "fails": list(more.get("fails", [])), "unit": unit}
    return {"kind": "staged", "sink": sink, "check": more.get("check"), "file": file}


def test_the_rows_of_all_tasks_add_up() -> None:
    """SEMANTICS 2.10, 2.1: rows by partition are summed, the highest event time of each partition is kept."""
    outcome = collect(
        [read({"0": 3, "1": 1}, {"0": 7, "1": 2}, bad=1), read({"0": 2}, {"0": 5}), read({"1": 4}, {"1": 9})]
    )
    assert outcome.rows == {"s": {"0": 5, "1": 5}}
    assert outcome.highest == {"s": {"0": 7, "1": 9}}
    assert outcome.accounting == {"source:s": {"read": 10, "quarantined": 1, "passed": 9}}


def test_negative_event_times_are_kept_too() -> None:
    """SEMANTICS 2.1: the highest time may lie before 1970."""
    assert collect([read({"0": 1}, {"0": -9}), read({"0": 1}, {"0": -5})]).highest == {"s": {"0": -5}}


def test_state_receipts_give_manifests_due_times_and_sizes() -> None:
    """DESIGN 4: a Commit names one manifest a partition, and the earliest time at which anything is due."""
    outcome = collect([state(0, due=30, merged=2), state(1, due=20, merged=3, checksum="b"), state(2, checksum=None)])
    assert outcome.state == {
        "w": {"0": ManifestRef(path="ma", size=3, checksum="a"), "1": ManifestRef(path="mb", size=3, checksum="b")}
    }
    assert outcome.due == {"w": 20}
    assert outcome.written == {"segments": 30, "rewritten": 12, "state:w": 300}
    assert outcome.accounting["window:w"]["merged"] == 5


def test_a_step_with_nothing_due_says_so() -> None:
    """A step is named in `due` although it waits for nothing."""
    assert collect([state(0), state(1)]).due == {"w": None}
    assert collect([state(0), state(1, due=4), state(2)]).due == {"w": 4}
    assert collect([state(0, due_time=9), state(1), state(2, due_time=7)]).due_time == {"w": 7}


def test_files_are_kept_by_sink_and_check_with_their_unit() -> None:
    """SEMANTICS 11.3: the verdict chooses among files, so each keeps the rules that its rows fail and its unit."""
    outcome = collect([staged(path="a"), staged(path="b", check="c", fails=["r"], unit=5), staged("more", path="d")])
    assert {key: [(f.path, f.fails, unit) for f, unit in files] for key, files in outcome.staged.items()} == {
        ("out", None): [("a", [], None)],
        ("out", "c"): [("b", ["r"], 5)],
        ("more", None): [("d", [], None)],
    }
    assert outcome.written == {"output": 150}


def test_measures_are_kept_by_check() -> None:
    """SEMANTICS 11.1: a verdict is made of what every task measured."""
    measured = {"kind": "measured", "check": "c", "rows": 3, "partial": {"a": "1"}}
    outcome = collect([measured, {**measured, "rows": 4, "partial": {"a": "2"}}])
    assert outcome.measured == {"c": [{"a": "1"}, {"a": "2"}]}
    assert outcome.accounting == {"check:c": {"in": 7}}


@pytest.mark.fault("F50")
def test_two_answers_for_one_partition_must_be_the_same() -> None:
    """F50, DESIGN 4: a second receipt with another checksum fails the batch; the same one is harmless."""
    assert collect([state(0), state(0)]).state["w"]["0"].checksum == "a"
    with pytest.raises(NondeterministicStep, match="partition 0 of step 'w'"):
        collect([state(0), state(0, checksum="b")])


def test_a_receipt_of_an_unknown_kind_is_refused() -> None:
    """Nothing that a task says is left out in silence."""
    with pytest.raises(NondeterministicStep, match="'gossip'"):
        collect([{"kind": "gossip"}])


WINDOWS = TimeWindows(window=Tumbling(seconds(1)).drop_late(), aggregates={"n": count()})
STEPS = (StepNode(name="w", inputs=(), keys=(), partitions=1, spec=WINDOWS),)

SOUND: list[list[dict[str, Any]]] = [
    [],
    [read({"0": 5}, bad=2)],
    [read({"0": 5}), filtered(5, 3, 2), window(3, 2, 1), state(0, merged=2)],
    [read({"0": 5}), window(3, 1, 1, in_no_window=1), window(2, 2, partly_late=2), state(0, merged=3)],
    [state(0)],
]


@pytest.mark.parametrize("receipts", SOUND, ids=range(len(SOUND)))
def test_sums_that_hold_pass(receipts: list[dict[str, Any]]) -> None:
    """SEMANTICS 2.10: partly late rows are counted rows; a state that merged nothing without a map side is fine."""
    outcome = collect(receipts, STEPS)
    check_accounting(outcome, {"s": outcome.accounting.get("source:s", {"read": 0})["read"]}, STEPS)


BROKEN: list[tuple[str, list[dict[str, Any]], dict[str, int | None], str]] = [
    ("rows of the source are missing", [read({"0": 4})], {"s": 5}, "5 rows in this range and 4 were read"),
    ("rows of the source came twice", [read({"0": 4}), read({"0": 4})], {"s": 4}, "4 rows in this range and 8"),
    ("no task read the source", [], {"s": 1}, "1 rows in this range and 0"),
    ("a filter lost rows", [filtered(5, 3, 1)], {}, "filter:f"),
    ("a window lost rows", [window(5, 3, 1)], {}, "window:w"),
    ("partly late rows counted apart", [window(5, 3, 1, partly_late=1)], {}, "window:w"),
    ("the shuffle lost rows", [window(5, 5), state(0, merged=4)], {}, "counted 5 rows and its state took 4"),
    ("the shuffle doubled rows", [window(5, 5), state(0, merged=5), state(1, merged=5)], {}, "took 10"),
    ("state took rows nobody sent", [state(0, merged=1)], {}, "counted 0 rows and its state took 1"),
]


@pytest.mark.parametrize(("receipts", "expected", "word"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_sum_that_does_not_hold_stops_the_job(
    receipts: list[dict[str, Any]], expected: dict[str, int | None], word: str
) -> None:
    """SEMANTICS 2.10: before the commit."""
    with pytest.raises(AccountingBroken, match=word):
        check_accounting(collect(receipts, STEPS), expected, STEPS)


def test_what_no_step_of_the_job_counts_stops_it() -> None:
    """Rows that were counted under a name that the job does not have are nobody's."""
    receipts = [{"kind": "step", "counted_as": "window:other", "counts": {"rows": 1}}]
    with pytest.raises(AccountingBroken, match="window:other"):
        check_accounting(collect(receipts, STEPS), {}, STEPS)


def test_a_count_that_an_operator_does_not_name_stops_it() -> None:
    """A name that is mistyped would hide the rows from every sum."""
    receipts = [{"kind": "step", "counted_as": "window:w", "counts": {"latte": 1}}]
    with pytest.raises(AccountingBroken, match="'latte'"):
        check_accounting(collect(receipts, STEPS), {}, STEPS)


def test_a_step_is_accounted_for_in_a_batch_without_rows() -> None:
    """The log has the same counts in every batch."""
    counts = {"rows": 0, "counted": 0, "late": 0, "partly_late": 0, "in_no_window": 0}
    assert collect([], STEPS).accounting == {"window:w": counts}


def test_sums_that_do_not_hold_are_shown_as_numbers() -> None:
    """The remedy asks for these numbers; a reader compares them in the order in which the step counts."""
    receipts = [{"kind": "filter", "of": "filter:f", "counts": {"rows": 12, "kept": 3, "filtered": 8}}]
    shown = "the rows of filter:f do not add up: {'rows': 12, 'kept': 3, 'filtered': 8}"
    with pytest.raises(AccountingBroken, match=re.escape(shown)):
        check_accounting(collect(receipts), {})


def test_a_source_that_cannot_count_is_taken_at_its_word() -> None:
    """A source whose span says nothing of its rows is held to the other sums only."""
    check_accounting(collect([read({"0": 4})]), {"s": None})


@pytest.mark.parametrize("fates", [{"published": 5}, {"published": 1, "dropped": 4}, {"held": 3, "quarantined": 2}])
def test_a_check_accounts_for_each_row(fates: dict[str, int]) -> None:
    """SEMANTICS 2.10: in = published + dropped + quarantined + held."""
    check_accounting(BatchReceipts(accounting={"check:c": {"in": 5, **fates}}), {})
    with pytest.raises(AccountingBroken, match="check:c"):
        check_accounting(BatchReceipts(accounting={"check:c": {"in": 6, **fates}}), {})


def test_running_totals_add_up_batch_by_batch() -> None:
    """F44: the sums of all batches, and in how many most rows were late, or too far ahead."""
    first = BatchReceipts(accounting={"source:s": {"read": 4, "quarantined": 3, "passed": 1}}, ahead={"s": 3})
    window = {"rows": 5, "counted": 2, "late": 3}
    other = BatchReceipts(accounting={"source:s": {"read": 6, "quarantined": 1, "passed": 5}, "window:w": window})
    half = BatchReceipts(
        accounting={"window:w": {"rows": 2, "counted": 1, "late": 1}, "window:none": {"rows": 0, "late": 0}}
    )
    running: dict[str, dict[str, int]] = {}
    for outcome in (first, other, half):
        running = totals(running, outcome)
    assert running == {
        "source:s": {"read": 10, "quarantined": 4, "passed": 6, "too_far_ahead": 3},
        "window:w": {"rows": 7, "counted": 3, "late": 4},
        "window:none": {"rows": 0, "late": 0},
        "batches": {"batches": 3, "mostly_late": 1, "mostly_too_far_ahead": 1},
    }
