"""The demo's independent computation, on data small enough to work out by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.demo_check import Replay, expect, read_flights, replayed
from tools.demo_compare import differences

MINUTE = 60_000_000
NOON = 1_357_041_600_000_000  # 2013-01-01 12:00 UTC
SMALL = Replay(rows_per_batch=2, bound=30)


def suite(*expectations):
    return {"name": "gate", "expectations": list(expectations)}


def between(column, low, high, *, mostly=1.0, severity="critical"):
    kwargs = {"column": column, "min_value": low, "max_value": high, "mostly": mostly}
    return {"type": "expect_column_values_to_be_between", "kwargs": kwargs, "severity": severity}


OPEN = suite(between("flights", 0, 1_000))


def flights(*rows, carrier="UA"):
    """Make flights of (scheduled minutes after noon, delay or None), from EWR, numbered as in the file."""
    columns = ("time_hour", "minute", "dep_delay", "origin", "carrier", "flight")
    flown = []
    for number, (scheduled, delay) in enumerate(rows):
        hour = pd.Timestamp(NOON, unit="us") + pd.Timedelta(hours=scheduled // 60)
        flown.append((f"{hour:%Y-%m-%dT%H:%M:%SZ}", scheduled % 60, delay, "EWR", carrier, number))
    return pd.DataFrame(flown, columns=columns).astype({"dep_delay": "Int64"})


def tables(expected):
    """Return tables as a faultless run would have written them."""

    def written(windows):
        times = {name: pd.to_datetime(windows[name], unit="us", utc=True) for name in ("window_start", "window_end")}
        return windows.assign(**times)

    kept = ["origin", "carrier", "window_start", "window_end", "flights", "mean_delay", "worst"]
    names = expected.quarantined["rules"].map(lambda places: [f"gate:{p}:a_rule(column)" for p in places])
    late = expected.late.rename(columns={"event_time": "_event_time", "watermark": "_watermark"})
    shown = ("time_hour", "_event_time", "_watermark")
    units = {name: None if name == "time_hour" else "us" for name in shown}
    times = {name: pd.to_datetime(late[name], unit=units[name], utc=True) for name in shown}
    return {
        "published": written(expected.published[kept]),
        "quarantined": written(expected.quarantined[kept]).assign(_rules=names, _batch=expected.quarantined["batch"]),
        "late": late.drop(columns=["row", "batch"]).assign(**times, _step="hourly"),
    }


def test_flights_are_replayed_at_their_actual_departure():
    """The order is scheduled time plus delay; a cancelled flight counts as on time, and ties keep the file's order."""
    rows, _ = replayed(flights((10, 20), (30, 0), (5, None), (29, 1), (0, 6)), SMALL)
    assert rows["flight"].tolist() == [2, 4, 0, 1, 3]
    assert ((rows["event_time"] - NOON) // MINUTE).tolist() == [5, 0, 10, 30, 29]


def test_the_watermark_of_a_batch_comes_from_the_rows_of_earlier_batches():
    """It is their highest event time less the bound, cancelled flights included, and it never falls."""
    _, marks = replayed(flights((0, 0), (100, None), (40, 90), (50, 90), (131, 9), (140, 9)), SMALL)
    assert ((marks[1:3] - NOON) // MINUTE).tolist() == [70, 70]
    assert marks[0] < 0
    assert marks[3] == 2**63 - 1


def test_a_flight_counts_for_each_window_that_is_still_open():
    """At 12:29 with the watermark at 13:10, the windows that end by 13:10 are closed: four of six are."""
    expected = expect(flights((0, 0), (100, None), (29, 95), (95, 95)), OPEN, SMALL)
    ends = (expected.published["window_end"] - NOON) // MINUTE
    mine = expected.published[(ends > 70) & (ends <= 80)]
    assert mine["flights"].tolist() == [1]
    assert expected.accounting["window"] == {
        "rows": 3, "counted": 3, "late": 0, "in_no_window": 0, "partly_late": 1,
    }  # fmt: skip


def test_a_flight_is_late_when_all_its_windows_are_closed():
    """At 12:19 the last window ends at 13:10, which the watermark 13:10 has reached; a minute later it has not."""
    expected = expect(flights((0, 0), (100, None), (19, 95), (20, 95)), OPEN, SMALL)
    assert expected.late["flight"].tolist() == [2]
    assert ((expected.late["watermark"] - NOON) // MINUTE).tolist() == [70]
    assert expected.accounting["window"]["late"] == 1


def test_all_rows_are_accounted_for():
    """Cancelled flights are filtered, and the check takes each window's row of each key once."""
    expected = expect(flights((0, 0), (5, None), (7, -2)), OPEN, SMALL)
    assert expected.accounting["source"] == {"read": 3, "quarantined": 0, "passed": 3}
    assert expected.accounting["filter"] == {"rows": 3, "kept": 2, "filtered": 1}
    assert expected.accounting["check"]["in"] == 6
    assert expected.published["flights"].tolist() == [2] * 6
    assert expected.published["mean_delay"].tolist() == [-1.0] * 6
    assert expected.published["worst"].tolist() == [0] * 6
    assert expected.batches == 3


def plain(rows, replay):
    """Model the job with dicts, a row at a time: windows fill, and close as the watermark passes."""
    done, held, late, batches, highest, mark = {}, {}, [], 0, -(10**9), -(10**9)
    order = sorted(range(len(rows)), key=lambda i: (rows[i][0] + (rows[i][1] or 0), i))
    for at in range(0, len(order), replay.rows_per_batch):
        for i in order[at : at + replay.rows_per_batch]:
            scheduled, delay = rows[i]
            highest = max(highest, scheduled)
            if delay is None:
                continue
            starts = [s for s in range(scheduled - 59, scheduled + 1) if s % 10 == 0 and s + 60 > mark]
            for start in starts:
                held.setdefault(start, []).append(delay)
            if not starts:
                late.append(i)
        for start in [s for s in held if s + 60 <= mark]:
            done[start] = (batches, held.pop(start))
        mark, batches = highest - replay.bound, batches + 1
    done |= {start: (batches, delays) for start, delays in held.items()}
    return done, late


@settings(max_examples=examples(24), deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 400), st.one_of(st.none(), st.integers(-20, 300))), min_size=1, max_size=40),
    per_batch=st.integers(1, 7),
    bound=st.integers(0, 60),
)
def test_windows_and_late_rows_equal_those_of_a_model_in_plain_python(rows, per_batch, bound):
    """Another way of counting gives the same windows, in the same batches, and the same late rows."""
    replay = Replay(rows_per_batch=per_batch, bound=bound)
    done, late = plain(rows, replay)
    expected = expect(flights(*rows), OPEN, replay)
    got = {
        (row.window_start - NOON) // MINUTE: (row.batch, row.flights, row.worst)
        for row in expected.published.itertuples()
    }
    assert got == {start: (batch, len(delays), max(delays)) for start, (batch, delays) in done.items()}
    assert sorted(expected.late["flight"]) == sorted(late)


