"""A report that is tried again, overtaken or killed keeps each window once, with its pages."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from report_samples import MINUTE, NOW, runs_of

from penstock.quality.reports.judge import Finding, Judged
from penstock.quality.reports.published import Selection, table_id
from penstock.quality.reports.results import Results
from penstock.runtime.inspect import quality_report
from penstock.runtime.inspect.quality_report import Target, make_report
from penstock.time.clock import ManualClock


class PlainJudge:
    """Judges as the one rule of the suite says: no `v` above 5."""

    def __init__(self, suite, *, pandas_rows, spark) -> None:
        [self.rule] = suite.expectations

    def judge(self, published):
        for window, rows in published.rows(1_000):
            bad = sum(v > 5 for v in rows["v"].to_pylist())
            finding = Finding(
                rule=self.rule.name, severity="critical", success=not bad, unexpected=bad, considered=window.rows
            )
            yield Judged(window=window, engine="pandas", findings=(finding,), document={"results": []})


class Place:
    """A job with a table of windows, a suite, and a clock that is set by hand."""

    def __init__(self, root, monkeypatch) -> None:
        self.root, self.clock = root, ManualClock(wall=NOW)
        self.table = root / "table"
        suite = {"name": "s", "expectations": [
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "v", "max_value": 5}}]}  # fmt: skip
        self.target = Target(check="quality", table=self.table, suite=suite, where="test")
        self.built = []
        monkeypatch.setattr(
            quality_report, "build_docs", lambda kept, site: self.built.append(sorted(kept.glob("*.json")))
        )
        monkeypatch.setattr(quality_report, "Judge", PlainJudge)
        self.loaded = SimpleNamespace(
            job=SimpleNamespace(name="orders"),
            settings=SimpleNamespace(root=root, reports=SimpleNamespace(pandas_rows=1_000, windows=100, suites={})),
        )
        self.folder = root / "_reports" / "orders"
        self.results = Results(self.folder / "results")

    def publish(self, *places) -> None:
        starts = [place * MINUTE for place in places]
        at = pa.timestamp("us", tz="UTC")
        rows = {
            "v": list(places),
            "window_start": pa.array(starts, at),
            "window_end": pa.array([s + MINUTE for s in starts], at),
        }
        write_deltalake(self.table, pa.table(rows), mode="append")

    def report(self, run="r1", selection=Selection()):  # noqa: B008 - frozen
        return make_report(self.loaded, self.target, selection, run=run, clock=self.clock)


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_report_judges_commits_and_writes_its_pages(place):
    """What it says is what there is: three windows, of which the one with 7 has failed."""
    place.publish(1, 2, 7)
    report = place.report()
    assert (report.verdict, report.windows, report.failed, report.noted, report.more) == ("failed", 3, 1, 0, False)
    assert report.page == place.folder / "runs" / "r1.html"
    assert "runs/r1.html" in (place.folder / "index.html").read_text()
    assert place.results.cursor("quality", table_id(place.table)) == 0
    assert [len(kept) for kept in place.built] == [3]


def test_without_new_windows_a_report_is_empty(place):
    """The history is its page; nothing is judged twice."""
    place.publish(1)
    place.report("r1")
    again = place.report("r2")
    assert (again.verdict, again.windows, again.page) == ("empty", 0, place.folder / "index.html")
    assert runs_of(place.results) == {"r1": 1}
    place.publish(2, 3)
    assert place.report("r3").windows == 2


def test_a_crash_between_commit_and_pages_is_mended_by_trying_again(place, monkeypatch):
    """The run is not judged a second time; its page and the history are written, and say what was found."""
    place.publish(1, 7)
    with monkeypatch.context() as broken:
        broken.setattr(quality_report, "write_page", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            place.report()
    assert place.results.has("r1")
    assert not (place.folder / "index.html").exists()
    place.publish(8)
    monkeypatch.setattr(quality_report, "Judge", None)
    report = place.report()
    assert (report.windows, report.failed, report.more) == (2, 1, True)
    assert report.page.is_file()
    assert (place.folder / "index.html").is_file()
    assert runs_of(place.results) == {"r1": 2}


@pytest.mark.parametrize("broken", ["keep", "build_docs"])
def test_a_crash_around_the_data_docs_is_mended_by_trying_again(place, monkeypatch, broken):
    """The windows that were judged are among the newest, so the Data Docs must not go without them for good."""
    place.publish(1, 7)
    with monkeypatch.context() as patched:
        patched.setattr(quality_report, broken, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            place.report()
    place.report()
    assert [len(kept) for kept in place.built] == [2]


def test_windows_of_a_report_that_was_overtaken_are_not_kept_for_the_data_docs(place, monkeypatch):
    """Another was faster on the same windows: they are there once."""
    place.publish(1, 7)

    class Slow(PlainJudge):
        def judge(self, published):
            monkeypatch.setattr(quality_report, "Judge", PlainJudge)
            place.clock.now += 1
            place.report("r2")
            place.clock.now += 1
            yield from super().judge(published)

    monkeypatch.setattr(quality_report, "Judge", Slow)
    report = place.report("r1")
    assert report.verdict == "empty"
    assert runs_of(place.results) == {"r2": 2}
    kept = [json.loads(path.read_text()) for path in (place.folder / "newest").glob("*.json")]
    assert [row["run"] for row in kept] == ["r2", "r2"]


def test_a_crash_before_the_commit_loses_nothing(place, monkeypatch):
    """The same windows are new for the next."""
    place.publish(1, 7)
    with monkeypatch.context() as broken:
        broken.setattr(Results, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            place.report()
    assert place.report("r2").windows == 2


@pytest.mark.slow
def test_reports_go_on_until_no_more_wait(place):
    """With a limit of windows a report says that more wait, and the next one takes them."""
    place.loaded.settings.reports.windows = 2
    place.publish(9)
    place.report("r")
    for number in range(5):
        place.publish(number)
    reported = [(report.windows, report.more) for report in (place.report(f"r{n}") for n in range(4))]
    assert reported == [(2, True), (2, True), (1, False), (0, False)]


def test_a_report_on_a_table_that_was_made_anew_judges_its_windows(place):
    """Its versions begin at 0 again, below the cursor: not a reason to say that nothing is new."""
    import shutil

    for number in range(3):
        place.publish(number)
    assert place.report("r1").windows == 3
    shutil.rmtree(place.table)
    place.publish(9)
    report = place.report("r2")
    assert (report.verdict, report.windows) == ("failed", 1)
    assert place.results.cursor("quality", table_id(place.table)) == 0


def test_pages_of_old_runs_are_let_go(place, monkeypatch):
    """Their rows stay in the results and in the history, which says that they have no page."""
    monkeypatch.setattr(quality_report, "KEPT", 2)
    place.publish(1)
    for name in ("r1", "r2", "r3"):
        place.report(name, Selection(newest=1))
    assert sorted(path.stem for path in (place.folder / "runs").glob("*.html")) == ["r2", "r3"]
    history = (place.folder / "index.html").read_text()
    assert ("runs/r1.html" in history, "runs/r3.html" in history, "not kept" in history) == (False, True, True)
    assert runs_of(place.results) == {"r1": 1, "r2": 1, "r3": 1}
