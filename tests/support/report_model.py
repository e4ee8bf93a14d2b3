"""Random results of reports, and what a plain count makes of them."""

from __future__ import annotations

import math
from collections import defaultdict

import pyarrow as pa
from hypothesis import strategies as st
from report_samples import DAY, MINUTE, START

from penstock.quality.reports.results import SCHEMA
from penstock.quality.reports.summary import DAYS

RULES = {"s:1:rows(v)": "critical", "s:2:rows(w)": "warning", "s:3:mean(v)": "critical", "s:4:sum(v)": "info"}


def a_row(**more) -> dict:
    return {
        "run": "r1", "at": START + DAY, "check": "quality", "table_version": 3, "window_start": START,
        "window_end": START + MINUTE, "rows": 9, "engine": "pandas", "rule": "s:1:rows(v)", "severity": "critical",
        "success": True, "unexpected": 0, "considered": 9, "observed": None, "shown": None, "error": None,
    } | more  # fmt: skip


def table(rows) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


NUMBERS = st.none() | st.sampled_from([0.0, -2.5, 1e300, math.nan, math.inf, -math.inf]) | st.floats(-5, 5)


@st.composite
def findings(draw, run: str, at: int, check: str):
    """Draw what one run of a suite found on some windows."""
    places = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    rows = []
    for place in sorted(places):
        start = START + place * draw(st.sampled_from([MINUTE, MINUTE, 5 * DAY]))
        length = draw(st.sampled_from([MINUTE, 2 * MINUTE]))
        if any(row["window_start"] == start and row["window_end"] == start + length for row in rows):
            continue
        window = {"window_start": start, "window_end": start + length, "rows": draw(st.integers(1, 50))}
        engine = draw(st.sampled_from(["pandas", "spark"]))
        for rule, severity in RULES.items():
            error = draw(st.sampled_from([None, None, None, "it broke"]))
            success = error is None and draw(st.booleans())
            measures = {"unexpected": None, "considered": None, "observed": None}
            if "rows" in rule and error is None:
                considered = draw(st.integers(0, 40))
                measures |= {"considered": considered, "unexpected": draw(st.integers(0, considered))}
            elif error is None:
                measures["observed"] = draw(NUMBERS)
            rows.append(a_row(run=run, at=at, check=check, engine=engine, rule=rule, severity=severity,
                              success=success, error=error, **window, **measures))  # fmt: skip
    return rows


@st.composite
def many_runs(draw):
    """Draw runs of two checks at different times, committed in any order."""
    count = draw(st.integers(1, 5))
    ats = draw(st.permutations(range(count)))
    made = [
        draw(findings(f"r{n}", START + 400 * DAY + at * MINUTE, draw(st.sampled_from(["a", "b"]))))
        for n, at in enumerate(ats)
    ]
    return [row for run in made for row in run]


def by_window(rows) -> dict:
    windows = defaultdict(list)
    for row in rows:
        windows[row["window_start"], row["window_end"]].append(row)
    return windows


def has_failed(window) -> bool:
    return any(not row["success"] and row["severity"] == "critical" for row in window)


def is_noted(window) -> bool:
    return not has_failed(window) and any(not row["success"] for row in window)


def counted(rows) -> dict:
    windows = by_window(rows).values()
    return {
        "windows": len(windows),
        "failed": sum(map(has_failed, windows)),
        "noted": sum(map(is_noted, windows)),
        "rows": sum(window[0]["rows"] for window in windows),
        "by_spark": sum(window[0]["engine"] == "spark" for window in windows),
        "first": min(row["window_start"] for row in rows),
        "last": max(row["window_end"] for row in rows),
    }


def newest_of(rows, check: str) -> list[dict]:
    """Return the rows of each window's newest run, of the windows that a history shows."""
    ours = [row for row in rows if row["check"] == check]
    kept = []
    for window in by_window(ours).values():
        at = max(row["at"] for row in window)
        kept += [row for row in window if row["at"] == at]
    newest = max(row["window_start"] for row in kept)
    return [row for row in kept if row["window_start"] > newest - DAYS * DAY]


def finite(values) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]