def keyed(*carriers):
    """Make one flight at noon for each (carrier, delay)."""
    return pd.concat([flights((0, delay), carrier=carrier) for carrier, delay in carriers], ignore_index=True)


def test_rows_go_to_quarantine_only_where_their_window_fails_the_rule():
    """One row of four is too late for a rule that asks for three in four: it passes; for four in five it does not."""
    four = keyed(("AA", 1), ("B6", 2), ("DL", 3), ("UA", 500))
    assert len(expect(four, suite(between("mean_delay", -60, 300, mostly=0.75)), SMALL).quarantined) == 0
    expected = expect(four, suite(between("flights", 0, 9), between("mean_delay", -60, 300, mostly=0.8)), SMALL)
    assert expected.quarantined["carrier"].unique().tolist() == ["UA"]
    assert expected.quarantined["rules"].tolist() == [[2]] * 6
    assert expected.verdicts == {"passed": 0, "failed": 6, "noted": 0}
    assert expected.accounting["check"] == {"in": 24, "published": 18, "dropped": 0, "quarantined": 6, "held": 0}


def test_a_row_in_quarantine_names_every_critical_rule_it_fails():
    """Also one that its window passed as a whole; a rule of severity warning decides nothing and is noted."""
    rules = suite(
        between("worst", 0, 400),
        between("mean_delay", 0, 300, mostly=0.1),
        between("worst", 0, 1, severity="warning"),
    )
    expected = expect(keyed(("AA", 1), ("UA", 500)), rules, SMALL)
    assert expected.quarantined["rules"].tolist() == [[1, 2]] * 6
    assert expected.verdicts == {"passed": 0, "failed": 6, "noted": 6}


def test_the_other_rules_on_rows():
    """Sets, patterns and nulls find the rows that fail."""
    rules = suite(
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "carrier", "value_set": ["AA", "uA"]}},
        {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "carrier", "regex": "^[A-Z0-9]{2}$"}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "flights"}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1, "max_value": 3}},
    )
    expected = expect(keyed(("AA", 1), ("B6", 1), ("uA", 1)), rules, SMALL)
    assert [*zip(expected.quarantined["carrier"], expected.quarantined["rules"].map(tuple), strict=True)] == [
        *[("B6", (1,))] * 6,
        *[("uA", (2,))] * 6,
    ]


