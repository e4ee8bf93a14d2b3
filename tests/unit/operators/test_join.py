"""`join` emits each pair of rows with equal keys and near event times once (SEMANTICS 7.6)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock import EveryBatches, Job, agg, seconds
from penstock.errors import BadExpression, JobError, StepsChanged
from penstock.graph.job import Stream
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.state import read
from penstock.testing import Crashed, Harness
from penstock.windows import Tumbling

pytestmark = pytest.mark.sample(4, of="joins")

LEFT, RIGHT = "id string, x long, t timestamp", "id string, y long, u timestamp"
Rows = list[dict[str, Any]]


def source(job: Job, name: str, schema: str, slack: int = 0) -> Stream:
    """Return a source with event time in `t` or `u`; its watermark is so many seconds behind the highest."""
    time = "t" if " t timestamp" in schema else "u"
    return job.source(name, MemorySource(schema), event_time=time, max_out_of_order=seconds(slack))


def joined(
    *, partitions: int = 2, within: tuple[int, int] = (-5, 5), left: str = LEFT, right: str = RIGHT, slack: int = 0
) -> Job:
    """Return a job that joins two sources, and takes a data checkpoint in every second batch."""
    job = Job("joined", partitions=partitions)
    job.checkpoint(every=EveryBatches(2))
    a, b = source(job, "a", left, slack), source(job, "b", right, slack)
    bounds = (seconds(within[0]), seconds(within[1]))
    a.join("pairs", b, on=["id"], within=bounds).select("id", "x", "y").write("out", MemorySink())
    return job


def x(key: str | None, n: int, t: float) -> dict[str, Any]:
    """Return a row of the left input; `t` is in seconds."""
    return {"id": key, "x": n, "t": t}


def y(key: str | None, n: int, t: float) -> dict[str, Any]:
    """Return a row of the right input."""
    return {"id": key, "y": n, "u": t}


def pairs(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Return which rows were joined, in order."""
    return [(row["x"], row["y"]) for row in rows]


@dataclass
class Model:
    """Plain Python: all rows that were not late are compared with each other."""

    within: tuple[int, int]
    slack: int = 0
    watermark: float | None = None
    seen: list[tuple[int, Any, float, int]] = field(default_factory=list)
    highest: dict[int, float] = field(default_factory=dict)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("late_left", "late_right", "null_keys", "left", "right", "pairs"), 0)
    )

    def batch(self, fed: Mapping[str, Rows]) -> list[tuple[int, int]]:
        """Take a batch; return the pairs in order."""
        made = []
        for side, (name, value, time) in enumerate((("a", "x", "t"), ("b", "y", "u"))):
            for row in fed.get(name, ()):
                made += self._take(side, row["id"], row[time], row[value])
        for side, (name, time) in enumerate((("a", "t"), ("b", "u"))):
            times = [row[time] for row in fed.get(name, ())]
            self.highest[side] = max([*times, self.highest.get(side, float("-inf"))])
        mark = min(self.highest.values()) - self.slack
        if mark > float("-inf"):
            self.watermark = mark if self.watermark is None else max(mark, self.watermark)
        self.counts["pairs"] += len(made)
        return made

    def _take(self, side: int, key: Any, time: float, value: int) -> list[tuple[int, int]]:
        named = ("left", "right")[side]
        if self.watermark is not None and time < self.watermark:
            self.counts[f"late_{named}"] += 1
            return []
        if key is None:
            self.counts["null_keys"] += 1
            return []
        self.counts[named] += 1
        low, high = self.within
        made = []
        for at, (other, other_key, other_time, other_value) in enumerate(self.seen):
            difference = other_time - time if side == 0 else time - other_time
            if other != side and other_key == key and low <= difference <= high:
                made.append((other_time, at, (value, other_value) if side == 0 else (other_value, value)))
        self.seen.append((side, key, time, value))
        return [pair for *_, pair in sorted(made)]


def drawn_rows(drawn: random.Random, batch: int, value: str, time: str) -> Rows:
    """Return rows of few keys: most near the batch's time, some late."""
    return [
        {
            "id": drawn.choice(["a", "b", "c", None]),
            value: 100 * batch + n,
            time: max(0, 3 * batch + 6 - drawn.choice([0, 1, 2, 4, 7, 15])),
        }
        for n in range(drawn.randrange(7))
    ]


