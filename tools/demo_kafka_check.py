"""Compute what the departures job must publish, in plain pandas and numpy, apart from the engine.

Nothing of Penstock is imported here. What is known of a run: the records of the topic, and which offsets each batch
read, at what time. That fixes the rest, by these rules:

- A record that is no JSON object of the job's columns goes to quarantine with its bytes as text; without bytes, with
  the text of an empty object. So does a row without an event time, or with one more than an hour after the time of its
  batch, with its columns as JSON.
- The watermark of a batch comes from the rows of earlier batches, doubles and cancelled flights too. It is the least
  of the highest event times of the partitions, less the bound, and there is none before each partition had a row.
- Rows count in the order of batch, partition and offset. Deduplication keeps the first row of an id, and remembers the
  id until the watermark reaches the row's event time plus 30 days. A row is late for it where that is so already.
- A flight with a known delay counts for the hour of its event time. It is late where that hour has ended by the
  watermark of the batch before, because the window step follows deduplication.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tools.demo_check import MINUTE, Micros, aggregate, micros

__all__ = ["AHEAD", "NO_TIME", "UNDECODABLE", "Batch", "Expected", "Rules", "decoded", "expect", "row_text", "unread"]

_BEGINNING = -(2**62)
_COLUMNS = ["id", "origin", "carrier", "scheduled", "delay"]
UNDECODABLE, NO_TIME, AHEAD = "undecodable", "null event time", "too far in the future"
"""Why a record is in quarantine."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Hold what the log says of a batch: `time` in microseconds since 1970, and the offsets read by partition."""

    id: int
    time: int
    ranges: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Hold what the job says of its rows and windows; times are in minutes."""

    bound: int = 30
    within: int = 30 * 24 * 60
    size: int = 60
    ahead: int = 60


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Hold what a run must give. Times in the frames are int64 microseconds since 1970.

    `windows` has a row for each hour, airport and carrier, `late` for each late flight, `quarantined` for each record
    that is no row. `accounting` has the row counts of the whole run by step.
    """

    windows: pd.DataFrame
    late: pd.DataFrame
    quarantined: pd.DataFrame
    accounting: dict[str, dict[str, int]]

    @property
    def newest(self) -> pd.DataFrame:
        """The last window of each airport and carrier."""
        return self.windows.sort_values("window_start").drop_duplicates(["origin", "carrier"], keep="last")


def unread(records: pd.DataFrame, batches: Sequence[Batch]) -> list[str]:
    """Return in words which records no batch has read, or more than one; `records` as in `expect`."""
    problems = []
    for partition in _partitions(records):
        offsets, at = records.loc[records["partition"] == partition, "offset"], 0
        for batch in batches:
            first, last = batch.ranges.get(partition, (at, at))
            if first != at:
                problems.append(f"partition {partition}: batch {batch.id} begins at {first}, and not at {at}")
            at = last
        left = int((offsets >= at).sum())
        if left:
            problems.append(f"partition {partition}: {left:,} records from {at} on were read by no batch")
    return problems


def expect(records: pd.DataFrame, batches: Sequence[Batch], rules: Rules | None = None) -> Expected:
    """Return what the job must publish, quarantine and call late.

    Args:
        records: The topic, with `partition`, `offset` (int64) and `value` (bytes or None).
        batches: What each batch has read, in their order.
        rules: The settings of the job.
    """
    rules = rules or Rules()
    read = _in_order(records, batches)
    read = pd.concat([read, decoded(read["value"])], axis=1)
    ends = np.array([batch.time for batch in batches], dtype=np.int64) + rules.ahead * MINUTE
    ahead = read["fault"].isna() & (read["event_time"] > ends[read["at"].to_numpy()])
    read.loc[ahead, "fault"] = AHEAD
    of_rows = read["fault"].isin([NO_TIME, AHEAD])
    read.loc[of_rows, "raw"] = read.loc[of_rows, "value"].map(lambda value: row_text(value.decode()))
    rows = read[read["fault"].isna()].reset_index(drop=True)

    marks = _watermarks(rows, _partitions(records), len(batches), rules)
    first, forgotten = _deduplicated(rows, marks[rows["at"].to_numpy()], rules.within * MINUTE)
    once = rows[first]
    known = once[once["delay"].notna()]
    before = np.concatenate([[_BEGINNING], marks[:-1]])
    known = known.assign(watermark=before[known["at"].to_numpy()])
    size = rules.size * MINUTE
    known["window_start"] = known["event_time"] // size * size
    known["window_end"] = known["window_start"] + size
    is_late = known["window_end"] <= known["watermark"]
    counted, late = known[~is_late], known[is_late]
    quarantined = read[read["fault"].notna()]
    return Expected(
        windows=aggregate(counted.rename(columns={"delay": "dep_delay"})),
        late=late[[*_COLUMNS, "watermark"]].assign(scheduled=late["event_time"]).reset_index(drop=True),
        quarantined=quarantined[["partition", "offset", "fault", "raw", "batch"]].reset_index(drop=True),
        accounting={
            "source": {"read": len(read), "quarantined": len(quarantined), "passed": len(rows)},
            "deduplicate": {
                "rows": len(rows),
                "late": int(forgotten.sum()),
                "emitted": len(once),
                "duplicates": len(rows) - len(once) - int(forgotten.sum()),
            },
            "filter": {"rows": len(once), "kept": len(known), "filtered": len(once) - len(known)},
            "window": {"rows": len(known), "counted": len(counted), "late": len(late), "in_no_window": 0},
        },
    )


