"""What a Commit says in a few numbers."""

from __future__ import annotations

import json

import pytest
from checkpoint_samples import commit

from penstock.checkpoint.log.batch_report import BatchReport, moment, shown_moment
from penstock.checkpoint.log.entries import END_OF_TIME, StagedFile


def file(rows: int, size: int) -> StagedFile:
    return StagedFile(path="x.parquet", size=size, rows=rows, checksum="", stats={})


def report(**other) -> BatchReport:
    return BatchReport.of(commit(3, **other))


def test_rows_are_summed_by_source_sink_and_step():
    """Held rows are not output, and both take space."""
    summed = report(
        accounting={
            "source:a": {"read": 5, "passed": 5},
            "source:b": {"read": 7, "passed": 7},
            "filter:filter_1": {"rows": 12, "kept": 9},
            "window:w": {"rows": 9, "late": 2},
            "function:f": {"rows": 2},
            "other:o": {"rows": 2, "late": 1},
        },
        staged={"out": [file(1, 100), file(2, 50)], "late": [file(2, 10)]},
        held={"out": [file(4, 1_000)], "none": []},
    )
    assert (summed.rows, summed.read, summed.late) == (12, {"a": 5, "b": 7}, {"w": 2, "o": 1})
    assert (summed.output, summed.held, summed.staged) == ({"out": 3, "late": 2}, {"out": 4}, 1_160)


def test_verdicts_are_counted_by_what_became_of_the_rows():
    """Where all was published, by their status."""
    verdicts = [
        {"action": "publish", "status": "passed"},
        {"action": "publish", "status": "failed"},
        {"action": "publish", "status": "passed"},
        {"action": "quarantine", "status": "failed"},
    ]
    assert report(verdicts=verdicts).verdicts == {"passed": 2, "failed": 1, "quarantine": 1}


@pytest.mark.parametrize(
    ("marks", "slowest"),
    [({}, None), ({"a": 5, "b": 3}, 3), ({"a": 5, "b": None}, None), ({"a": END_OF_TIME}, END_OF_TIME)],
)
def test_the_watermark_is_that_of_the_slowest_step(marks, slowest):
    """None is the beginning of time."""
    assert report(watermarks_out=marks).watermark == slowest


def test_the_next_thing_due_is_the_earliest():
    """Of all steps that have one."""
    assert report(due={"a": 9, "b": None, "c": 4}).due == 4
    assert report(due={"a": None}).due is None


@pytest.mark.parametrize(
    ("micros", "text", "shown"),
    [
        (None, None, "beginning of time"),
        (END_OF_TIME, "end of time", "end of time"),
        (0, "1970-01-01T00:00:00Z", "1970-01-01 00:00:00Z"),
        (1_500_000, "1970-01-01T00:00:01.500000Z", "1970-01-01 00:00:01Z"),
        (-1, "1969-12-31T23:59:59.999999Z", "1969-12-31 23:59:59Z"),
        (END_OF_TIME - 1, f"{END_OF_TIME - 1} us", f"{END_OF_TIME - 1} us"),
    ],
)
def test_times_are_written_in_utc(micros, text, shown):
    """To the microsecond for machines, to the second for people."""
    assert (moment(micros), shown_moment(micros)) == (text, shown)


def test_the_report_is_json():
    """As a status record and an event hold it."""
    fields = report(watermarks_out={"w": None}, due={"w": 0}).to_json()
    assert json.loads(json.dumps(fields)) == fields
    assert (fields["batch"], fields["watermark"], fields["next_due"]) == (3, {"w": None}, "1970-01-01T00:00:00Z")
