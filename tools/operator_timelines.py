"""Draw the timelines of docs/operators by runs of the Harness: rows as they came, and what each operator made of them.

python -m tools.operator_timelines            # print them
python -m tools.operator_timelines --write    # put them in place
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock import Job, agg, count, seconds
from penstock.evictors import KeepLast
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.triggers import Every
from penstock.windows import Cumulative, GlobalWindow, Session, Sliding, Tumbling, drop_late
from tools.drawings import PICTURES
from tools.timeline import Bar, Dot, Lane, Timeline, drawn

__all__ = ["SCENARIOS", "picture"]

Row = dict[str, Any]
_SCHEMA = "k string, t timestamp, v long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A job, and the rows of its batches, of which each has `t`, in seconds.

    `label` says what stands beside a row that came in, and `shown` beside what came out. `spans` is whether that are
    windows, with bounds. `drained` is whether a watermark behind everything closes the run.
    """

    title: str
    ticks: Sequence[float]
    build: Callable[[], Job]
    batches: Sequence[Mapping[str, Sequence[Row]]]
    shown: Callable[[Row], str]
    label: Callable[[Row], str] = lambda row: str(row["v"])
    spans: bool = True
    at: Callable[[Row], float] = lambda row: _seconds(row["t"])


def _seconds(at: float | datetime) -> float:
    return at.astimezone(UTC).timestamp() if isinstance(at, datetime) else at


def timeline(scenario: Scenario) -> Timeline:
    """Run a scenario, and return what happened."""
    inputs: dict[str, list[Dot]] = {}
    outputs: dict[str, list[Dot]] = {}
    bars: list[Bar] = []
    watermarks: list[float | None] = []
    with tempfile.TemporaryDirectory() as root, Harness(scenario.build(), root) as h:
        for number, fed in enumerate(scenario.batches):
            for source, rows in fed.items():
                dots = [Dot(at=_seconds(row["t"]), label=scenario.label(row), batch=number) for row in rows]
                inputs.setdefault(source, []).extend(dots)
            for sink, made in h.batch(fed).items():
                for row in made:
                    label = scenario.shown(row)
                    if scenario.spans and sink == "out":
                        start, end = _seconds(row["window_start"]), _seconds(row["window_end"])
                        bars.append(Bar(start=start, end=end, label=label, batch=number))
                    else:
                        dot = Dot(at=scenario.at(row), label=label, batch=number)
                        outputs.setdefault(sink, []).append(dot)
            closed = [mark for mark in h.commit().watermarks_in.values() if mark is not None]
            watermarks.append(closed[0] / 1_000_000 if closed else None)
    return Timeline(
        title=scenario.title,
        inputs=[Lane(name=name, dots=dots) for name, dots in inputs.items()],
        outputs=[Lane(name=name, dots=dots) for name, dots in outputs.items()],
        bars=bars,
        watermarks=watermarks,
        ticks=scenario.ticks,
    )


def _rows(*given: tuple[str, float, int]) -> list[Row]:
    return [{"k": key, "t": at, "v": value} for key, at, value in given]


def _windows(window: Any) -> Callable[[], Job]:
    def build() -> Job:
        job = Job("timeline", partitions=2)
        rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
        made = rows.key_by("k").window("w", window).aggregate(n=agg.count(), total=agg.sum("v"))
        made.write("out", MemorySink())
        return job

    return build


