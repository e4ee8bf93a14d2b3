"""The pictures of a job, and the end of its drivers' log that they are made with."""

from __future__ import annotations

import json

import pytest
from checkpoint_samples import commit
from project_samples import make_project
from ui_site import NOW, SECOND, Site, read

from penstock.checkpoint.log.entries import END_OF_TIME, StagedFile
from penstock.errors import ComputeFailed
from penstock.rates.limits import Limits
from penstock.runtime.inspect.job_status import JobState, JobStatus, KeptCheckpoint
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.progress import JsonProgress
from penstock.supervise.stream import Stream
from penstock.ui.charts import charts_of
from penstock.ui.driver_log import Spent, read_driver_log
from penstock.ui.model import Reading, view_of

FILE = StagedFile(path="a", size=10, rows=4, checksum="x", stats={})


@pytest.fixture
def site(tmp_path):
    return Site(make_project(tmp_path / "project", rows=10))


def batch(number, mark=NOW - 65 * SECOND, **more):
    facts = {
        "accounting": {"source:o": {"read": 10 * number, "quarantined": 1}, "window:w": {"late": 2}, "check:g": {"quarantined": 3}},
        "time": NOW + number * SECOND, "timings": {"FixOffsets": 1.0, "Compute": 50.0}, "written": {"state:w": 1_000 * number, "segments": 7},
        "watermarks_out": {"w": mark}, "staged": {"t": [FILE]},
    }  # fmt: skip
    return commit(number, **facts | more)


def charts(*commits, spent=None, undone=()):
    kept = [KeptCheckpoint(commit=c, missing=None, undone=c.batch in undone, saved=()) for c in commits]
    marks = commits[-1].watermarks_out if commits else {}
    status = JobStatus(job="orders", state=JobState.RUNNING, watermarks=marks)
    view = view_of(
        Reading(job="orders", now=NOW, asked=True, supervised=True, stream=Stream(), status=status, limits=Limits(), kept=kept)
    )  # fmt: skip
    return {chart.name: chart for chart in charts_of(view, spent or {})}


def test_each_batch_has_its_place_in_time():
    """Times are the batches' own, in seconds; the numbers of the batches go with them."""
    drawn = charts(batch(1), batch(2), batch(3))
    assert drawn["rows"].times == (NOW / 1e6 + 1, NOW / 1e6 + 2, NOW / 1e6 + 3)
    assert drawn["rows"].batches == (1, 2, 3)
    assert json.loads(drawn["rows"].data)["batches"] == [1, 2, 3]
    assert charts() == {}


def test_what_a_restore_has_undone_is_in_no_picture():
    """Its rows are read again in later batches, and would be seen twice."""
    assert charts(batch(1), batch(2), batch(3), undone={2})["rows"].batches == (1, 3)


def test_rows_are_told_apart_by_what_became_of_them():
    """What never happens has no line, but for what is read and put out."""
    assert charts(batch(1), batch(2, held={"t": [FILE]}))["rows"].series == {
        "read": (10.0, 20.0), "output": (4.0, 4.0), "late": (2.0, 2.0), "quarantined": (4.0, 4.0), "held": (0.0, 4.0),
    }  # fmt: skip
    quiet = charts(batch(1, accounting={"source:o": {"read": 3}}, staged={}))
    assert quiet["rows"].series == {"read": (3.0,), "output": (0.0,)}


def test_phases_that_no_commit_can_know_come_from_the_drivers_log():
    """A batch is committed and published after its Commit was written; older ones have what that says."""
    spent = {
        2: Spent({"FixOffsets": 2.0, "Compute": 60.0, "CommitBatch": 5.0, "PublishSinks": 30.0, "Purge": 1.0}, 700)
    }
    drawn = charts(batch(1), batch(2), spent=spent)
    assert drawn["took"].series == {
        "FixOffsets": (1.0, 2.0), "Compute": (50.0, 60.0), "CommitBatch": (None, 5.0), "PublishSinks": (None, 30.0)
    }  # fmt: skip
    assert drawn["took"].stacked
    assert drawn["lag"].series == {"left": (None, 700)}
    assert "lag" not in charts(batch(1))


