"""The Kafka demo's independent computation, on topics small enough to work out by hand."""

from __future__ import annotations

import json
from collections import defaultdict

import pandas as pd
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.demo_kafka_check import AHEAD, NO_TIME, UNDECODABLE, Batch, Rules, decoded, expect, row_text, unread
from tools.demo_kafka_compare import counts, differences, written_otherwise
from tools.demo_kafka_records import UNFIT, Record

MINUTE = 60_000_000
NOON = 1_357_041_600_000_000  # 2013-01-01 12:00 UTC
NOW = NOON + 10**15
SMALL = Rules(bound=10, within=100, size=10)


def row(number, minutes, delay=1, **changes):
    """Return a record of a flight by its id, its minutes after noon and its delay."""
    scheduled = f"{pd.Timestamp(NOON + minutes * MINUTE, unit='us'):%Y-%m-%dT%H:%M:%SZ}"
    members = {"id": number, "origin": "EWR", "carrier": "UA", "scheduled": scheduled, "delay": delay}
    return json.dumps({**members, **changes}).encode()


def read(*batches):
    """Return the topic and the batches that read it; each is given as partition and value of its records."""
    ends, rows, made = defaultdict(int), [], []
    partitions = {partition for batch in batches for partition, _ in batch}
    for number, batch in enumerate(batches):
        starts = dict(ends)
        for partition, value in batch:
            rows.append((partition, ends[partition], value))
            ends[partition] += 1
        made.append(Batch(id=number, time=NOW, ranges={p: (starts.get(p, 0), ends[p]) for p in partitions}))
    topic = pd.DataFrame(rows, columns=["partition", "offset", "value"])
    return topic.sort_values(["partition", "offset"], ignore_index=True), made


def expected_of(*batches, rules=SMALL):
    return expect(*read(*batches), rules)


def late_ids(expected):
    return expected.late["id"].tolist()


def marks(expected):
    return [(watermark - NOON) // MINUTE for watermark in expected.late["watermark"]]


def test_the_watermark_is_the_least_of_the_partitions():
    """Partition 1 is at 12:30, so it is 12:20 less nothing: the hour of 12:05 is over two batches later."""
    expected = expected_of(
        [(0, row(1, 90)), (1, row(2, 30))],
        [(0, row(3, 91)), (1, row(4, 31))],
        [(0, row(5, 5)), (0, row(6, 10))],
    )
    assert (late_ids(expected), marks(expected)) == ([5, 6], [20, 20])


def test_a_partition_without_a_row_holds_the_watermark_back():
    """Of a record that is no row nothing is known, however late the others are."""
    expected = expected_of([(0, row(1, 90)), (1, b"{")], [(0, row(2, 91))], [(0, row(3, 0))], [(0, row(4, 1))])
    assert late_ids(expected) == []


def test_windows_judge_by_the_watermark_of_the_batch_before():
    """They follow deduplication: what the newest watermark has closed is open for one more batch."""
    for batch, is_late in ((1, False), (2, True)):
        batches = [[(0, row(1, 90))], [(0, row(2, 91))], [(0, row(3, 92))]]
        batches[batch].append((0, row(9, 5)))
        assert late_ids(expected_of(*batches)) == ([9] if is_late else [])


def test_the_first_row_of_an_id_is_the_first_by_batch_partition_and_offset():
    """The delays say which of them was counted."""
    expected = expected_of([(1, row(1, 5, 20)), (0, row(1, 5, 10))], [(0, row(1, 5, 30))])
    assert expected.windows["worst"].tolist() == [10]
    assert expected.accounting["deduplicate"] == {"rows": 3, "late": 0, "emitted": 1, "duplicates": 2}


def test_an_id_is_forgotten_when_the_watermark_reaches_its_time_and_the_span():
    """12:00 and 100 minutes is 13:40. At a watermark of 13:39 it is a duplicate, at 13:40 a first row again."""
    for highest, emitted in ((109, 2), (110, 3)):
        expected = expected_of([(0, row(1, 0)), (0, row(2, highest))], [(0, row(1, 120))])
        assert expected.accounting["deduplicate"]["emitted"] == emitted


def test_a_row_that_would_be_forgotten_at_once_is_late_for_deduplication():
    """It counts nowhere else, not even as late for the windows."""
    expected = expected_of([(0, row(1, 110))], [(0, row(2, 0)), (0, row(3, 1))], [(0, row(2, 0))])
    assert expected.accounting["deduplicate"] == {"rows": 4, "late": 2, "emitted": 2, "duplicates": 0}
    assert expected.accounting["window"]["rows"] == 2


def test_cancelled_flights_move_the_watermark_and_are_filtered():
    """So do doubles."""
    expected = expected_of([(0, row(1, 90, None))], [(0, row(1, 91, None))], [(0, row(2, 5))])
    assert expected.accounting["filter"] == {"rows": 2, "kept": 1, "filtered": 1}
    assert late_ids(expected) == [2]


@pytest.mark.parametrize("value", UNFIT[:-2], ids=range(len(UNFIT) - 2))
def test_what_is_no_object_of_the_columns_is_undecodable(value):
    """Cut off, of another type, no time, no UTF-8, no object, or no value at all."""
    (fault,) = decoded(pd.Series([value]))["fault"]
    assert fault == UNDECODABLE


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (row(1, 0), None),
        (row(1, 0, extra=[1]), None),
        (b'{"scheduled": "2013-01-01T12:00:00.5Z"}', None),
        (b"{}", NO_TIME),
        (UNFIT[-2], NO_TIME),
        (row(1, 0, id=True), UNDECODABLE),
        (row(1, 0, origin=7), UNDECODABLE),
        (b"NaN", UNDECODABLE),
    ],
)
def test_what_is_a_row(value, fault):
    """Members without a column are ignored, missing ones are null; a row needs an event time."""
    assert decoded(pd.Series([value]))["fault"].tolist() == [fault]


