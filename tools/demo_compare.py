"""Compare the tables that a demo's run left with what was computed apart from the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from tools.demo_check import WINDOW, Expected, micros

__all__ = ["compare_rows", "compare_windows", "differences", "in_micros"]

_FIRST = 5


def differences(expected: Expected, tables: Mapping[str, pd.DataFrame], *, suite: str) -> Iterator[str]:
    """Yield the first few lines on each thing in which the tables of a run are not what was expected.

    `tables` maps published, quarantined and late to what a run wrote; `suite` is the name that its rules begin with.
    """
    shown = {name: in_micros(table) for name, table in tables.items()}
    yield from compare_windows("published", expected.published, shown["published"])
    quarantined = expected.quarantined.assign(rules=expected.quarantined["rules"].map(tuple))
    held_back = shown["quarantined"]
    if {"_rules", "_batch"} <= {*held_back.columns}:
        places = held_back["_rules"].map(lambda names: tuple(_place(name, suite) for name in names))
        held_back = held_back.drop(columns=["_rules", "_batch"]).assign(rules=places, batch=held_back["_batch"])
    yield from compare_windows("quarantined", quarantined, held_back, ["rules", "batch"])
    late = expected.late.rename(columns={"event_time": "_event_time", "watermark": "_watermark"})
    late = late.drop(columns=["row", "batch"]).assign(_step="hourly")
    late["time_hour"] = micros(pd.to_datetime(late["time_hour"], utc=True))
    yield from compare_rows("late", late, shown["late"])


def compare_windows(name: str, expected: pd.DataFrame, shown: pd.DataFrame, also: Sequence[str] = ()) -> Iterator[str]:
    """Yield in what a table of windows differs; a window has flights, mean_delay and worst, and the columns `also`.

    Times are int64 microseconds. Means may differ by 1e-9 of their value, as the order of a sum is not fixed.
    """
    exact = ["flights", "worst", *also]
    columns = [*WINDOW, "mean_delay", *exact]
    if sorted(shown.columns) != sorted(columns):
        yield f"{name}: the columns are {sorted(shown.columns)} and should be {sorted(columns)}"
        return
    twice = shown[shown.duplicated(WINDOW)]
    yield from _first(f"{name}: published twice", twice[WINDOW])
    both = expected[columns].merge(shown.drop_duplicates(WINDOW), on=WINDOW, how="outer", indicator=True)
    yield from _first(f"{name}: missing", both.loc[both["_merge"] == "left_only", WINDOW])
    yield from _first(f"{name}: should not be there", both.loc[both["_merge"] == "right_only", WINDOW])
    shared = both[both["_merge"] == "both"]
    for column in exact:
        wrong = shared[shared[f"{column}_x"] != shared[f"{column}_y"]]
        yield from _first(f"{name}: {column} (expected, found)", wrong[[*WINDOW, f"{column}_x", f"{column}_y"]])
    a, b = shared["mean_delay_x"].astype(float), shared["mean_delay_y"].astype(float)
    # A mean of zero has no relative error: there the sum of the delays is exact, and so is the mean.
    wrong = shared[~((a - b).abs() <= 1e-9 * a.abs())]
    yield from _first(f"{name}: mean_delay (expected, found)", wrong[[*WINDOW, "mean_delay_x", "mean_delay_y"]])


def compare_rows(name: str, expected: pd.DataFrame, shown: pd.DataFrame) -> Iterator[str]:
    """Yield which rows of a table, in any order, are missing, should not be there, or are there too often."""
    if sorted(expected.columns) != sorted(shown.columns):
        yield f"{name}: the columns are {sorted(shown.columns)} and should be {sorted(expected.columns)}"
        return
    wanted, got = Counter(_tuples(expected)), Counter(_tuples(shown[list(expected.columns)]))
    for what, rows in (("missing", wanted - got), ("should not be there", got - wanted)):
        yield from _first(f"{name}: {what}", pd.DataFrame(list(rows.elements()), columns=expected.columns))


def _first(what: str, rows: pd.DataFrame) -> Iterator[str]:
    """Yield how many rows there are and the first of them, with times as people read them."""
    if len(rows) == 0:
        return
    yield f"{what}: {len(rows):,}"
    for row in rows.head(_FIRST).to_dict("records"):
        yield "  " + ", ".join(f"{k}={_readable(str(k), v)}" for k, v in row.items())


def _readable(column: str, value: Any) -> str:
    is_time = column in {"window_start", "window_end", "_event_time", "_watermark", "time_hour", "scheduled"}
    return str(pd.Timestamp(value, unit="us", tz="UTC")) if is_time and value is not None else str(value)


def _tuples(rows: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield each row with None for a null and an int for a whole number, however the column was read."""
    columns = [[_plain(v) for v in rows[name].tolist()] for name in rows.columns]
    yield from zip(*columns, strict=True)


def _plain(value: Any) -> Any:
    if pd.isna(value):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def in_micros(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its moments as int64 microseconds since 1970."""
    times = [name for name in table.columns if isinstance(table[name].dtype, pd.DatetimeTZDtype)]
    return table.assign(**{name: micros(table[name]) for name in times})


def _place(rule: str, suite: str) -> int:
    """Return the place in the suite of a rule named suite:place:type(column)."""
    head, place, _ = rule.split(":", 2)
    if head != suite:
        raise ValueError(f"{rule} is not a rule of {suite}")
    return int(place)
