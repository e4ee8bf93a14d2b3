"""Compare what the departures job has written, in each place, with what `tools.demo_kafka_check` computed.

A sink that the job gets has one more line in `places`: how its rows are read back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from tools.demo_compare import compare_rows, compare_windows, in_micros
from tools.demo_kafka_check import AHEAD, NO_TIME, UNDECODABLE, Expected, row_text
from tools.demo_kafka_records import Record
from tools.kafka_topic import read_topic

__all__ = ["Places", "counts", "differences", "places", "written_otherwise"]

Places = Mapping[str, Mapping[str, Callable[[], pd.DataFrame]]]
"""By output of the job, `windows`, `newest`, `late` and `quarantined`, the places that have it.

A place has a name, and a function that reads it.
"""


def places(tables: Mapping[str, Path], servers: str, dsn: str) -> Places:
    """Return where the job writes: the paths of the tables in its file by name, its brokers, and its database."""
    hourly = tables["hourly_departures"]
    return {
        "windows": {
            "Delta": lambda: _delta(hourly),
            "Kafka": lambda: _windows_in(servers, "hourly-departures"),
            "PostgreSQL": lambda: _database(dsn, "hourly_departures"),
        },
        "newest": {"PostgreSQL": lambda: _database(dsn, "newest_departures")},
        "late": {"Delta": lambda: _delta(tables["late_departures"])},
        "quarantined": {"Delta": lambda: _delta(tables["undecodable"])},
    }


def counts(expected: Expected, shown: Mapping[str, Mapping[str, pd.DataFrame]]) -> Iterator[tuple[str, int, int]]:
    """Yield for each place its name, the rows that it has, and those that it should have."""
    wanted = {name: getattr(expected, name) for name in _WORDS}
    for output, tables in shown.items():
        for place, table in tables.items():
            yield f"{_WORDS[output]}, {place}", len(table), len(wanted[output])


def differences(expected: Expected, shown: Mapping[str, Mapping[str, pd.DataFrame]]) -> Iterator[str]:
    """Yield the first few lines on each thing in which a place, by what was read of it, is not as expected."""
    for output, tables in shown.items():
        for place, table in tables.items():
            yield from _COMPARE[output](f"{output} in {place}", expected, in_micros(table))


def written_otherwise(records: Sequence[Record], topic: pd.DataFrame) -> Iterator[str]:
    """Yield for each partition of the topic where it is not what was written: lost, twice or in another order."""
    for partition in sorted({record.partition for record in records} | {*topic["partition"].tolist()}):
        wanted = [record.value for record in records if record.partition == partition]
        shown = topic.loc[topic["partition"] == partition, "value"].tolist()
        if shown != wanted:
            at = next(
                (i for i, (a, b) in enumerate(zip(wanted, shown, strict=False)) if a != b),
                min(map(len, (wanted, shown))),
            )
            yield f"partition {partition}: {len(shown):,} records and not {len(wanted):,}, other ones from {at:,} on"


_TIMES = ("window_start", "window_end")
_WORDS = {
    "windows": "windows",
    "newest": "newest windows",
    "late": "late departures",
    "quarantined": "in quarantine",
}


def _windows(name: str, expected: Expected, shown: pd.DataFrame) -> Iterator[str]:
    yield from compare_windows(name, expected.windows, shown)


def _newest(name: str, expected: Expected, shown: pd.DataFrame) -> Iterator[str]:
    yield from compare_windows(name, expected.newest, shown)


def _late(name: str, expected: Expected, shown: pd.DataFrame) -> Iterator[str]:
    late = expected.late.assign(_event_time=expected.late["scheduled"], _step="hourly")
    yield from compare_rows(name, late.rename(columns={"watermark": "_watermark"}), shown)


def _quarantined(name: str, expected: Expected, shown: pd.DataFrame) -> Iterator[str]:
    """Compare partition, offset, text, batch and the kind of reason; the words on a text are of the engine."""
    names = {"partition": "_partition", "offset": "_position", "fault": "_reason", "raw": "_raw", "batch": "_batch"}
    wanted = expected.quarantined.rename(columns=names).assign(_source="departures")
    wanted["_topic_partition"] = "departures-" + wanted["_partition"].astype(str)
    if {"_reason", "_raw"} <= {*shown.columns}:
        is_row = shown["_reason"].isin([AHEAD, NO_TIME])
        raw = shown["_raw"].where(~is_row, shown.loc[is_row, "_raw"].map(row_text))
        shown = shown.assign(_reason=shown["_reason"].where(is_row, UNDECODABLE), _raw=raw)
    yield from compare_rows(name, wanted, shown)


_COMPARE = {"windows": _windows, "newest": _newest, "late": _late, "quarantined": _quarantined}


def _windows_in(servers: str, topic: str) -> pd.DataFrame:
    """Return the windows that a topic has, as readers of committed records see them."""
    values = read_topic(servers, topic)["value"]
    rows = pd.DataFrame([json.loads(value) for value in values])
    return rows.assign(**{name: pd.to_datetime(rows[name], format="ISO8601", utc=True) for name in _TIMES})


def _database(dsn: str, table: str) -> pd.DataFrame:
    """Return the windows that a table of PostgreSQL has."""
    import psycopg
    from psycopg.sql import SQL, Identifier

    with psycopg.connect(dsn) as connection:
        cursor = connection.execute(SQL("SELECT * FROM {}").format(Identifier(table)))
        rows = pd.DataFrame(cursor.fetchall(), columns=[column.name for column in cursor.description or ()])
    return rows.assign(**{name: pd.to_datetime(rows[name], utc=True) for name in _TIMES})


def _delta(path: Path) -> pd.DataFrame:
    from deltalake import DeltaTable

    return DeltaTable(str(path)).to_pandas()