def test_records_in_quarantine_keep_their_text_and_move_nothing():
    """Bytes that are no UTF-8 are escaped; a time of the far future moves no watermark."""
    far = row(1, 60 + (NOW - NOON) // MINUTE + 1)
    expected = expected_of([(0, b"\xff{"), (0, None), (0, far)], [(0, row(2, 0))], [(0, row(3, 0))])
    rows = expected.quarantined
    assert rows[["offset", "fault", "raw", "batch"]].to_numpy().tolist() == [
        [0, UNDECODABLE, "\\xff{", 0],
        [1, UNDECODABLE, None, 0],
        [2, AHEAD, row_text(far.decode()), 0],
    ]
    assert expected.accounting["source"] == {"read": 5, "quarantined": 3, "passed": 2}
    assert late_ids(expected) == []


def test_an_hour_ahead_of_the_batch_is_not_too_far():
    """The bound is inclusive."""
    expected = expected_of([(0, row(1, 60 + (NOW - NOON) // MINUTE))])
    assert len(expected.quarantined) == 0


def test_one_text_stands_for_all_json_texts_of_a_row():
    """Order, nulls and digits of a second do not matter, values do."""
    texts = [
        '{"id": 1, "scheduled": "2013-01-01T12:00:00Z", "delay": null}',
        '{"scheduled":"2013-01-01T12:00:00.000Z","id":1}',
    ]
    assert row_text(texts[0]) == row_text(texts[1]) != row_text('{"id":2,"scheduled":"2013-01-01T12:00:00Z"}')


def plain(batches, rules):
    """Model the job with dicts, a row at a time; a row is partition, id, minutes and delay."""
    highest, memory, mark, before = dict.fromkeys((p for b in batches for p, *_ in b)), {}, None, None
    windows, late, counts = defaultdict(list), [], defaultdict(int)
    for batch in batches:
        for _, number, time, delay in sorted(batch, key=lambda row: row[0]):
            if mark is not None and time + rules.within <= mark:
                counts["late"] += 1
                continue
            if number in memory and (mark is None or memory[number] + rules.within > mark):
                counts["duplicates"] += 1
                continue
            memory[number] = time
            end = time // rules.size * rules.size + rules.size
            if delay is None:
                counts["filtered"] += 1
            elif before is not None and end <= before:
                late.append(number)
            else:
                windows[end].append(delay)
        for partition, _, time, _ in batch:
            highest[partition] = time if highest[partition] is None else max(time, highest[partition])
        before, mark = mark, None if None in highest.values() else min(highest.values()) - rules.bound
    return windows, late, counts


@settings(max_examples=examples(30), deadline=None)
@given(
    batches=st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 1), st.integers(0, 9), st.integers(0, 300), st.one_of(st.none(), st.integers(-9, 99))
            ),
            max_size=8,
        ),
        min_size=1,
        max_size=8,
    ).filter(any),
    bound=st.integers(0, 30),
    within=st.integers(1, 200),
)
def test_all_of_it_equals_a_model_in_plain_python(batches, bound, within):
    """Another way of counting gives the same windows, late rows and duplicates, whatever comes in which order."""
    rules = Rules(bound=bound, within=within, size=10)
    windows, late, counts = plain(batches, rules)
    expected = expected_of(*[[(p, row(n, t, d)) for p, n, t, d in batch] for batch in batches], rules=rules)
    shown = {(w.window_end - NOON) // MINUTE: (w.flights, w.worst) for w in expected.windows.itertuples()}
    assert shown == {end: (len(delays), max(delays)) for end, delays in windows.items()}
    assert late_ids(expected) == late
    deduplicated = expected.accounting["deduplicate"]
    assert (deduplicated["late"], deduplicated["duplicates"]) == (counts["late"], counts["duplicates"])
    assert expected.accounting["filter"]["filtered"] == counts["filtered"]


def test_records_that_no_batch_has_read_are_named():
    """And ranges that leave some out, or read some twice."""
    topic, batches = read([(0, row(1, 0)), (0, row(2, 0))], [(0, row(3, 0))])
    assert unread(topic, batches) == []
    assert unread(topic, batches[:1]) == ["partition 0: 1 records from 2 on were read by no batch"]
    assert unread(topic, batches[1:]) == ["partition 0: batch 1 begins at 2, and not at 0"]
    again = [*batches, Batch(id=2, time=NOW, ranges={0: (2, 3)})]
    assert unread(topic, again) == ["partition 0: batch 2 begins at 2, and not at 3"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda records: records, None),
        (lambda records: records[1:], "partition 0: 1 records and not 2, other ones from 0 on"),
        (lambda records: records[:1], "partition 0: 1 records and not 2, other ones from 1 on"),
        (lambda records: [*records, records[-1]], "partition 0: 3 records and not 2, other ones from 2 on"),
        (lambda records: records[::-1], "partition 0: 2 records and not 2, other ones from 0 on"),
        (lambda records: [*records, Record(1, b"")], "partition 1: 1 records and not 0, other ones from 0 on"),
    ],
)
def test_a_topic_that_is_not_what_was_written_is_named(damage, message):
    """A record lost, there twice, or in another place."""
    written = [Record(0, b"a"), Record(0, None)]
    topic, _ = read(damage(written))
    assert list(written_otherwise(written, topic)) == ([message] if message else [])


