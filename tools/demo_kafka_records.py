"""Make the records that the Kafka demo writes: departures as they leave, some late, some twice, some undecodable.

They follow from the flights and a seed alone. Nothing of Penstock is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

__all__ = ["AIRPORTS", "UNFIT", "Record", "records_of"]

AIRPORTS = ("EWR", "JFK", "LGA")
"""The airport of each partition."""
LATE, TWICE, BAD = 0.005, 0.01, 0.003
"""Shares of the flights that are held up, and that are written twice; and of records to be put aside, beside them."""
_HELD_UP = (3_000, 40_000)
"""How many others pass a record that is held up: a day has about 920 departures."""
_AGAIN = (1, 12_000)
"""How many others come between a record and its double."""
_MINUTE = 60_000_000_000

UNFIT: tuple[bytes | None, ...] = (
    None,
    b"",
    b'{"id": 17, "origin": "EWR", "carr',
    b'{"id": "17", "origin": "EWR", "carrier": "UA", "scheduled": "2013-01-01T10:15:00Z", "delay": 2}',
    b'{"id": 17, "origin": "EWR", "carrier": "UA", "scheduled": "2013-01-01T10:15:00Z", "delay": 2.5}',
    b'{"id": 17, "origin": "EWR", "carrier": "UA", "scheduled": "a quarter past ten", "delay": 2}',
    b'{"id": 17, "origin": "E\xff\xfeR", "carrier": "UA", "scheduled": "2013-01-01T10:15:00Z", "delay": 2}',
    b'[17, "EWR", "UA", "2013-01-01T10:15:00Z", 2]',
    b'{"id": 17, "origin": "EWR", "carrier": "UA", "scheduled": null, "delay": 2}',
    b'{"id": 17, "origin": "EWR", "carrier": "UA", "scheduled": "2113-01-01T10:15:00Z", "delay": 2}',
)
"""Records that the job cannot take: the last two can be decoded, and have no event time or one of the far future."""


class Record(NamedTuple):
    """A record by its partition and its value."""

    partition: int
    value: bytes | None


def records_of(flights: pd.DataFrame, *, seed: int) -> list[Record]:
    """Return the records in the order in which they are written.

    A flight comes as it leaves, its scheduled time plus its delay, into the partition of its airport. A double comes
    into any partition: each partition has its own pace, so it may be read before the record that it repeats.
    """
    rng = np.random.default_rng(seed)
    scheduled = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], unit="min")
    left = scheduled.astype("int64") + flights["dep_delay"].fillna(0).to_numpy(dtype=np.int64) * _MINUTE
    flights = flights.assign(scheduled=scheduled.dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    flights = flights.iloc[np.argsort(left.to_numpy(), kind="stable")]
    written = _written(flights)
    n = len(written)

    places = np.arange(n, dtype=np.float64)
    held_up = rng.random(n) < LATE
    places[held_up] += rng.uniform(*_HELD_UP, int(held_up.sum()))
    twice = np.flatnonzero(rng.random(n) < TWICE)
    doubles = [Record(int(rng.integers(len(AIRPORTS))), written[i].value) for i in twice]
    bad = [Record(int(rng.integers(len(AIRPORTS))), UNFIT[i % len(UNFIT)]) for i in range(round(n * BAD))]
    every = [
        places,
        places[twice] + rng.uniform(*_AGAIN, len(twice)),
        rng.uniform(0, n, len(bad)),
    ]
    order = np.argsort(np.concatenate(every), kind="stable")
    records = [*written, *doubles, *bad]
    return [records[i] for i in order]


def _written(flights: pd.DataFrame) -> list[Record]:
    """Return a record for each flight, numbered by its place in the file."""
    columns: Sequence[Any] = [flights.index, *(flights[c] for c in ("origin", "carrier", "scheduled", "dep_delay"))]
    partitions = {airport: i for i, airport in enumerate(AIRPORTS)}
    return [
        Record(
            partitions[origin],
            f'{{"id": {number}, "origin": "{origin}", "carrier": "{carrier}", "scheduled": "{scheduled}", '
            f'"delay": {"null" if delay is pd.NA else delay}}}'.encode(),
        )
        for number, origin, carrier, scheduled, delay in zip(*columns, strict=True)
    ]