@pytest.mark.parametrize(
    ("partitions", "within", "slack"),
    [(1, (-5, 5), 4), (2, (0, 0), 6), (8, (2, 9), 4), (2, (-9, -2), 0), (3, (-12, 1), 8)],
)
def test_pairs_are_those_of_the_model(tmp_path: Path, partitions: int, within: tuple[int, int], slack: int) -> None:
    """In order of arrival, through restarts, crashes, and other numbers of partitions; each row is in one count."""
    drawn, model, expected = random.Random(partitions), Model(within, slack), []

    def job() -> Job:
        return joined(partitions=partitions, within=within, slack=slack)

    with Harness(job(), tmp_path) as h:
        for batch in range(12):
            fed = {"a": drawn_rows(drawn, batch, "x", "t"), "b": drawn_rows(drawn, batch, "y", "u")}
            expected += model.batch(fed)
            stage = drawn.choice([None, None, None, "FixOffsets", "Compute", "CommitBatch"])
            if stage is not None and any(fed.values()):
                h.crash_after(stage)
                with pytest.raises(Crashed):
                    h.batch(fed)
                h.restart()
            else:
                h.batch(fed)
            if batch in (5, 8):
                partitions = partitions % 3 + 1
                h.restore(partitions=partitions, job=job())
        assert pairs(h.output()["out"]) == expected
        assert expected
        totals = h.commit().totals["join:pairs"]
        assert {name: totals[name] for name in model.counts} == model.counts
        assert min(model.counts.values()) > 0
        assert totals["rows"] == totals["late"] + totals["null_keys"] + totals["merged"]


def test_cuts_and_partitions_make_no_difference_without_late_rows(tmp_path: Path) -> None:
    """One batch, or one for each few rows: the pairs are the same (SEMANTICS 10.5)."""
    drawn, outputs = random.Random(3), []
    fed = [
        {"a": [x(drawn.choice("ab"), n, 100 + n % 7)], "b": [y(drawn.choice("ab"), n, 100 + n % 5)]} for n in range(12)
    ]
    for partitions, cuts in ((1, [0, 12]), (8, [0, 1, 5, 6, 12])):
        with Harness(joined(partitions=partitions, within=(-1, 3), slack=10), tmp_path / str(partitions)) as h:
            for start, end in pairwise(cuts):
                h.batch({name: [row for rows in fed[start:end] for row in rows[name]] for name in "ab"})
            outputs.append(sorted(pairs(h.output()["out"])))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len({*outputs[0]}) > 20


@pytest.mark.parametrize("held", [True, False], ids=["from the state", "in one batch"])
def test_bounds_are_inclusive(tmp_path: Path, *, held: bool) -> None:
    """To the microsecond, on both ends, whichever row comes first."""
    close, far = 1_000.0, 0.000_001
    rights = [y("a", n, close + d) for n, d in enumerate((-2 - far, -2, 3, 3 + far))]
    with Harness(joined(within=(-2, 3), slack=60), tmp_path) as h:
        if held:
            h.batch({"b": rights[:2]})
            h.batch({"a": [x("a", 0, close)]})
            h.batch({"b": rights[2:]})
        else:
            h.batch({"a": [x("a", 0, close)], "b": rights})
        assert pairs(h.output()["out"]) == [(0, 1), (0, 2)]


def test_late_rows_are_dropped_and_no_pair_is_lost_at_the_watermark(tmp_path: Path) -> None:
    """A row at the watermark is on time (SEMANTICS 2.3), and finds what only it can still match."""
    with Harness(joined(within=(-10, 0)), tmp_path) as h:
        h.batch({"a": [x("a", 0, 110)], "b": [y("a", 0, 100), y("a", 1, 99)]})  # the watermark is 100
        assert h.commit().watermarks_out["pairs"] == 100_000_000
        out = h.batch({"a": [x("a", 1, 100), x("a", 2, 99)], "b": [y("a", 2, 100), y("a", 3, 99)]})["out"]
        assert pairs(out) == [(1, 1), (1, 0), (1, 2), (0, 2)]
        counted = h.commit().accounting["join:pairs"]
        assert {n: counted[n] for n in ("rows", "late", "late_left", "late_right", "merged", "pairs")} == {
            "rows": 4,
            "late": 2,
            "late_left": 1,
            "late_right": 1,
            "merged": 2,
            "pairs": 4,
        }


