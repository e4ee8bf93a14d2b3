"""Sessions against a plain-Python model, batch after batch, with a restart at each and rescaling in between."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from session_disk import Made, SessionDisk
from session_model import ModelMade, ModelRow, SessionModel

from penstock import agg, micros
from penstock.graph.policies import LatenessRule
from penstock.graph.specs.session_windows import Session, SessionWindow
from penstock.graph.windows import DropLate, LateTo
from penstock.time.clock import END_OF_TIME

AGGREGATES = {
    "rows": agg.count(),
    "total": agg.sum("v"),
    "low": agg.min("v"),
    "mean": agg.mean("v"),
    "first": agg.first("n"),
    "last": agg.last("n"),
    "all": agg.collect("n", limit=100),
}
GAP = 10
LATENESS = (0, 1, 6, 40, 500)
ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "c", None]),
        "t": st.integers(-60, 90),
        "v": st.none() | st.integers(-50, 50),
        "g": st.none() | st.integers(-2, 25),
    }
)


def results(session: ModelRow) -> dict[str, Any]:
    """Return what the aggregates of a session are, by their definitions."""
    values = [row["v"] for row in session.rows if row["v"] is not None]
    in_time = sorted(session.rows, key=lambda row: row["t"])  # stable: ties in order of arrival
    last = max(reversed(in_time), key=lambda row: row["t"])
    return {
        "rows": len(session.rows),
        "total": sum(values) if values else None,
        "low": min(values, default=None),
        "mean": sum(values) / len(values) if values else None,
        "first": in_time[0]["n"],
        "last": last["n"],
        "all": [row["n"] for row in session.rows],
    }


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return an output row with bounds in microseconds."""
    bounds = {name: round(row[name].timestamp() * 1e6) for name in ("window_start", "window_end")}
    return {**row, **bounds}


def of_model(row: ModelRow, *, panes: bool) -> dict[str, Any]:
    """Return what the output has of a row of the model."""
    of_panes = {"_pane": row.pane, "_revision": row.revision} if panes else {}
    return {"k": row.key, "window_start": row.start, "window_end": row.end, **results(row), **of_panes}


def assert_same(made: Made, expected: ModelMade, rows: int, *, panes: bool = False) -> None:
    """Compare a batch with the model: sessions with their aggregates, late and quarantined rows, and the accounting."""
    wanted = [of_model(row, panes=panes) for row in expected.closed]
    assert sorted(map(plain, made.closed), key=repr) == sorted(wanted, key=repr)
    assert Counter(made.late) == Counter(expected.late)
    assert Counter(made.aside) == Counter(expected.aside)
    counts = made.counts
    assert counts["rows"] == rows
    assert counts["late"] == len(expected.late)
    assert counts["quarantined"] == len(expected.aside)
    assert counts["in_no_window"] == expected.in_no_window
    assert counts["rows"] == counts["counted"] + counts["late"] + counts["quarantined"] + counts["in_no_window"]
    assert counts["sent"] == counts["merged"] == counts["counted"] + counts["late"]


def assert_held(disk: SessionDisk, model: SessionModel) -> None:
    """Compare the sessions that are held, open or closed."""
    shown = [
        (
            r["k"],
            *(round(r[f"session_{n}"].timestamp() * 1e6) for n in ("start", "end")),
            bool(r.get("_closed")),
            -1 if r.get("_revision") is None else r["_revision"],
        )
        for r in disk.sessions()
    ]
    wanted = [(s.key, s.start, s.end, s.closed, s.revision) for s in model.held]
    assert sorted(shown, key=repr) == sorted(wanted, key=repr)


