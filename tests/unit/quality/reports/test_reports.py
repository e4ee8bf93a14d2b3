"""`penstock report` as people run it: on a table of windows that a job publishes, without the job and without Spark."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest
from cli_runner import Shell
from deltalake import DeltaTable, write_deltalake
from project_samples import JOB, START, make_project
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import ReportImpossible
from penstock.quality.reports.published import table_id
from penstock.quality.reports.results import Results
from penstock.runtime.inspect import quality_report

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.sample(2, of="reports of windows")]

CHECKED = JOB.replace(
    'totals.write("totals", Delta(conf.table("totals")))',
    """totals.check("quality", on_fail=OnFail.WARN).write("totals", Delta(conf.table("totals")))
    few = {"name": "few", "expectations": [
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 2}, "severity": "warning"}]}
    totals.check("counts", suite=few, on_fail=OnFail.WARN).write("counted", Delta(conf.table("counted")))""",
).replace("from penstock.sinks", "from penstock.quality import OnFail\nfrom penstock.sinks")
PLAIN = JOB.replace('Job("orders"', 'Job("plain"')
MORE = 'counted = "tables/counted"\n'


def a_suite(name: str, most: int) -> str:
    """Return a suite whose rule holds up to a total."""
    kwargs = {"column": "total", "max_value": most}
    return json.dumps(
        {"name": name, "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": kwargs}]}
    )


class Kept:
    """The session of the test run, which nobody may stop: another in its Java process would lack the jars."""

    def __init__(self, session) -> None:
        self._session = session

    def __getattr__(self, name):
        return getattr(self._session, name)

    def stop(self) -> None:
        """Leave it to the tests that follow."""


@pytest.fixture(autouse=True)
def _one_session(request, monkeypatch):
    """Give reports that are made in this process the session that it has, or will have."""
    monkeypatch.setattr(quality_report, "open_spark", lambda _loaded, **_: Kept(request.getfixturevalue("spark")))


class World:
    """A project with windows that were published, and the command in this process or in one of its own."""

    def __init__(self, root) -> None:
        self.root = make_project(root, rows=10, job=CHECKED, more=MORE)
        (self.root / "conf" / "quality").mkdir()
        (self.root / "conf" / "quality" / "quality.json").write_text(a_suite("quality", 5))
        self.shell = Shell(self.root)
        self.folder = self.root / "checkpoints" / "_reports" / "orders"

    def publish(self, *minutes: int, table: str = "totals") -> None:
        """Append a row for each window; its total is its minute."""
        at, starts = pa.timestamp("us", tz="UTC"), [START + timedelta(minutes=minute) for minute in minutes]
        rows = {
            "user": ["u"] * len(minutes),
            "window_start": pa.array(starts, at),
            "window_end": pa.array([start + timedelta(minutes=1) for start in starts], at),
            "n": [1] * len(minutes),
            "total": list(minutes),
        }
        write_deltalake(self.root / "tables" / table, pa.table(rows), mode="append")

    def configure(self, text: str, *, job: str | None = "orders") -> None:
        """Append to a file of configuration."""
        path = self.root / "conf" / ("penstock.toml" if job is None else f"jobs/{job}.toml")
        path.write_text(f"{path.read_text()}\n{text}\n")

    def penstock(self, *words: str):
        """Run the command here: Great Expectations is slow to load."""
        return CliRunner().invoke(app, list(words))

    def report(self, *words: str, check: str | None = "quality") -> dict:
        """Return what a report of one check says."""
        chosen = ["--check", check] if check else []
        result = self.penstock("report", "orders", *chosen, *words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def refused(self, *words: str, job: str = "orders") -> str:
        """Return what the command says when no report can be made."""
        result = self.penstock("report", job, *words)
        assert result.exit_code == ReportImpossible("").exit_code, result.output
        return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())


@pytest.fixture
def world(tmp_path, monkeypatch) -> Iterator[World]:
    """The working folder is in the project."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    place = World(tmp_path / "project")
    monkeypatch.chdir(place.root)
    yield place
    place.shell.end()