def test_rows_that_match_nothing_any_more_are_forgotten(tmp_path: Path) -> None:
    """By slices of event time, with the batch after; a row that can match nothing is not kept at all."""
    with Harness(joined(within=(0, 8)), tmp_path) as h:
        h.batch({"a": [x("a", n, n) for n in range(0, 30, 3)], "b": [y("b", 0, 0), y("b", 1, 30)]})
        assert len(h.state("pairs")) == 12
        h.batch({"a": [x("a", 99, 30)], "b": [y("b", 2, 30)]})  # the watermark was 27
        held = [(row["_side"], row["x"], row["y"]) for row in h.state("pairs")]
        assert sorted(held, key=str) == sorted(
            [("left", n, None) for n in (21, 24, 27, 99)] + [("right", None, n) for n in (1, 2)], key=str
        )
        assert read(tmp_path, "joined", "pairs").num_rows == len(held)
        h.batch({"a": [x("a", 100, 1000)], "b": [y("b", 3, 1000)]})
        h.batch({"a": [x("a", 101, 1000)]})
        assert sorted(row["_event_time"].timestamp() for row in h.state("pairs")) == [1000, 1000, 1000]


def test_null_joins_nothing_and_nan_joins_nan(tmp_path: Path) -> None:
    """As in SQL; zero is one."""
    nan = float("nan")
    schema = "id double, k string, "
    job = Job("keys", partitions=3)
    a = source(job, "a", schema + "x long, t timestamp")
    b = source(job, "b", schema + "y long, u timestamp")
    a.join("pairs", b, on=["id", "k"], within=(seconds(0), seconds(0))).write("out", MemorySink())
    keys = [(nan, "k"), (-0.0, "k"), (0.0, None), (None, "k"), (None, None)]
    others = [(0.0, "k"), (nan, "k"), (0.0, None), (None, "k"), (nan, "l")]
    with Harness(job, tmp_path) as h:
        out = h.batch(
            {
                "a": [{"id": d, "k": s, "x": n, "t": 0} for n, (d, s) in enumerate(keys)],
                "b": [{"id": d, "k": s, "y": n, "u": 0} for n, (d, s) in enumerate(others)],
            }
        )["out"]
        assert pairs(out) == [(1, 0), (0, 1)]
        assert [*out[0]] == ["id", "k", "x", "t", "y", "u"]
        assert h.commit().accounting["join:pairs"]["null_keys"] == 5


def test_a_stream_joins_itself(tmp_path: Path) -> None:
    """A row comes to the left input before it comes to the right, and so matches itself once."""
    job = Job("self", partitions=2)
    a = source(job, "a", LEFT)
    b = a.select("id", "x AS y")
    a.join("pairs", b, on=["id"], within=(seconds(0), seconds(1))).write("out", MemorySink())
    with Harness(job, tmp_path) as h:
        h.batch({"a": [x("a", 0, 5), x("a", 1, 6)]})
        h.batch({"a": [x("a", 2, 7), x("b", 3, 7)]})
        assert sorted(pairs(h.output()["out"])) == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (3, 3)]


def test_downstream_of_a_window_and_before_one_no_row_is_late(tmp_path: Path) -> None:
    """A pair has the later event time of the two, which is not below the watermark (SEMANTICS 2.1)."""
    outputs = []
    for partitions in (1, 4):
        job = Job("chained", partitions=partitions)
        a, b = source(job, "a", LEFT), source(job, "b", RIGHT)
        sums = a.key_by("id").window("w", Tumbling(seconds(10)).drop_late()).aggregate(total=agg.sum("x"))
        made = sums.join("pairs", b, on=["id"], within=(seconds(-10), seconds(10)))
        made.write("out", MemorySink())
        again = made.key_by("id").window("v", Tumbling(seconds(20)).drop_late()).aggregate(n=agg.count())
        again.write("counts", MemorySink())
        drawn = random.Random(5)
        with Harness(job, tmp_path / str(partitions)) as h:
            for batch in range(8):
                times = [5 * batch + drawn.randrange(6) for _ in range(4)]
                h.batch(
                    {
                        "a": [x(drawn.choice("ab"), 1, t) for t in times],
                        "b": [y(drawn.choice("ab"), n, t) for n, t in enumerate(times)],
                    }
                )
            h.batch({"a": [x("z", 0, 500)], "b": [y("z", 0, 500)]})
            h.batch({"a": [x("z", 0, 501)], "b": [y("z", 0, 501)]})
            assert h.commit().totals["window:v"]["late"] == 0
            assert sum(row["n"] for row in h.output()["counts"]) == len(h.output()["out"]) > 5
            outputs.append(h.output())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("start", [{"batch": 1}, {"saved": "early"}, {"snapshot": "0"}, {"partitions": 3}], ids=str)