@pytest.fixture
def run():
    """Return what is expected of a small run that has something of everything, and the tables of a faultless one."""
    expected = expected_of(
        [(0, row(1, 90)), (0, row(2, 91, 4)), (0, UNFIT[3]), (0, UNFIT[-2])], [(0, row(1, 90))], [(0, row(3, 5))]
    )
    assert min(len(expected.windows), len(expected.late), len(expected.quarantined)) > 0
    times = {
        name: pd.to_datetime(expected.windows[name], unit="us", utc=True) for name in ("window_start", "window_end")
    }
    moments = {name: pd.to_datetime(expected.late[name], unit="us", utc=True) for name in ("scheduled", "watermark")}
    late = expected.late.drop(columns="watermark").assign(
        scheduled=moments["scheduled"],
        _event_time=moments["scheduled"],
        _watermark=moments["watermark"],
        _step="hourly",
    )
    names = {"partition": "_partition", "offset": "_position", "fault": "_reason", "raw": "_raw", "batch": "_batch"}
    held = expected.quarantined.rename(columns=names).assign(
        _source="departures", _topic_partition=[f"departures-{p}" for p in expected.quarantined["partition"]]
    )
    windows = expected.windows.assign(**times)
    newest = windows.loc[expected.newest.index]
    return expected, {"windows": windows, "newest": newest, "late": late, "quarantined": held}