def _deduplicated() -> Job:
    job = Job("timeline", partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    rows.deduplicate("d", by=["k"], within=seconds(20)).write("out", MemorySink())
    return job


def _joined() -> Job:
    job = Job("timeline", partitions=2)
    orders = job.source("orders", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    paid = job.source(
        "payments", MemorySource("k string, t timestamp, v long"), event_time="t", max_out_of_order=seconds(5)
    )
    pairs = orders.select("k", "v AS ordered").join(
        "j", paid.select("k", "v AS paid", "t AS at"), on=["k"], within=(seconds(0), seconds(10))
    )
    pairs.write("out", MemorySink())
    return job


def _triggered() -> Job:
    job = Job("timeline", partitions=2)
    rows = job.source("rows", MemorySource(_SCHEMA), event_time="t", max_out_of_order=seconds(5))
    window = GlobalWindow().trigger(Every(count(3))).evict(KeepLast(4))
    made = rows.key_by("k").window("w", window).aggregate(values=agg.collect("v", limit=9), newest=agg.max("t"))
    made.write("out", MemorySink())
    return job


def _sums(row: Row) -> str:
    return f"n {row['n']}, sum {row['total']}"


_BATCHES = (
    {"rows": _rows(("a", 2, 1), ("a", 8, 2), ("a", 13, 3))},
    {"rows": _rows(("a", 9, 4), ("a", 21, 5))},
    {"rows": _rows(("a", 17, 6), ("a", 36, 7))},
)
"""Out of order by up to five seconds, so that none is late."""
_TICKS = (0, 10, 20, 30, 40)

SCENARIOS: Mapping[str, Scenario] = {
    "tumbling": Scenario(
        title="Tumbling(seconds(10)), rows at most 5 s out of order",
        ticks=_TICKS,
        build=_windows(Tumbling(seconds(10)).drop_late()),
        batches=_BATCHES,
        shown=_sums,
    ),
    "sliding": Scenario(
        title="Sliding(seconds(20), every=seconds(10)): each row is in two windows",
        ticks=(-10, *_TICKS),
        build=_windows(Sliding(seconds(20), every=seconds(10)).drop_late()),
        batches=_BATCHES,
        shown=_sums,
    ),
    "cumulative": Scenario(
        title="Cumulative(seconds(20), step=seconds(5)): the sum so far, every 5 s",
        ticks=_TICKS,
        build=_windows(Cumulative(seconds(20), step=seconds(5)).drop_late()),
        batches=_BATCHES,
        shown=_sums,
    ),
    "revisions": Scenario(
        title="Tumbling(seconds(10)).update_late(within=seconds(20), …): a late row revises its window",
        ticks=_TICKS,
        build=_windows(Tumbling(seconds(10)).update_late(within=seconds(20), then=drop_late())),
        batches=(
            {"rows": _rows(("a", 2, 1), ("a", 8, 2), ("a", 13, 3))},
            {"rows": _rows(("a", 22, 4))},
            {"rows": _rows(("a", 6, 5), ("a", 33, 6))},
        ),
        shown=lambda row: f"{row['_pane']} {row['_revision']}: {_sums(row)}",
    ),
    "session": Scenario(
        title="Session(seconds(8)): a row out of order joins two sessions into one",
        ticks=(0, 10, 20, 30, 40, 50),
        build=_windows(Session(seconds(8)).drop_late()),
        batches=(
            {"rows": _rows(("a", 2, 1), ("a", 13, 2))},
            {"rows": _rows(("a", 8, 3), ("a", 30, 4))},
            {"rows": _rows(("a", 48, 5))},
        ),
        shown=_sums,
    ),
    "deduplicate": Scenario(
        title='deduplicate(by=["k"], within=seconds(20)): the first row of each key, until it is forgotten',
        ticks=(0, 10, 20, 30, 40, 50),
        build=_deduplicated,
        batches=(
            {"rows": _rows(("a", 2, 1), ("b", 6, 1), ("a", 9, 2))},
            {"rows": _rows(("b", 21, 2), ("c", 30, 1))},
            {"rows": _rows(("a", 33, 3))},
            {"rows": _rows(("b", 44, 3))},
        ),
        label=lambda row: f"{row['k']}{row['v']}",
        shown=lambda row: f"{row['k']}{row['v']}",
        spans=False,
    ),
    "join": Scenario(
        title="join(within=(seconds(0), seconds(10))): a payment at most 10 s after its order",
        ticks=_TICKS,
        build=_joined,
        batches=(
            {"orders": _rows(("a", 3, 1), ("b", 6, 2)), "payments": _rows(("a", 9, 1))},
            {"orders": _rows(("a", 15, 3)), "payments": _rows(("b", 14, 2), ("a", 27, 4))},
        ),
        label=lambda row: f"{row['k']}{row['v']}",
        shown=lambda row: f"{row['k']}: {row['ordered']} and {row['paid']}",
        spans=False,
        at=lambda row: _seconds(row["at"]),
    ),
    "triggers": Scenario(
        title="GlobalWindow().trigger(Every(count(3))).evict(KeepLast(4)): judged once a batch, after its rows",
        ticks=_TICKS,
        build=_triggered,
        batches=(
            {"rows": _rows(("a", 2, 1), ("a", 8, 2))},
            {"rows": _rows(("a", 13, 3), ("a", 9, 4), ("a", 21, 5))},
            {"rows": _rows(("a", 25, 6))},
            {"rows": _rows(("a", 30, 7), ("a", 36, 8))},
        ),
        shown=lambda row: f"rows {', '.join(map(str, row['values']))}",
        spans=False,
        at=lambda row: _seconds(row["newest"]),
    ),
}


def picture(name: str) -> str:
    """Return a picture, drawn of a run that is made now."""
    return drawn(timeline(SCENARIOS[name]))


def main() -> int:
    """Print the pictures, or put them in place."""
    for name in SCENARIOS:
        made = picture(name)
        if "--write" in sys.argv[1:]:
            (PICTURES / f"operator-{name}.svg").write_text(made, encoding="utf-8")
        else:
            print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
