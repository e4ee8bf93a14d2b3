"""Sums over the results of reports are those of a plain count."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from examples import examples
from hypothesis import given, settings
from report_model import (
    RULES,
    a_row,
    by_window,
    counted,
    findings,
    finite,
    has_failed,
    is_noted,
    many_runs,
    newest_of,
    table,
)
from report_samples import DAY, MINUTE, START

from penstock.quality.reports.summary import BUCKETS, DAYS, failing, history, rules_of, runs, summary

pytestmark = pytest.mark.sample(5, of="pages of reports")


def the_same_rule(rule_summary, rows) -> None:
    """Compare a rule's summary with its rows."""
    bad = [row for row in rows if not row["success"]]
    assert (rule_summary.windows, rule_summary.failed) == (len(rows), len(bad))
    assert rule_summary.errors == sum(row["error"] is not None for row in rows)
    assert rule_summary.last_failed == max((row["window_start"] for row in bad), default=None)
    shares = [
        row["unexpected"] / row["considered"] if row["considered"] else 0.0
        for row in rows
        if row["unexpected"] is not None
    ]
    assert rule_summary.worst == (max(shares) if shares else None)


@settings(max_examples=examples(24))
@given(findings("r1", START + 400 * DAY, "quality"))
def test_a_run_is_summed_up_as_by_a_plain_count(rows):
    """Windows, those that failed, were noted or went to Spark, their rows and bounds; and each rule."""
    summed, model = summary(table(rows)), counted(rows)
    assert {name: getattr(summed, name) for name in model} == model
    assert (summed.id, summed.check, summed.at, summed.version) == ("r1", "quality", rows[0]["at"], 3)
    assert summed.verdict == ("failed" if model["failed"] else "passed")
    summaries = rules_of(table(rows))
    assert [(rule_summary.rule, rule_summary.severity) for rule_summary in summaries] == list(RULES.items())
    for rule_summary in summaries:
        the_same_rule(rule_summary, [row for row in rows if row["rule"] == rule_summary.rule])


@settings(max_examples=examples(24))
@given(findings("r1", START + 400 * DAY, "quality"))
def test_stretches_cover_each_window_once(rows):
    """In the order of windows, each of one state, and never two of the same beside each other."""
    for rule_summary in rules_of(table(rows)):
        ordered = sorted(
            (row for row in rows if row["rule"] == rule_summary.rule),
            key=lambda r: (r["window_start"], r["window_end"]),
        )
        states = ["error" if row["error"] else "passed" if row["success"] else "failed" for row in ordered]
        assert [s.state for s in rule_summary.stretches for _ in range(s.count)] == states
        assert [s.first for s in rule_summary.stretches] == [
            sum(t.count for t in rule_summary.stretches[:n]) for n in range(len(rule_summary.stretches))
        ]
        assert all(a.state != b.state for a, b in zip(rule_summary.stretches, rule_summary.stretches[1:], strict=False))


@settings(max_examples=examples(24))
@given(findings("r1", START + 400 * DAY, "quality"))
def test_what_did_not_pass_is_listed_in_order(rows):
    """All of it, with shares of the rows that counted; a value that is no number is none."""
    listed = failing(table(rows))
    order = list(RULES)
    expected = sorted(
        (row for row in rows if not row["success"]),
        key=lambda row: (row["window_start"], row["window_end"], order.index(row["rule"])),
    )
    assert [
        (finding["window_start"], finding["window_end"], finding["rule"], finding["error"]) for finding in listed
    ] == [(row["window_start"], row["window_end"], row["rule"], row["error"]) for row in expected]
    for finding, row in zip(listed, expected, strict=True):
        assert finding["unexpected"] == row["unexpected"]
        assert finding["share"] == (row["unexpected"] / row["considered"] if row["considered"] else None)