def test_what_the_check_cannot_judge_is_refused():
    """A rule it does not know, and one that would hold a whole window, end it with the rule's name."""
    unknown = {"type": "expect_column_median_to_be_between", "kwargs": {"column": "worst"}}
    with pytest.raises(ValueError, match="median"):
        expect(keyed(("AA", 1)), suite(unknown), SMALL)
    count = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 2, "max_value": 3}}
    with pytest.raises(ValueError, match="rule 1 fails for whole windows"):
        expect(keyed(("AA", 1)), suite(count), SMALL)


@pytest.fixture
def run():
    """Return what is expected of a small run with late and quarantined rows, and the tables of a faultless one."""
    rows = flights((0, 0), (100, None), (19, 95), (18, 95), (50, 500))
    other = flights((30, 1), carrier="AA").assign(flight=9)
    expected = expect(pd.concat([rows, other], ignore_index=True), suite(between("mean_delay", -60, 300)), SMALL)
    assert min(len(expected.published), len(expected.quarantined), len(expected.late)) > 0
    return expected, tables(expected)


def test_a_faultless_run_has_no_differences(run):
    """Tables in any order of rows are what was expected."""
    expected, shown = run
    shuffled = {name: table.sample(frac=1, random_state=1) for name, table in shown.items()}
    assert list(differences(expected, shuffled, suite="gate")) == []


@pytest.mark.parametrize(
    ("table", "damage", "message"),
    [
        ("published", lambda t: t.iloc[1:], "published: missing: 1"),
        ("published", lambda t: pd.concat([t, t.iloc[:1]]), "published: published twice: 1"),
        ("published", lambda t: t.assign(carrier=t["carrier"] + "x"), "published: should not be there"),
        ("published", lambda t: t.assign(flights=t["flights"] + 1), "published: flights"),
        ("published", lambda t: t.assign(worst=t["worst"] + 1), "published: worst"),
        ("published", lambda t: t.assign(mean_delay=t["mean_delay"] + 1e-7), "published: mean_delay"),
        ("published", lambda t: t.assign(mean_delay=float("nan")), "published: mean_delay"),
        ("published", lambda t: t.assign(window_end=t["window_end"] + pd.Timedelta(1, "us")), "published: missing"),
        ("published", lambda t: t.drop(columns="worst"), "published: the columns are"),
        ("quarantined", lambda t: t.iloc[:0], "quarantined: missing"),
        ("quarantined", lambda t: t.assign(_batch=t["_batch"] + 1), "quarantined: batch"),
        ("quarantined", lambda t: t.assign(_rules=[["gate:2:a_rule(column)"]] * len(t)), "quarantined: rules"),
        ("quarantined", lambda t: t.drop(columns="_rules"), "quarantined: the columns are"),
        ("late", lambda t: t.iloc[1:], "late: missing: 1"),
        ("late", lambda t: pd.concat([t, t.iloc[:1]]), "late: should not be there: 1"),
        ("late", lambda t: t.assign(_watermark=t["_watermark"] + pd.Timedelta(1, "us")), "late: missing"),
        ("late", lambda t: t.assign(flight=None), "late: missing"),
        ("late", lambda t: t.drop(columns="_step"), "late: the columns are"),
    ],
)
def test_every_kind_of_damage_is_named(run, table, damage, message):
    """One wrong row in one table is found, and said with its count."""
    expected, shown = run
    lines = list(differences(expected, {**shown, table: damage(shown[table])}, suite="gate"))
    assert any(line.startswith(message) for line in lines), lines


def test_differences_show_the_first_rows_with_readable_times(run):
    """A missing window is shown with its key and its bounds."""
    expected, written = run
    lines = list(differences(expected, {**written, "published": written["published"].iloc[1:]}, suite="gate"))
    first = expected.published.iloc[0]
    start = pd.Timestamp(first["window_start"], unit="us", tz="UTC")
    shown = {"origin": "EWR", "carrier": first["carrier"], "window_start": start}
    shown["window_end"] = start + pd.Timedelta(hours=1)
    assert lines == ["published: missing: 1", "  " + ", ".join(f"{k}={v}" for k, v in shown.items())]


def test_only_na_is_a_null_in_the_file(tmp_path):
    """An empty text is a text, and the delay stays a whole number beside nulls."""
    path = tmp_path / "flights.csv"
    path.write_text("dep_delay,tailnum\n2,NA\nNA,\n")
    read = read_flights(path)
    assert read["dep_delay"].tolist() == [2, pd.NA]
    assert read["tailnum"].isna().tolist() == [True, False]