def window_of(gap: SessionWindow, rule: LatenessRule, *, late_to: bool, lateness: int = 0) -> SessionWindow:
    """Return sessions with a policy and a rule."""
    policy = LateTo("late") if late_to else DropLate()
    if lateness:
        return gap.update_late(within=micros(lateness), then=policy)
    return (gap.late_to("late") if late_to else gap.drop_late()).lateness_rule(rule)


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("partitions", [1, 2, 8])
@pytest.mark.parametrize("own_gaps", [False, True], ids=["one gap", "own gaps"])
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_every_batch_gives_what_the_definition_gives(own_gaps, partitions, data):
    """2.3, 2.5, 2.10, 3, 3.3, 3.4: random rows out of order, cuts, watermarks, chained steps, restarts and rescaling."""
    late_to, lateness = data.draw(st.booleans(), label="late rows to a stream"), data.draw(st.sampled_from(LATENESS))
    rule = LatenessRule.WINDOW if lateness else data.draw(st.sampled_from(LatenessRule))
    discarding = bool(lateness) and data.draw(st.booleans(), label="discarding")
    retracts = bool(lateness) and data.draw(st.booleans(), label="retracts")
    gap = Session("g") if own_gaps else Session(micros(GAP))
    model = SessionModel(
        gap=lambda row: row["g"] if own_gaps else GAP,
        rule=rule,
        lateness=lateness,
        discarding=discarding,
        retracts=retracts,
    )
    chained, watermark, numbered = data.draw(st.booleans(), label="chained step"), None, 0
    hashes = data.draw(st.sampled_from([1, 1000]), label="hashes")
    with tempfile.TemporaryDirectory() as root:
        window = window_of(gap, rule, late_to=late_to, lateness=lateness)
        window = window.discarding() if discarding else window
        disk = SessionDisk(window, AGGREGATES, root, partitions=partitions, hashes=hashes, retracts=retracts)
        disk.crashes = data.draw(st.randoms(use_true_random=False), label="crashes")
        for _ in range(data.draw(st.integers(1, 8))):
            tasks = data.draw(st.lists(st.lists(ROW, max_size=6), max_size=2))
            late, moved = watermark, data.draw(st.sampled_from([None, 0, 1, 4, 15, 80]))
            if moved is not None:
                watermark = data.draw(st.integers(-60, 20)) if watermark is None else watermark + moved
            late = late if chained else watermark
            for row in (row for task in tasks for row in task):
                row["n"] = row["at"] = numbered
                numbered += 1
            rows = [row for task in tasks for row in task]
            made = disk.batch(tasks, late=late, close=watermark)
            expected = model.batch(rows, late=late, close=watermark)
            if not late_to:
                assert made.late == []
                made.late = expected.late
            assert_same(made, expected, len(rows), panes=lateness > 0)
            assert_held(disk, model)
            due = min((s.end + 1 for s in model.held if not s.closed), default=None)
            assert (made.due is None) == (due is None)
            assert due is None or made.due <= due
            if data.draw(st.integers(0, 4)) == 0:
                disk.rescale(data.draw(st.sampled_from([1, 2, 8])), watermark)
                assert_held(disk, model)
        made = disk.batch([], late=watermark, close=END_OF_TIME)
        assert_same(made, model.batch([], late=watermark, close=END_OF_TIME), 0, panes=lateness > 0)
        assert disk.sessions() == []
        assert made.due is None


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-50, 200), st.integers(0, 30)), max_size=25),
    cuts=st.lists(st.integers(0, 25), max_size=6),
    partitions=st.sampled_from([1, 2, 8]),
    lateness=st.sampled_from([0, 40]),
)
def test_sessions_do_not_depend_on_how_rows_were_cut(rows, cuts, partitions, lateness):
    """10.5: where no row is later than max_out_of_order, any batches give the sessions of all rows at once."""
    arrived = [{"k": k, "t": t, "v": 1, "g": GAP} for k, t, _ in sorted(rows, key=lambda row: row[1] + row[2])]
    for n, row in enumerate(arrived):
        row["n"] = row["at"] = n
    model = SessionModel(gap=lambda _: GAP)
    model.batch(arrived, late=None, close=None)
    wanted = [of_model(row, panes=False) for row in model.batch([], late=None, close=END_OF_TIME).closed]
    bounds = sorted({0, len(arrived), *(cut for cut in cuts if cut < len(arrived))})
    with tempfile.TemporaryDirectory() as root:
        window = window_of(Session(micros(GAP)), LatenessRule.WINDOW, late_to=False, lateness=lateness)
        disk, closed, watermark = SessionDisk(window, AGGREGATES, root, partitions=partitions), [], None
        for first, last in pairwise(bounds):
            closed += disk.batch([arrived[first:last]], late=watermark, close=watermark).closed
            watermark = max(row["t"] for row in arrived[:last]) - 30
        closed += disk.batch([], late=watermark, close=END_OF_TIME).closed
    assert {row.pop("_pane", "ON_TIME") for row in closed} <= {"ON_TIME"}
    assert {row.pop("_revision", 0) for row in closed} <= {0}
    assert sorted(map(plain, closed), key=repr) == sorted(wanted, key=repr)


