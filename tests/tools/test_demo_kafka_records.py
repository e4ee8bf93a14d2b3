"""What the Kafka demo writes: every departure, some of them late or twice, and records that the job cannot take."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from tools.demo_kafka_records import AIRPORTS, UNFIT, records_of

N = 20_000


@pytest.fixture(scope="module")
def flights():
    """Return flights, one a minute, each of which leaves when it is due; every seventh is cancelled."""
    times = pd.date_range("2013-01-01", periods=N, freq="min", tz="UTC")
    delays = pd.array([None if i % 7 == 0 else 0 for i in range(N)], "Int64")
    columns = {"time_hour": times.floor("h"), "minute": times.minute, "dep_delay": delays, "carrier": "UA"}
    return pd.DataFrame({**columns, "origin": np.array(AIRPORTS)[np.arange(N) % 3]})


@pytest.fixture(scope="module")
def records(flights):
    return records_of(flights, seed=1)


def test_a_seed_gives_the_same_records(flights, records):
    """So two runs of the demo write the same, and another seed does not."""
    assert records_of(flights, seed=1) == records
    assert records_of(flights, seed=2) != records


def test_every_flight_is_there_and_about_one_in_a_hundred_twice(flights, records):
    """A double has the bytes of the first; a cancelled flight has no delay."""
    values = [record.value for record in records if record.value not in UNFIT]
    ids = Counter(json.loads(value)["id"] for value in values)
    assert sorted(ids) == list(range(N))
    twice = sum(n == 2 for n in ids.values())
    assert 100 < twice < 300
    assert {*ids.values()} == {1, 2}
    assert len({*values}) == N
    assert json.loads(values[0])["delay"] is None


def test_a_flight_comes_into_the_partition_of_its_airport_and_a_double_into_any(flights, records):
    """A second producer knows nothing of the first."""
    seen, astray = set(), 0
    for record in records:
        if record.value in UNFIT:
            continue
        row = json.loads(record.value)
        astray += AIRPORTS[record.partition] != row["origin"]
        seen.add(row["id"])
    assert 50 < astray < 250


def test_flights_come_as_they_leave_but_some_far_too_late(records):
    """Thousands of others come before them, which is days of departures."""
    ids = [json.loads(record.value)["id"] for record in records if record.value not in UNFIT]
    first = {number: place for place, number in reversed([*enumerate(ids)])}
    late = sum(place - number > 2_000 for number, place in first.items())
    assert 20 < late < 200


def test_every_kind_of_unfit_record_is_there(records):
    """In the whole of the topic, not at its end."""
    places = [i for i, record in enumerate(records) if record.value in UNFIT]
    assert {records[i].value for i in places} == {*UNFIT}
    assert len(places) == 60
    assert places[0] < N / 10
    assert places[-1] > N * 0.9