@pytest.mark.slow
@settings(max_examples=examples(32))
@given(many_runs())
def test_a_history_is_summed_up_as_by_a_plain_count(rows):
    """For each check, each window as its newest run found it, over the newest days; buckets hold each window once."""
    checks = history(table(rows))
    assert [check.check for check in checks] == sorted({row["check"] for row in rows})
    for check in checks:
        ours = newest_of(rows, check.check)
        model, windows = counted(ours), by_window(ours)
        for name in ("windows", "failed", "noted", "first", "last"):
            assert getattr(check, name) == model[name], name
        assert 1 <= len(check.buckets) <= BUCKETS
        for bucket, after in zip(check.buckets, [*(b.start for b in check.buckets[1:]), math.inf], strict=True):
            held = [window for (start, _), window in windows.items() if bucket.start <= start < after]
            assert (bucket.windows, bucket.failed, bucket.noted) == (
                len(held), sum(map(has_failed, held)), sum(map(is_noted, held)),
            )  # fmt: skip
        assert {rule_summary.rule: rule_summary.severity for rule_summary in check.rules} == RULES
        for rule_summary in check.rules:
            part = [row for row in ours if row["rule"] == rule_summary.rule]
            the_same_rule(rule_summary, part)
            the_same_plot(rule_summary, part, check.buckets)


def the_same_plot(rule, rows, buckets) -> None:
    """Compare a plot over time: means of shares, or of what was observed, by bucket."""
    on_rows = any(row["unexpected"] is not None for row in rows)
    assert len(rule.shares) == len(buckets)
    for shown, bucket, after in zip(rule.shares, buckets, [*(b.start for b in buckets[1:]), math.inf], strict=True):
        held = [row for row in rows if bucket.start <= row["window_start"] < after]
        if on_rows:
            values = [row["unexpected"] / row["considered"] for row in held if row["considered"]]
        else:
            values = finite(row["observed"] for row in held)
        assert shown == (pytest.approx(math.fsum(values) / len(values)) if values else None)


@settings(max_examples=examples(16))
@given(many_runs())
def test_runs_are_listed_newest_first(rows):
    """Each with its own numbers."""
    listed = runs(table(rows))
    parts = defaultdict(list)
    for row in rows:
        parts[row["run"]].append(row)
    assert [run.id for run in listed] == sorted(parts, key=lambda run: -parts[run][0]["at"])
    for run in listed:
        model = counted(parts[run.id])
        assert {name: getattr(run, name) for name in model} == model


def test_a_window_that_was_judged_again_by_a_changed_suite_is_as_it_was_found_last():
    """A rule that was taken out, or moved, counts no more on it."""
    before = [a_row(rule="s:1:old(v)", success=False), a_row(rule="s:2:rows(v)", success=False)]
    after = [a_row(run="r2", at=START + 2 * DAY, rule="s:1:rows(v)")]
    [check] = history(table(before + after))
    assert (check.windows, check.failed) == (1, 0)
    assert [(rule.rule, rule.failed) for rule in check.rules] == [("s:1:rows(v)", 0)]


def test_a_rule_has_the_severity_of_its_newest_report():
    """A suite may become milder; what was found before is counted by what it was."""
    later = {"window_start": START + MINUTE, "window_end": START + 2 * MINUTE, "at": START + 2 * DAY, "run": "r2"}
    rows = [a_row(success=False), a_row(success=False, severity="warning", **later)]
    [check] = history(table(rows))
    assert (check.failed, check.noted) == (1, 1)
    assert [rule.severity for rule in check.rules] == ["warning"]


def test_windows_older_than_a_month_leave_the_history():
    """They stay in the results. The newest window is what counts, not today."""
    places = [0, 1, DAYS - 1, DAYS]
    rows = [a_row(window_start=START + p * DAY, window_end=START + p * DAY + MINUTE, success=False) for p in places]
    [check] = history(table(rows))
    assert (check.windows, check.failed, check.first) == (3, 3, START + DAY)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([1.0, 3.0, None], 1.0, 3.0), ([math.nan, 2.0], 2.0, 2.0), ([math.inf, 1.0, 5.0], 1.0, 5.0),
     ([-math.inf, 1.0, math.inf], 1.0, 1.0), ([math.inf], None, None), ([None], None, None)],
    ids=["plain", "NaN", "inf", "both", "inf only", "none"],
)  # fmt: skip
def test_the_range_of_what_was_observed_is_of_numbers(values, low, high):
    """One infinite value does not hide the others."""
    rows = [
        a_row(window_start=START + n * MINUTE, rule="s:1:sum(v)", unexpected=None, considered=None, observed=value)
        for n, value in enumerate(values)
    ]
    [rule] = rules_of(table(rows))
    assert (rule.low, rule.high) == (low, high)