def rows_at(*times: int, key: str = "a", first: int = 0) -> list[dict[str, Any]]:
    """Return rows of a key at these times, numbered."""
    return [{"k": key, "t": t, "v": 1, "g": GAP, "n": first + n, "at": first + n} for n, t in enumerate(times)]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([([0, 10], None), ([], 21)], [(0, 20, 2)]),
        ([([0, 11], None), ([], 22)], [(0, 10, 1), (11, 21, 1)]),
        ([([0, 20], None), ([10], None), ([], 31)], [(0, 30, 3)]),
        ([([0], None), ([], 10)], []),
        ([([0], None), ([10], 10), ([], 21)], [(0, 20, 2)]),
        ([([0], None), ([], 11)], [(0, 10, 1)]),
        ([([0], None), ([11], 11), ([], 22)], [(0, 10, 1), (11, 21, 1)]),
        ([([-25, -15, -4], None), ([], 7)], [(-25, -5, 2), (-4, 6, 1)]),
        ([([30], None), ([22], 31), ([], 41)], [(22, 40, 2)]),
        ([([30], None), ([20], 31), ([], 41)], [(20, 40, 2)]),
        ([([30], None), ([18], 31), ([], 41)], [(30, 40, 1)]),
        ([([30], None), ([20, 10], 31), ([], 41)], [(10, 40, 3)]),
        ([([n], None) for n in range(0, 100, 9)] + [([], 110)], [(0, 109, 12)]),
        ([([0, 20, 40], None), ([], 10_000)], [(0, 10, 1), (20, 30, 1), (40, 50, 1)]),
    ],
    ids=[
        "touching",
        "a microsecond apart",
        "a row joins two sessions",
        "open at its end",
        "a row at the end and the watermark",
        "closed past its end",
        "a row after the end begins another",
        "before 1970",
        "an old row joins a held session",
        "an old row that touches",
        "an old row that joins nothing is late",
        "an old row joins through another of its batch",
        "over many batches",
        "a watermark that jumps",
    ],
)
def test_worked_sessions(tmp_path, batches, expected):
    """3, 2.5: rows and the watermark of each batch, and the sessions that closed, gap 10."""
    disk, closed = SessionDisk(Session(micros(GAP)).drop_late(), {"rows": agg.count()}, tmp_path), []
    for times, watermark in batches:
        closed += disk.batch([rows_at(*times)], late=watermark, close=watermark).closed
    assert [(r["window_start"], r["window_end"], r["rows"]) for r in map(plain, closed)] == expected


def test_rows_of_one_batch_merge_before_they_are_late(tmp_path):
    """3: an old row counts where a row of its batch, in another task, reaches from it to the watermark."""
    for order in ([[0], [8]], [[8], [0]]):
        folder = tmp_path / str(order[0][0])
        folder.mkdir()
        disk = SessionDisk(Session(micros(GAP)).late_to("late"), {"rows": agg.count()}, folder)
        made = disk.batch([rows_at(*times, first=10 * n) for n, times in enumerate(order)], late=15, close=15)
        assert (made.late, made.counts["counted"]) == ([], 2)
        made = disk.batch([rows_at(1, 4)], late=16, close=16)
        assert (made.late, made.counts["counted"]) == ([], 2)
        assert [(r["rows"], r["window_start"]) for r in map(plain, disk.batch([], late=19, close=19).closed)] == [
            (4, 0)
        ]
        assert disk.batch([rows_at(1, 4)], late=19, close=19).late == [0, 1]