def test_reports_are_made_as_windows_are_published(world):
    """The first on all windows, the next on the new ones, the one after on none; each in a process of its own."""
    world.publish(1, 2, 7)
    first = world.shell.json("report", "orders", "--check", "quality")
    assert (first["check"], first["verdict"], first["windows"], first["failed"]) == ("quality", "failed", 3, 1)
    page = world.folder / "runs" / f"{first['run']}.html"
    assert str(page) == first["page"]
    assert "<title>Report" in page.read_text()

    world.publish(3)
    code, out, err = world.shell.run("report", "orders", "--check", "quality")
    assert (code, "quality: passed, 1 windows, 0 failed" in out) == (0, True), err
    code, out, _ = world.shell.run("report", "orders", "--check", "quality")
    assert (code, "quality: no new windows" in out) == (0, True)
    assert str(world.folder / "index.html") in out

    history = (world.folder / "index.html").read_text()
    assert re.findall(r"<dt>windows</dt><dd>(\d+)</dd>", history) == ["4"]
    assert f'href="runs/{first["run"]}.html"' in history
    assert (world.folder / "docs" / "index.html").is_file()
    assert Results(world.folder / "results").read().num_rows == 4


def test_windows_are_picked_by_number_or_time(world):
    """Also again; what is new stays new meanwhile. Times are those at which windows end, UTC where no zone is given."""
    world.publish(*range(10))
    assert [world.report("--newest", "3")[name] for name in ("windows", "failed", "more")] == [3, 3, False]
    assert world.report("--newest", "99")["windows"] == 10
    assert world.report("--since", "2024-01-01T00:08")["windows"] == 3
    assert world.report("--since", "2024-01-01T01:08+01:00")["windows"] == 3
    assert world.report("--until", "2024-01-01T00:08Z")["windows"] == 7
    assert world.report("--since", "2024-01-01T00:08", "--until", "2024-01-01T00:09")["windows"] == 1
    assert world.report("--since", "2024-01-02")["verdict"] == "empty"
    assert world.report("--since", "2023-12-31", "--until", "2024-01-02")["windows"] == 10
    assert world.report()["windows"] == 10
    assert world.report()["windows"] == 0
    assert Results(world.folder / "results").cursor("quality", table_id(world.root / "tables" / "totals")) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--newest", "0"], ["--newest", "-1"], ["--newest", "many"], ["--newest", "1", "--since", "2024-01-01"],
        ["--newest", "1", "--until", "2024-01-01"], ["--since", "yesterday"], ["--until", "2024-13-01"], ["--since", ""],
        ["--run", "../up"], ["--run", "a/b"], ["--run", ""], ["--run", "x" * 65], ["--run", "<script>"], ["--run", "a b"],
        ["--run", ".."], ["--run", "a\nb"], ["--run", "é"], ["--nope"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_arguments_that_mean_nothing_are_refused(world, words):
    """Exit 2, as for any command, before anything is read or written."""
    world.publish(1)
    result = world.penstock("report", "orders", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert not world.folder.exists()


def test_what_cannot_be_reported_on_is_said(world):
    """Another check, another job, a job without checks, a table that is not there yet."""
    assert "did you mean 'quality'" in world.refused("--check", "qualty")
    assert "nothing was published yet" in world.refused("--check", "quality")
    (world.root / "jobs" / "plain.py").write_text(PLAIN)
    toml = (world.root / "conf" / "jobs" / "orders.toml").read_text()
    (world.root / "conf" / "jobs" / "plain.toml").write_text(toml)
    assert "plain has no check on windows that a Delta table takes" in world.refused(job="plain")
    result = world.penstock("report", "ordres")
    assert (result.exit_code != 0, "orders" in result.output) == (True, True)


def test_a_named_report_counts_once(world):
    """A scheduler that tries again gives the same name: nothing is judged twice, and what is new then waits."""
    world.publish(1, 7)
    first = world.report("--run", "night_1")
    world.publish(8)
    again = world.report("--run", "night_1")
    assert {**again, "more": False} == first
    assert (first["run"], first["windows"], again["more"]) == ("night_1", 2, True)
    assert world.report("--run", "night_2")["windows"] == 1


def test_all_checks_are_reported_on_by_one_command(world):
    """A line each; pages have the check in their names. A rule that never blocks is noted."""
    world.publish(1, 7)
    world.publish(1, 1, 1, 2, table="counted")
    result = world.penstock("report", "orders", "--run", "both", "--json")
    assert result.exit_code == 0, result.output
    by_check = {report["check"]: report for report in map(json.loads, result.stdout.splitlines())}
    assert {name: (r["run"], r["verdict"], r["windows"], r["failed"], r["noted"]) for name, r in by_check.items()} == {
        "quality": ("both-quality", "failed", 2, 1, 0),
        "counts": ("both-counts", "passed", 2, 0, 1),
    }
    history = (world.folder / "index.html").read_text()
    assert all(f'href="runs/both-{name}.html"' in history for name in by_check)
    assert re.findall(r'<h2 id="check-\d">(\w+)</h2>', history) == ["counts", "quality"]


def test_one_check_without_a_table_does_not_keep_the_others_from_theirs(world):
    """A report of all checks is made where it can be; what could not be is said."""
    world.publish(1, 7, table="counted")
    result = world.penstock("report", "orders", "--json")
    assert [json.loads(line)["check"] for line in result.stdout.splitlines()] == ["counts"]
    assert "nothing was published yet" in " ".join(result.output.split())


def test_a_report_may_judge_by_a_suite_of_its_own(world):
    """`[reports.suites]`: the gate goes on with the check's."""
    world.publish(1, 7)
    (world.root / "conf" / "quality" / "strict.json").write_text(a_suite("strict", 0))
    world.configure('[reports.suites]\nquality = "strict"')
    assert world.report()["failed"] == 2
    assert "strict:1:" in (world.folder / "index.html").read_text()


def test_a_suite_for_a_check_that_is_not_there_is_refused(world):
    """With what there is, and where it is written."""
    world.publish(1)
    world.configure('[reports.suites]\nqualty = "quality"')
    complaint = world.refused("--check", "quality")
    assert "'qualty'" in complaint
    assert "did you mean 'quality'" in complaint
    assert "conf/jobs/orders.toml" in complaint


def test_a_suite_of_another_jobs_check_is_no_mistake(world):
    """The project's file speaks for all jobs: a check that one of them has is not missed in the others."""
    world.publish(1)
    (world.root / "jobs" / "plain.py").write_text(
        CHECKED.replace('Job("orders"', 'Job("plain"').replace('"counts"', '"sums"')
    )
    toml = (world.root / "conf" / "jobs" / "orders.toml").read_text()
    (world.root / "conf" / "jobs" / "plain.toml").write_text(toml)
    world.configure('[reports.suites]\nsums = "quality"', job=None)
    assert world.report()["windows"] == 1


def test_a_suite_that_is_not_there_is_refused_and_nothing_is_committed(world):
    """By its path; the windows stay new."""
    world.publish(1)
    world.configure('[reports.suites]\nquality = "nowhere"')
    result = world.penstock("report", "orders", "--check", "quality")
    assert result.exit_code != 0
    assert "nowhere.json" in result.output
    assert Results(world.folder / "results").cursor("quality", table_id(world.root / "tables" / "totals")) is None


def test_a_limit_lets_a_report_take_its_windows_in_turns(world):
    """`[reports] windows`: said on the first page what was left out, and later that more wait."""
    world.configure("[reports]\nwindows = 2")
    world.publish(1, 2, 3)
    first = world.report()
    assert (first["windows"], first["more"]) == (2, False)
    with open(first["page"], encoding="utf-8") as page:  # noqa: PTH123 - a path as it was told
        assert "1 older windows were left out" in page.read()
    for minute in (4, 5, 6):
        world.publish(minute)
    reported = [(report["windows"], report["more"]) for report in (world.report() for _ in range(3))]
    assert reported == [(2, True), (1, False), (0, False)]


def test_windows_above_a_threshold_are_judged_by_spark(world):
    """`[reports] pandas_rows`; both kinds are in one report."""
    world.configure("[reports]\npandas_rows = 1")
    world.publish(1, 2, 2)
    assert world.report()["windows"] == 2
    rows = Results(world.folder / "results").read().to_pylist()
    assert [row["engine"] for row in sorted(rows, key=lambda row: row["window_start"])] == ["pandas", "spark"]


def documented(world) -> list[int]:
    """Return the minutes that the windows of the Data Docs begin at; each has one page."""
    names = [path.name for path in (world.folder / "docs" / "validations").rglob("*.html")]
    stamps = sorted(re.findall(r"quality (\d\d\d\d-\d\d-\d\d) (\d\d)\.(\d\d)\.", "\n".join(names)))
    assert len(stamps) == len(names)
    return [60 * int(hour) + int(minute) for _, hour, minute in stamps]


def test_data_docs_hold_the_newest_windows_only(world):
    """50 of 70, with links to all of them, and none to what was let go."""
    world.publish(*range(70))
    world.report()
    assert documented(world) == [*range(20, 70)]
    world.publish(*range(70, 75))
    world.report()
    assert documented(world) == [*range(25, 75)]
    assert len(list((world.folder / "newest").iterdir())) == 50
    assert [path.name for path in world.folder.iterdir() if path.name.startswith(".docs")] == []


def test_results_can_be_read_by_others(world):
    """A Delta table, one row for each window, rule and run: what a dashboard asks."""
    world.publish(1, 7)
    world.report("--run", "one")
    rows = DeltaTable(world.folder / "results").to_pyarrow_table().sort_by("window_start").to_pylist()
    assert [(row["run"], row["window_start"], row["success"], row["unexpected"]) for row in rows] == [
        ("one", START + timedelta(minutes=1), True, 0),
        ("one", START + timedelta(minutes=7), False, 1),
    ]


def test_reports_are_for_their_owner(world):
    """Folders are made as the checkpoint's are: what a page shows of rows is not for everyone on the machine."""
    world.publish(7)
    world.report()
    assert world.folder.stat().st_mode & 0o077 == 0


def test_a_job_that_has_nothing_to_report_on_may_end_well(world):
    """Where that is asked for: Airflow reports on all jobs, whatever each has."""
    assert world.penstock("report", "orders", "--check", "quality").exit_code == 78
    result = world.penstock("report", "orders", "--if-any", "--check", "quality", "--json")
    assert (result.exit_code, result.stdout) == (0, "")
    (world.root / "jobs" / "plain.py").write_text(PLAIN)
    toml = (world.root / "conf" / "jobs" / "orders.toml").read_text()
    (world.root / "conf" / "jobs" / "plain.toml").write_text(toml)
    assert world.penstock("report", "plain").exit_code == 78
    assert world.penstock("report", "plain", "--if-any").exit_code == 0
    assert world.penstock("report", "plain", "--if-any", "--check", "none").exit_code == 78


def test_a_name_that_another_check_has_is_refused(world):
    """Its verdict would be told as that of this one."""
    world.publish(1)
    world.publish(1, table="counted")
    assert world.penstock("report", "orders", "--check", "quality", "--run", "x").exit_code == 0
    result = world.penstock("report", "orders", "--check", "counts", "--run", "x")
    assert result.exit_code == 78
    assert "one of quality, not of counts" in result.output.replace("\n", " ")


def test_upkeep_sweeps_what_a_killed_report_has_left(world):
    """After the checkpoint was read; pages and results stay."""
    world.publish(1)
    assert world.report()["windows"] == 1
    pages = sorted(path for path in world.folder.rglob("*.html"))
    for name in (".docs-12ab", ".docs-old-12ab"):
        (world.folder / name).mkdir()
        (world.folder / name / "x").write_text("x")
    for name in ("newest/.1-r-0.json-12ab", "runs/.r.html-12ab", ".index.html-12ab"):
        (world.folder / name).write_text("x")
    assert world.penstock("upkeep", "orders").exit_code == 0
    left = [path.name for path in world.folder.rglob(".*-*") if "_delta_log" not in path.parts]
    assert left == []
    assert sorted(path for path in world.folder.rglob("*.html")) == pages
