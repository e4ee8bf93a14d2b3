"""Sum up results: what a run found, and what became of a check over time. Pure; frames in, plain values out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from penstock.quality.reports.results import SCHEMA

__all__ = [
    "BUCKETS",
    "Bucket",
    "CheckHistory",
    "RuleSummary",
    "RunSummary",
    "Stretch",
    "history",
    "noted",
    "runs",
    "summary",
]

BUCKETS = 96
"""Bars in a plot over time at most."""
DAYS = 31
"""How far a history looks back from the newest window."""
_DAY = 86_400_000_000
_NOTED = 40
"""Runs in the note of what reports found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Windows that begin in one stretch of time: how many, and how many failed, or were noted only."""

    start: int
    windows: int
    failed: int
    noted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Windows one after the other, by place, that a rule found alike: passed, failed, or an error."""

    first: int
    count: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSummary:
    """The results of one rule over some windows.

    `worst` is the largest share of unexpected rows in a window. `shares` are one number a bucket, None for none: the
    mean share of unexpected rows, or the mean of what was observed where the rule is on a number. `low` and `high` are
    the least and the greatest that was observed.
    """

    rule: str
    severity: str
    windows: int
    failed: int
    errors: int
    worst: float | None
    low: float | None
    high: float | None
    last_failed: int | None
    shares: tuple[float | None, ...] = ()
    stretches: tuple[Stretch, ...] = ()

    @property
    def on_rows(self) -> bool:
        """Return whether it is a rule on rows."""
        return self.worst is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The result of one run. Times are microseconds since 1970."""

    id: str
    check: str
    at: int
    version: int
    windows: int
    rows: int
    failed: int
    noted: int
    by_spark: int
    first: int
    last: int

    @property
    def verdict(self) -> str:
        """Return how the run came out."""
        return "failed" if self.failed else "passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHistory:
    """The results of one check's windows, each of its newest report."""

    check: str
    windows: int
    failed: int
    noted: int
    first: int
    last: int
    buckets: tuple[Bucket, ...]
    rules: tuple[RuleSummary, ...]


def runs(rows: pa.Table) -> list[RunSummary]:
    """Return all runs, newest first."""
    frame = _frame(rows)
    return sorted((summary(part) for _, part in frame.groupby("run", sort=False, observed=True)),
                  key=lambda run: (run.at, run.id), reverse=True)  # fmt: skip


def summary(rows: pa.Table | pd.DataFrame) -> RunSummary:
    """Return what a run found; of a run with at least one window."""
    frame = rows if isinstance(rows, pd.DataFrame) else _frame(rows)
    windows = _windows(frame)
    head = frame.iloc[0]
    return RunSummary(
        id=str(head["run"]),
        check=str(head["check"]),
        at=int(head["at"]),
        version=int(head["table_version"]),
        windows=len(windows),
        rows=int(windows["rows"].sum()),
        failed=int(windows["failed"].sum()),
        noted=int((windows["noted"] & ~windows["failed"]).sum()),
        by_spark=int(windows["spark"].sum()),
        first=int(frame["window_start"].min()),
        last=int(frame["window_end"].max()),
    )


def rules_of(rows: pa.Table) -> list[RuleSummary]:
    """Return what became of each rule in a run, in the order of the suite, with its stretches over the windows."""
    return list(_rules(_frame(rows), None))