def test_a_restore_brings_back_what_was_held(tmp_path: Path, start: dict[str, Any]) -> None:
    """From segments, a savepoint and a data checkpoint: the rows that are read again find the same partners."""
    fed = [
        {"a": [x("a", 0, 0), x("b", 1, 1)], "b": [y("a", 0, 2)]},
        {"a": [x("a", 2, 2)], "b": [y("b", 1, 3), y("a", 2, 3)]},
        {"a": [x("b", 3, 4)], "b": [y("a", 3, 5)]},
        {"a": [x("a", 4, 6)], "b": [y("b", 4, 6)]},
    ]
    model = Model((-5, 5))
    expected = [model.batch(rows) for rows in fed]
    with Harness(joined(), tmp_path) as h:
        for number, rows in enumerate(fed):
            assert pairs(h.batch(rows)["out"]) == expected[number]
            if number == 1:
                h.save("early")
        if "partitions" in start:
            h.restore(**start, job=joined(partitions=3))
            held = [(row["x"], row["y"]) for row in h.state("pairs")]
            assert len(held) == sum(map(len, (rows[name] for rows in fed for name in "ab")))
            more = {"a": [x("a", 5, 6)], "b": [y("b", 5, 7)]}
            assert sorted(pairs(h.batch(more)["out"])) == sorted(model.batch(more))
            return
        h.restore(**start)
        assert sorted(pairs(h.run()["out"])) == sorted(pair for made in expected[2:] for pair in made)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"within": (-4, 4)}, None),
        ({"within": (-6, 5)}, "wider bounds"),
        ({"within": (-5, 6)}, "wider bounds"),
        ({"left": "id string, x long, more string, t timestamp"}, None),
        ({"left": "id string, x long, t timestamp", "right": "id string, y double, u timestamp"}, "y was int64"),
        ({"right": "id string, u timestamp, y long"}, None),
        ({"left": "id long, x long, t timestamp", "right": "id long, y long, u timestamp"}, "its keys were"),
    ],
)
def test_a_changed_job_resumes_where_its_state_fits(tmp_path: Path, change: dict[str, Any], words: str | None) -> None:
    """Narrower bounds and new columns do; the previous job resumes after a refusal (F51)."""
    with Harness(joined(), tmp_path) as h:
        h.batch({"a": [x("a", 0, 0), x("a", 1, 3)], "b": [y("a", 0, 0)]})
        job = joined(**change)
        if words is not None:
            with pytest.raises(StepsChanged, match=words):
                h.restart(job)
            return
        h.restart(job)
        expected = [(1, 7)] if "within" in change else [(0, 7), (1, 7)]
        assert pairs(h.batch({"b": [y("a", 7, 5)]})["out"]) == expected


@pytest.mark.parametrize(
    ("right", "error", "words"),
    [
        ("id string, X long, u timestamp", JobError, "both inputs of join 'pairs' have a column 'X'; rename"),
        ("id string, _batch long, u timestamp", JobError, "'_batch'"),
        ("id long, y long, u timestamp", BadExpression, "other types"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(tmp_path: Path, right: str, error: type[JobError], words: str) -> None:
    """Where the columns are known: when the job starts."""
    job = Job("joined", partitions=1)
    a, b = source(job, "a", LEFT), source(job, "b", right)
    a.join("pairs", b, on=["id"], within=(seconds(0), seconds(1))).write("out", MemorySink())
    with pytest.raises(error, match=words) as met, Harness(job, tmp_path):
        pass
    assert __file__ in str(met.value.where)