def test_a_watermark_is_a_delay_or_with_old_data_a_time():
    """Thirteen years behind now is no delay; the end of time is no place in a picture."""
    live = charts(batch(1), batch(2, mark=END_OF_TIME), batch(3, mark=None), batch(4))["watermark"]
    assert (live.unit, live.series) == ("seconds", {"w": (66.0, None, None, 69.0)})
    old = charts(batch(1, mark=5 * SECOND), batch(2, mark=6 * SECOND))["watermark"]
    assert (old.unit, old.series) == ("moment", {"w": (5.0, 6.0)})


def test_a_picture_is_told_in_words():
    """For who does not see it."""
    assert charts(batch(1), batch(3), batch(2))["state"].says == "w 2.0 KiB, at most 2.9 KiB"


def log_of(site, generation, *events, complaints=""):
    folder = site.root / "checkpoints" / "_logs" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    (folder / f"{generation:06d}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / f"{generation:06d}.log").write_text(complaints)


def committed(batch, **more):
    return {"event": "batch.committed", "batch": batch, "timings": {"Compute": 5.0}, "rows_left": {"o": 7}, **more}


def test_the_end_of_a_long_log_is_read(site):
    """However much a driver has said, some of its newest words are shown."""
    log_of(site, 1, *(committed(n, padding="x" * 1_000) for n in range(1_000)), complaints="line\n" * 100_000)
    log = read_driver_log(site.root / "checkpoints", "orders")
    assert (len(log.events), len(log.complaints)) == (40, 40)
    assert set(log.batches) == set(range(1_000 - len(log.batches), 1_000))
    assert 100 < len(log.batches) < 300


def test_batches_of_the_driver_before_are_known_too(site):
    """A restart does not empty the pictures."""
    log_of(site, 8, committed(1), committed(2))
    log_of(site, 9, committed(2, rows_left={"o": None}), committed(3))
    log = read_driver_log(site.root / "checkpoints", "orders")
    assert {n: committed_batch.left for n, committed_batch in log.batches.items()} == {1: 7, 2: None, 3: 7}
    assert log.generation == 9


@pytest.mark.parametrize(
    "line",
    ["no JSON", "[]", "7", '{"event": "batch.comm', {"event": "batch.committed"}, committed("x"), committed(3, timings=[]), committed(3, timings={"a": "b"}),
     committed(3, rows_left=[1]), committed(3, rows_left={"o": "x"}), {"event": "run.failed", "traceback": 7}, {"event": None}],
    ids=str,
)  # fmt: skip
def test_an_odd_line_breaks_nothing(site, line):
    """Java writes there as well, and a newer version may say other things."""
    site.batches(3)
    log_of(site, 1, line, committed(2))
    assert read_driver_log(site.root / "checkpoints", "orders").batches[2].left == 7
    assert "Log of the driver The last" in site.text("/jobs/orders")


def test_the_page_shows_how_the_driver_ended(site, capsys):
    """The traceback of what ended it, as the driver itself logs it, its events and its standard error."""
    configure_events(json=True)
    try:
        raise ComputeFailed("no memory", where="batch 3") from ValueError("could not convert 'abc'")
    except ComputeFailed as why:
        JsonProgress("orders").failed(why)
    log_of(site, 4, committed(1), capsys.readouterr().out.strip(), complaints="java.lang.OutOfMemoryError\n")
    text = site.text("/jobs/orders")
    assert "Traceback of generation 4" in text
    assert "ValueError: could not convert 'abc' The above exception was the direct cause" in text
    assert "java.lang.OutOfMemoryError" in text
    assert "batch.committed batch=1" in text


def test_without_a_log_the_page_says_so(site):
    """A driver may have been started by hand."""
    site.batches(1)
    assert "no supervisor has started a driver of orders on this machine" in site.text("/jobs/orders")


def test_the_library_is_served_by_the_pages_themselves(site):
    """One file, by its version; nothing else below that address, and nothing from elsewhere."""
    site.batches(2)
    page = site.get("/jobs/orders")
    scripts = [attrs for tag, attrs in read(page.text).tags if tag == "script"]
    (src,) = [attrs["src"] for attrs in scripts if "src" in attrs]
    assert len({attrs["nonce"] for attrs in scripts}) == 1
    answer = site.get(src)
    assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (200, "text/javascript")
    assert "immutable" in answer.headers["Cache-Control"]
    for name in ("penstock.js", "LICENSE", "..%2fapp.py", "%2fetc%2fpasswd", "uplot"):
        assert site.get(f"/static/{name}").status_code == 404, name
    assert "src=" not in site.get("/").text.partition("<script")[2].partition(">")[0]