def failing(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the findings that did not pass, in the order of windows and suite."""
    bad = _frame(rows.filter(pc.invert(rows["success"]))).sort_values(["window_start", "window_end"], kind="stable")
    findings = []
    for finding in bad.to_dict("records"):
        share = finding["unexpected"] / finding["considered"] if finding["considered"] else None
        findings.append({**{str(k): None if pd.isna(v) else v for k, v in finding.items()}, "share": _number(share)})
    return findings


def history(rows: pa.Table) -> list[CheckHistory]:
    """Return the histories of all checks by name, over the newest `DAYS` days of windows."""
    frame = _frame(rows)
    if frame.empty:
        return []
    # A suite may have changed between two reports of a window: what the older one found of it counts no more.
    judged = frame[["check", "window_start", "window_end", "at", "run"]].drop_duplicates()
    newest = judged.sort_values(["at", "run"], kind="stable").drop_duplicates(
        ["check", "window_start", "window_end"], keep="last"
    )
    kept = frame.merge(newest, on=["check", "window_start", "window_end", "at", "run"])
    return [
        _check(str(name), part[part["window_start"] > part["window_start"].max() - DAYS * _DAY])
        for name, part in sorted(kept.groupby("check", observed=True), key=lambda pair: str(pair[0]))
    ]


def _check(name: str, frame: pd.DataFrame) -> CheckHistory:
    starts = np.sort(frame["window_start"].unique())
    first, last = int(starts[0]), int(frame["window_end"].to_numpy().max())
    count = min(BUCKETS, len(starts))
    width = max(1, -(-(int(starts[-1]) - first + 1) // count))
    frame = frame.assign(bucket=(frame["window_start"] - first) // width)
    windows = _windows(frame)
    windows["bucket"] = (windows.index.get_level_values("window_start") - first) // width
    windows["only_noted"] = windows["noted"] & ~windows["failed"]
    by = windows.groupby("bucket").agg(windows=("rows", "size"), failed=("failed", "sum"), noted=("only_noted", "sum"))
    by = by.reindex(range(count), fill_value=0)
    buckets = tuple(
        Bucket(start=first + place * width, windows=counts["windows"], failed=counts["failed"], noted=counts["noted"])
        for place, counts in enumerate(by.astype(int).to_dict("records"))
    )
    return CheckHistory(
        check=name,
        windows=len(windows),
        failed=int(windows["failed"].sum()),
        noted=int(windows["only_noted"].sum()),
        first=first,
        last=last,
        buckets=buckets,
        rules=tuple(_rules(frame, count)),
    )


def _rules(frame: pd.DataFrame, buckets: int | None) -> Iterator[RuleSummary]:
    """Yield what became of each rule; over time with `buckets`, else window by window."""
    for name, part in frame.groupby("rule", sort=False, observed=True):
        share = part["unexpected"] / part["considered"].where(part["considered"] > 0)
        bad = part[~part["success"]]
        shown = share if part["unexpected"].notna().any() else part["observed"]
        over = () if buckets is None else _means(shown, part["bucket"], buckets)
        observed = part["observed"].astype(float).replace([np.inf, -np.inf], np.nan)
        yield RuleSummary(
            rule=str(name),
            severity=str(part["severity"].iloc[int(part["at"].to_numpy().argmax())]),
            windows=len(part),
            failed=len(bad),
            errors=int(part["error"].notna().sum()),
            worst=_number(share.fillna(0.0).max()) if part["unexpected"].notna().any() else None,
            low=_number(observed.min()),
            high=_number(observed.max()),
            last_failed=None if bad.empty else int(bad["window_start"].to_numpy().max()),
            shares=over,
            stretches=() if buckets is not None else tuple(_stretches(part)),
        )


def _means(values: pd.Series[float], by: pd.Series[int], count: int) -> tuple[float | None, ...]:
    means = values.astype(float).replace([np.inf, -np.inf], np.nan).groupby(by).mean().reindex(range(count))
    return tuple(_number(mean) for mean in means)


def _stretches(part: pd.DataFrame) -> Iterator[Stretch]:
    ordered = part.sort_values(["window_start", "window_end"], kind="stable")
    states = np.where(ordered["error"].notna(), "error", np.where(ordered["success"], "passed", "failed"))
    begins = np.flatnonzero(np.r_[True, states[1:] != states[:-1]])
    for first, end in zip(begins, np.r_[begins[1:], len(states)], strict=True):
        yield Stretch(first=int(first), count=int(end - first), state=str(states[first]))


def _windows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row a window: its rows, whether it failed, was noted, and whether Spark judged it."""
    critical = frame["severity"] == "critical"
    marked = frame.assign(failed=critical & ~frame["success"], noted=~critical & ~frame["success"])
    marked = marked.assign(spark=frame["engine"] == "spark")
    by = marked.groupby(["window_start", "window_end"])
    columns = {"rows": by["rows"].first(), **{name: by[name].any() for name in ("failed", "noted", "spark")}}
    return pd.DataFrame(columns)


def noted(rows: pa.Table) -> str:
    """Return as JSON what lists of jobs show without the results; times are microseconds since 1970.

    That is the newest runs, oldest first, and for each check the counts of its windows.
    """
    if not rows.num_rows:
        return json.dumps({"runs": [], "checks": []})
    listed = [
        {"at": run.at, "check": run.check, "verdict": run.verdict, "windows": run.windows, "failed": run.failed}
        for run in runs(rows)[:_NOTED][::-1]
    ]
    checks = [
        {"check": check.check, "windows": check.windows, "failed": check.failed, "noted": check.noted}
        for check in history(rows)
    ]
    return json.dumps({"runs": listed, "checks": checks})


def _frame(rows: pa.Table) -> pd.DataFrame:
    """Return results as a frame with times as whole numbers and names as categories, in the order of the suite."""
    columns = {}
    for name in SCHEMA.names:
        column = rows[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        elif name in ("run", "check", "engine", "rule", "severity"):
            column = column.cast(pa.string()).dictionary_encode()
        columns[name] = column
    frame: pd.DataFrame = pa.table(columns).to_pandas()
    frame["success"] = frame["success"].astype(bool)
    return frame


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) or not np.isfinite(value) else float(value)
