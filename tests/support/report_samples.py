"""Results of quality reports, as many as a month of windows brings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.quality.reports.judge import Finding, Judged
from penstock.quality.reports.published import Window
from penstock.quality.reports.results import SCHEMA, Results

MINUTE = 60_000_000
DAY = 86_400_000_000
START = 1_704_067_200_000_000  # 2024-01-01
NOW = 1_700_000_000_000_000


def a_month(windows: int, *, alternating: bool) -> pa.Table:
    """Return results of seven rules on so many windows of a minute, a run for each 1,440 of them."""
    rules = 7
    place = np.repeat(np.arange(windows), rules)
    rule = np.tile(np.arange(rules), windows)
    bad = (place + rule) % 2 == 0 if alternating else place % 97 == 0
    columns = {
        "run": [f"r{p // 1_440}" for p in place],
        "at": START + 40 * DAY + place // 1_440 * MINUTE,
        "check": ["quality"] * len(place),
        "table_version": place // 1_440,
        "window_start": START + place * MINUTE,
        "window_end": START + (place + 1) * MINUTE,
        "rows": np.full(len(place), 500),
        "engine": ["pandas"] * len(place),
        "rule": [f"hourly_quality:{r}:expect_column_values_to_be_between(column_{r})" for r in rule],
        "severity": [("critical", "warning", "info")[r % 3] for r in rule],
        "success": ~bad,
        "unexpected": np.where(bad, 3, 0),
        "considered": np.full(len(place), 500),
        "observed": place / 7.0,
        "shown": [None] * len(place),
        "error": [None] * len(place),
    }
    return pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names})


def judged(*places, success=True, engine="pandas") -> list[Judged]:
    """Return windows with two rules each."""
    return [
        Judged(
            window=Window(place * MINUTE, (place + 1) * MINUTE, 10 + place),
            engine=engine,
            findings=(
                Finding(rule="s:1:rows(v)", severity="critical", success=success, unexpected=place, considered=9),
                Finding(rule="s:2:mean(v)", severity="info", success=False, observed=place / 4, error="why"),
            ),
            document={"results": []},
        )
        for place in places
    ]


def runs_of(results: Results) -> dict[str, int]:
    """Return how many rows each run has."""
    counted = results.read(["run"]).group_by("run").aggregate([([], "count_all")])
    return dict(zip(counted["run"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