def differing(expected, tables):
    return list(differences(expected, {output: {"Delta": table} for output, table in tables.items()}))


def test_a_faultless_run_has_no_differences(run):
    """Tables in any order of rows, with the engine's words on what could not be decoded."""
    expected, tables = run
    tables["quarantined"] = tables["quarantined"].replace({"_reason": {UNDECODABLE: "no JSON: line 1"}})
    assert differing(expected, {name: table.sample(frac=1, random_state=1) for name, table in tables.items()}) == []


def test_an_older_window_in_place_of_the_newest_is_named():
    """As an upsert leaves it that takes the rows of a key in another order; each key has its own newest."""
    expected = expected_of([(0, row(1, 90)), (0, row(2, 5)), (1, row(3, 30, carrier="DL"))])
    ends = [(window.carrier, (window.window_end - NOON) // MINUTE) for window in expected.newest.itertuples()]
    assert sorted(ends) == [("DL", 40), ("UA", 100)]
    oldest = expected.windows.sort_values("window_start").drop_duplicates(["origin", "carrier"])
    (missing, *_) = differences(expected, {"newest": {"PostgreSQL": oldest}})
    assert missing == "newest in PostgreSQL: missing: 1"


def test_each_place_that_has_an_output_is_compared(run):
    """What is lost in a topic is said of the topic."""
    expected, tables = run
    both = {"Delta": tables["windows"], "Kafka": tables["windows"].iloc[1:]}
    assert next(differences(expected, {"windows": both})) == "windows in Kafka: missing: 1"
    n = len(tables["windows"])
    assert list(counts(expected, {"windows": both})) == [("windows, Delta", n, n), ("windows, Kafka", n - 1, n)]


@pytest.mark.parametrize(
    ("output", "damage", "message"),
    [
        ("windows", lambda t: t.iloc[1:], "windows in Delta: missing: 1"),
        ("windows", lambda t: pd.concat([t, t.iloc[:1]]), "windows in Delta: published twice: 1"),
        ("windows", lambda t: t.assign(flights=t["flights"] + 1), "windows in Delta: flights"),
        ("windows", lambda t: t.assign(worst=t["worst"] - 1), "windows in Delta: worst"),
        ("windows", lambda t: t.assign(mean_delay=t["mean_delay"] + 1e-6), "windows in Delta: mean_delay"),
        ("newest", lambda t: t.iloc[1:], "newest in Delta: missing: 1"),
        ("newest", lambda t: t.assign(flights=t["flights"] + 1), "newest in Delta: flights"),
        ("late", lambda t: t.iloc[1:], "late in Delta: missing: 1"),
        ("late", lambda t: pd.concat([t, t]), "late in Delta: should not be there: 1"),
        ("late", lambda t: t.assign(_watermark=t["_watermark"] + pd.Timedelta(1, "us")), "late in Delta: missing"),
        ("quarantined", lambda t: t.iloc[:-1], "quarantined in Delta: missing: 1"),
        ("quarantined", lambda t: pd.concat([t, t.iloc[:1]]), "quarantined in Delta: should not be there: 1"),
        ("quarantined", lambda t: t.assign(_raw=t["_raw"] + " "), "quarantined in Delta: missing: 1"),
        ("quarantined", lambda t: t.assign(_reason=NO_TIME), "quarantined in Delta: missing: 1"),
        ("quarantined", lambda t: t.assign(_batch=7), "quarantined in Delta: missing: 2"),
        ("quarantined", lambda t: t.assign(_topic_partition="departures-1"), "quarantined in Delta: missing: 2"),
        ("quarantined", lambda t: t.assign(_position=t["_position"] + 1), "quarantined in Delta: missing: 2"),
        ("quarantined", lambda t: t.drop(columns="_raw"), "quarantined in Delta: the columns are"),
    ],
)
def test_every_kind_of_damage_is_named(run, output, damage, message):
    """One row that is lost, doubled or wrong in one table is found, and said with its count."""
    expected, tables = run
    lines = differing(expected, {**tables, output: damage(tables[output])})
    assert any(line.startswith(message) for line in lines), lines