def _partitions(records: pd.DataFrame) -> list[int]:
    return sorted(int(partition) for partition in records["partition"].unique())


def _in_order(records: pd.DataFrame, batches: Sequence[Batch]) -> pd.DataFrame:
    """Return the records that batches have read in their order of arrival, with the `batch` and its place, `at`."""
    parts = []
    for partition in _partitions(records):
        of_partition = records[records["partition"] == partition]
        ranges = [batch.ranges.get(partition) for batch in batches]
        ends = np.maximum.accumulate(np.array([0 if r is None else r[1] for r in ranges], dtype=np.int64))
        at = np.searchsorted(ends, of_partition["offset"].to_numpy(), side="right")
        parts.append(of_partition.assign(at=at))
    read = pd.concat(parts)
    read = read[read["at"] < len(batches)].sort_values(["at", "partition", "offset"]).reset_index(drop=True)
    ids = np.array([batch.id for batch in batches], dtype=np.int64)
    return read.assign(batch=ids[read["at"].to_numpy()])


def _watermarks(rows: pd.DataFrame, partitions: list[int], batches: int, rules: Rules) -> Micros:
    """Return the watermark that each batch begins with."""
    highest = rows.groupby(["at", "partition"])["event_time"].max().unstack("partition")
    highest = highest.reindex(index=range(batches), columns=partitions).fillna(_BEGINNING).astype("int64").cummax()
    least = highest.min(axis=1).to_numpy(dtype=np.int64)
    reached = np.where(least == _BEGINNING, _BEGINNING, least - rules.bound * MINUTE)
    return np.concatenate([[_BEGINNING], reached[:-1]])


def _deduplicated(rows: pd.DataFrame, watermark: Micros, within: int) -> tuple[Any, Any]:
    """Return which rows are the first of their ids, and which are so late that nobody can tell."""
    times = rows["event_time"].to_numpy(dtype=np.int64)
    forgotten = times + within <= watermark
    first = ~forgotten
    remembered: dict[int, int] = {}
    several = rows["id"].duplicated(keep=False).to_numpy() & ~forgotten
    ids = rows["id"].to_numpy()
    for i in np.flatnonzero(several):
        since = remembered.get(ids[i])
        if since is not None and since + within > watermark[i]:
            first[i] = False
        else:
            remembered[ids[i]] = int(times[i])
    return first, forgotten


# --- records ---------------------------------------------------------------------------------


def decoded(values: pd.Series[Any]) -> pd.DataFrame:
    """Return the columns of the job for each value, its `event_time`, and why it is in quarantine.

    `fault` is null for a row, and `raw` for what can be decoded.
    """
    parsed = [_parsed(value) for value in values]
    table = pd.DataFrame([row or (None,) * len(_COLUMNS) for row in parsed], columns=_COLUMNS, index=values.index)
    given = table["scheduled"].notna()
    times = pd.to_datetime(table["scheduled"], format="ISO8601", utc=True, errors="coerce")
    is_bad = np.array([row is None for row in parsed], dtype=np.bool_) | (given & times.isna()).to_numpy()
    fault = [UNDECODABLE if bad else None if has else NO_TIME for bad, has in zip(is_bad, given, strict=True)]
    raw = [_shown(value) if bad else None for value, bad in zip(values, is_bad, strict=True)]
    event_time = micros(times.fillna(pd.Timestamp(0, tz="UTC")))
    table = table.astype({"id": "Int64", "delay": "Int64"})
    judged = pd.DataFrame({"event_time": event_time, "fault": fault, "raw": raw}, index=values.index)
    return pd.concat([table, judged.astype({"fault": object, "raw": object})], axis=1)


def _parsed(value: bytes | None) -> tuple[Any, ...] | None:
    """Return the members of an object that fit their columns, None for a value that is none."""
    try:
        row = json.loads((value or b"").decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    members = tuple(row.get(name) for name in _COLUMNS)
    whole = (members[0], members[-1])
    fits = all(m is None or (isinstance(m, int) and not isinstance(m, bool)) for m in whole)
    return members if fits and all(m is None or isinstance(m, str) for m in members[1:-1]) else None


def _shown(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def row_text(text: str) -> str:
    """Return one text for all JSON texts of a row, whatever the order of its members and the digits of its time."""
    row = {name: member for name, member in json.loads(text).items() if member is not None}
    if "scheduled" in row:
        row["scheduled"] = str(pd.Timestamp(row["scheduled"]))
    return json.dumps(row, sort_keys=True)