def test_a_chained_session_is_never_late_downstream(tmp_path):
    """2.1: it has event time end - 1, or the end where a window downstream has closed at that."""
    disk = SessionDisk(Session(micros(GAP)).drop_late(), {"rows": agg.count()}, tmp_path)
    disk.batch([rows_at(0, 30)], late=None, close=None)
    assert disk.batch([], late=10, close=11, judged=10).times == [10]
    assert disk.batch([], late=39, close=41, judged=39).times == [39]


def test_one_key_with_all_rows_and_many_keys_with_one(tmp_path):
    """3.1: a batch of one key is one session, and one of many keys as many."""
    disk = SessionDisk(Session(micros(GAP)).drop_late(), {"rows": agg.count()}, tmp_path)
    disk.batch([rows_at(*range(0, 50_000, 5))], late=None, close=None)
    assert len(disk.sessions()) == 1
    drawn = random.Random(1)
    keys = [f"k{n}" for n in range(5_000)]
    rows = [row for key in keys for row in rows_at(drawn.randrange(100), key=key)]
    made = disk.batch([rows], late=None, close=110)
    assert len(made.closed) == sum(row["t"] + GAP < 110 for row in rows)
    (whole,) = disk.batch([], late=60_000, close=60_000).closed[-1:]
    assert (whole["k"], whole["rows"]) == ("a", 10_000)


def test_a_key_may_have_many_open_sessions(tmp_path):
    """3: rows far apart, while the watermark waits; the earliest closes, the others keep their places."""
    disk, model = (
        SessionDisk(Session(micros(GAP)).drop_late(), {"rows": agg.count()}, tmp_path),
        SessionModel(lambda _: GAP),
    )
    times = list(range(0, 3_000, 30))
    random.Random(3).shuffle(times)
    for at in range(0, 100, 10):
        rows = rows_at(*times[at : at + 10])
        disk.batch([rows], late=None, close=None)
        model.batch(rows, late=None, close=None)
    for watermark in range(0, 3_100, 310):
        rows = rows_at(watermark + 65)
        made = disk.batch([rows], late=watermark, close=watermark)
        assert len(made.closed) == len(model.batch(rows, late=watermark, close=watermark).closed)
        assert_held(disk, model)


def test_a_whole_stream_is_one_key(tmp_path):
    """API: every keyed operator exists on Stream too."""
    disk = SessionDisk(Session(micros(GAP)).drop_late(), {"rows": agg.count()}, tmp_path, keys=pa.schema([]))
    disk.batch([rows_at(0), rows_at(5, key="b")], late=None, close=None)
    assert [r["rows"] for r in disk.batch([], late=50, close=50).closed] == [2]


def test_a_batch_that_changes_nothing_writes_nothing(tmp_path):
    """1.4: neither rows nor a watermark that closes nothing leave a manifest."""
    disk = SessionDisk(Session(micros(GAP)).drop_late(), {"rows": agg.count()}, tmp_path)
    disk.batch([rows_at(0)], late=None, close=None)
    before = list(disk.refs)
    assert disk.batch([[]], late=10, close=10).due == 11
    assert disk.refs == before


def test_times_that_no_window_can_hold_are_counted(tmp_path):
    """2.10: beyond 146,000 years a row is in no window."""
    disk = SessionDisk(Session(micros(GAP)).drop_late(), {"rows": agg.count()}, tmp_path)
    made = disk.batch([rows_at(2**62 + 1, -(2**62) - 1, 2**62)], late=None, close=None)
    assert (made.counts["in_no_window"], made.counts["counted"]) == (2, 1)
