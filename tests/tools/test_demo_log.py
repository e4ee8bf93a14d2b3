"""What the demo reads out of a job's log, told from logs written by the log's own code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checkpoint_samples import commit, offsets, own

from penstock.checkpoint.log.entries import Release
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore
from tools.demo_log import read_story

COUNTS = {
    "source:departures": {"read": 10, "quarantined": 1, "passed": 9},
    "filter:filter_1": {"rows": 9, "kept": 8, "filtered": 1},
    "window:hourly": {"rows": 8, "counted": 6, "late": 2, "in_no_window": 0, "partly_late": 1, "merged": 6},
    "check:hourly_quality": {"in": 5, "published": 4, "quarantined": 1},
}
RESULTS = [{"success": False, "severity": "critical"}, {"success": False, "severity": "warning"}]
VERDICTS = [
    {"status": "failed", "unit": 1, "results": RESULTS},
    {"status": "passed", "unit": 2, "results": [{"success": True, "severity": "critical"}]},
]


@pytest.fixture
def folder(tmp_path):
    """Return a log in which one driver dies in batch 1, and another runs it again and finishes with batch 2."""
    log = Log(LocalStore(tmp_path / "flights"))
    first = own(log)
    write(first, 0)
    first.append(offsets(1))
    second = own(log, writer="w2")
    second.append(commit(1, epoch=2, writer="w2", accounting=COUNTS, verdicts=VERDICTS))
    write(second, 2)
    second.append(Release(epoch=2, writer="w2", reason="finished"))
    return tmp_path / "flights"


def write(owned, batch):
    owned.append(offsets(batch, owned.epoch, owned.writer))
    owned.append(commit(batch, owned.epoch, owned.writer, accounting=COUNTS, verdicts=VERDICTS))


def test_a_story_sums_the_batches_of_all_drivers(folder):
    """Counts are added by kind of step, verdicts by what they say; a noted window failed a rule that decides nothing."""
    story = read_story(folder)
    assert story.ids == (0, 1, 2)
    assert story.drivers == 2
    assert story.accounting["source"] == {"read": 30, "quarantined": 3, "passed": 27}
    assert story.verdicts == {"passed": 3, "failed": 3, "noted": 3}
    assert list(story.problems(3, drivers=2)) == []
    assert story.id_range == "0 to 2, without a gap"


def test_the_sums_are_told_in_words(folder):
    """One line a kind of step, the whole before its parts, and absent counts are 0."""
    assert list(read_story(folder).sums()) == [
        "source: 30 = 3 quarantined + 27 passed",
        "filter: 27 = 24 kept + 3 filtered",
        "window: 24 = 18 counted + 6 late + 0 in no window",
        "check: 15 = 12 published + 0 dropped + 3 quarantined + 0 held",
        "of the counted, 3 were late for some windows only",
    ]


def test_steps_that_a_job_has_not_are_left_out_of_the_sums(tmp_path):
    """And those of a step that deduplicates are its late rows, first rows and duplicates."""
    owned = own(Log(LocalStore(tmp_path)))
    owned.append(offsets(0))
    counts = {"rows": 9, "late": 1, "merged": 8, "emitted": 5, "duplicates": 3}
    owned.append(commit(0, accounting={"deduplicate:once": counts}))
    assert list(read_story(tmp_path).sums()) == [
        "deduplicate: 9 = 1 late + 5 emitted + 3 duplicates",
        "of the counted, 0 were late for some windows only",
    ]


def test_the_end_of_the_log_tells_where_a_driver_was_killed(tmp_path):
    """Offsets at the end are of a batch that is to be run again; a Commit may not be published yet."""
    log = Log(LocalStore(tmp_path / "flights"))
    owned = own(log)
    ends = [read_story(tmp_path / "flights").last]
    for entry in (offsets(0), commit(0)):
        owned.append(entry)
        ends.append(read_story(tmp_path / "flights").last)
    assert ends == [
        "the takeover of driver 1",
        "the offsets of batch 0, which has no commit",
        "the commit of batch 0",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": (0, 2)}, "the log holds commits [0, 2] and should hold 0 to 2"),
        ({"ids": (0, 1, 1, 2)}, "the log holds commits [0, 1, 1, 2] and should hold 0 to 2"),
        ({"drivers": 1}, "1 drivers owned the log and not 2"),
        ({"finished": False}, "the log ends with a release: finished"),
    ],
)
def test_what_is_wrong_with_a_log_is_said(folder, change, message):
    """Gaps, repetitions, a driver too few, and a job that did not finish."""
    assert list(replace(read_story(folder), **change).problems(3, drivers=2)) == [message]


def test_rows_that_do_not_add_up_are_said(folder):
    """A row that vanished between a step's whole and its parts is found in the sums of the run."""
    story = read_story(folder)
    lost = {**story.accounting, "filter": {"rows": 27, "kept": 24, "filtered": 2}}
    assert list(replace(story, accounting=lost).problems(3, drivers=2)) == [
        "the rows of filter do not add up: {'rows': 27, 'kept': 24, 'filtered': 2}"
    ]
    assert replace(story, ids=(0, 2)).id_range == "0 to 2, WITH GAPS"
