"""Compute what the flights job must publish, in plain pandas and numpy, apart from the engine.

Nothing of Penstock is imported here, and nothing of a run is read but its tables.
What is known: the order of the replay, the rows of a batch, the bound on disorder, the windows, the suite's numbers.

The rules, in words:

- A flight's event time is its scheduled departure. It is replayed at its actual one; a cancelled flight, as if on time.
- The watermark of a batch is the highest event time of all rows of earlier batches, cancelled flights too, less the
  bound.
- A flight with a known delay counts for each window that ends after the watermark of its batch, and is late when there
  is none. A window is published once, in the first batch whose watermark has reached its end; after the last row all
  windows are.
- A window's rows, of all origins and carriers, pass the suite together. Where a critical rule on rows fails, the rows
  that fail it go to quarantine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["WINDOW", "Expected", "Replay", "expect", "micros", "read_flights", "read_suite"]

Micros = npt.NDArray[np.int64]

MINUTE = 60_000_000
KEYS = ["origin", "carrier"]
WINDOW = [*KEYS, "window_start", "window_end"]
_BEGINNING = -(2**62)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Hold what the job says of its input and its windows; times are in minutes."""

    rows_per_batch: int = 5_000
    bound: int = 30
    size: int = 60
    every: int = 10


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Hold what a run must give. Times in the frames are int64 microseconds since 1970.

    `published` and `quarantined` have a row for each window, origin and carrier, `late` one for each late flight.
    `accounting` has the row counts of the whole run by step, `verdicts` the number of windows by verdict.
    `batches` counts the one without rows that closes the last windows.
    """

    published: pd.DataFrame
    quarantined: pd.DataFrame
    late: pd.DataFrame
    accounting: dict[str, dict[str, int]]
    verdicts: dict[str, int]
    batches: int


def read_flights(path: Path) -> pd.DataFrame:
    """Return the CSV in the order of the file; "NA" and nothing else is a null."""
    return pd.read_csv(path, na_values=["NA"], keep_default_na=False, dtype={"dep_delay": "Int64"})


def read_suite(path: Path) -> dict[str, Any]:
    """Return a suite as the JSON it is."""
    suite: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return suite


def expect(flights: pd.DataFrame, suite: Mapping[str, Any], replay: Replay | None = None) -> Expected:
    """Return what the job must publish, quarantine and call late."""
    replay = replay or Replay()
    rows, marks = replayed(flights, replay)
    known = rows[rows["dep_delay"].notna()]
    spread = windows_of(known, replay)
    spread = spread[spread["window_end"] > spread["watermark"]]
    counted_in = spread.groupby("row").size().reindex(known["row"], fill_value=0)
    late = known[(counted_in == 0).to_numpy()]
    windows = aggregate(spread)
    # The watermarks never fall, so the first batch that has reached an end is found by bisection.
    windows["batch"] = np.searchsorted(marks, windows["window_end"].to_numpy())
    sentenced, verdicts = judge(windows, suite)
    withheld = sentenced["withheld"].to_numpy()
    per_flight = replay.size // replay.every
    return Expected(
        published=sentenced[~withheld].reset_index(drop=True),
        quarantined=sentenced[withheld].reset_index(drop=True),
        late=late.reset_index(drop=True),
        accounting={
            "source": {"read": len(rows), "quarantined": 0, "passed": len(rows)},
            "filter": {"rows": len(rows), "kept": len(known), "filtered": len(rows) - len(known)},
            "window": {
                "rows": len(known),
                "counted": len(known) - len(late),
                "late": len(late),
                "in_no_window": 0,
                "partly_late": int(((counted_in > 0) & (counted_in < per_flight)).sum()),
            },
            "check": {
                "in": len(windows),
                "published": int((~withheld).sum()),
                "dropped": 0,
                "quarantined": int(withheld.sum()),
                "held": 0,
            },
        },
        verdicts=verdicts,
        batches=len(marks),
    )


def replayed(flights: pd.DataFrame, replay: Replay) -> tuple[pd.DataFrame, Micros]:
    """Return the flights in the order of the replay, with `row`, `event_time`, `batch` and `watermark`.

    Beside them the watermark of each batch, with the one that follows the last row: the end of time.
    """
    scheduled = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], unit="min")
    time = micros(scheduled)
    delay = flights["dep_delay"].fillna(0).to_numpy(dtype=np.int64)
    order = np.argsort(time + delay * MINUTE, kind="stable")
    rows = flights.iloc[order].reset_index(drop=True)
    rows["row"] = np.arange(len(rows))
    rows["event_time"] = time[order]
    rows["batch"] = rows["row"] // replay.rows_per_batch
    highest = rows.groupby("batch")["event_time"].max().cummax().to_numpy()
    marks = np.concatenate([[_BEGINNING], highest[:-1] - replay.bound * MINUTE, [np.iinfo(np.int64).max]])
    rows["watermark"] = marks[rows["batch"].to_numpy()]
    return rows, marks


def windows_of(rows: pd.DataFrame, replay: Replay) -> pd.DataFrame:
    """Return each row once for each window that holds its event time."""
    every = replay.every * MINUTE
    newest = rows["event_time"] // every * every
    copies = []
    for back in range(replay.size // replay.every):
        start = newest - back * every
        copies.append(rows[["row", *KEYS, "dep_delay", "watermark"]].assign(window_start=start))
    spread = pd.concat(copies, ignore_index=True)
    return spread.assign(window_end=spread["window_start"] + replay.size * MINUTE)


def aggregate(spread: pd.DataFrame) -> pd.DataFrame:
    """Return flights, mean_delay and worst for each window, origin and carrier."""
    delays = spread.assign(dep_delay=spread["dep_delay"].astype("int64"))
    grouped = delays.groupby(WINDOW, sort=True)["dep_delay"]
    return grouped.agg(flights="size", mean_delay="mean", worst="max").reset_index()


def micros(times: pd.Series[Any]) -> Micros:
    """Return moments as int64 microseconds since 1970."""
    return np.asarray(times.astype("datetime64[us, UTC]").astype("int64"), dtype=np.int64)


# --- the gate --------------------------------------------------------------------------------


def judge(windows: pd.DataFrame, suite: Mapping[str, Any]) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the windows with `withheld` and the places of the `rules` each row fails, and the verdicts counted.

    `noted` are the windows for which a rule that decides nothing failed.
    ValueError names a rule that this check does not know, and one that would hold a whole window.
    """
    unit = windows["window_end"]
    failed_unit = pd.Series(data=False, index=windows.index)
    noted_unit = failed_unit.copy()
    withheld = failed_unit.copy()
    rules: list[list[int]] = [[] for _ in range(len(windows))]
    for place, rule in enumerate(suite["expectations"], start=1):
        critical = rule.get("severity", "critical") == "critical"
        if rule["type"] == "expect_table_row_count_to_be_between":
            count = unit.map(unit.value_counts())
            outside = ~count.between(rule["kwargs"]["min_value"], rule["kwargs"]["max_value"])
            if outside.any():
                raise ValueError(
                    f"rule {place} fails for whole windows, which would be held; this check knows rows only"
                )
            continue
        bad = _unexpected(windows, rule)
        rows, unexpected = bad.groupby(unit).transform("size"), bad.groupby(unit).transform("sum")
        fails = (rows - unexpected) / rows < rule["kwargs"].get("mostly", 1.0)
        if critical:
            failed_unit |= fails
            withheld |= bad & fails
            for row in np.flatnonzero(bad.to_numpy()):
                rules[row].append(place)
        else:
            noted_unit |= fails
    judged = windows.assign(withheld=withheld, rules=pd.Series(rules, index=windows.index, dtype=object))
    ends = int(unit.nunique())
    failed = int(unit[failed_unit].nunique())
    return judged, {"passed": ends - failed, "failed": failed, "noted": int(unit[noted_unit].nunique())}


def _unexpected(windows: pd.DataFrame, rule: Mapping[str, Any]) -> pd.Series[bool]:
    """Return which rows fail a rule on rows; no column of these windows holds a null."""
    kwargs = rule["kwargs"]
    column: pd.Series[Any] = windows[kwargs["column"]]
    bad: pd.Series[bool]
    match rule["type"]:
        case "expect_column_values_to_not_be_null":
            bad = column.isna()
        case "expect_column_values_to_be_in_set":
            bad = ~column.isin(kwargs["value_set"])
        case "expect_column_values_to_match_regex":
            bad = ~column.str.contains(kwargs["regex"], regex=True)
        case "expect_column_values_to_be_between":
            bad = ~column.between(kwargs["min_value"], kwargs["max_value"])
        case unknown:
            raise ValueError(f"this check does not know {unknown}")
    return bad
