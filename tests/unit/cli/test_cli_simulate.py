"""`penstock simulate`: an estimator on a made-up job, or on the history of a job."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from checkpoint_samples import commit, offsets, own
from project_samples import make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app

SHORT = ("--load", "5 seconds=100", "--load", "5 seconds=2000")


def simulate(*words: str):
    """Run the command in this process."""
    return CliRunner().invoke(app, ["simulate", *words])


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project that the working folder is in."""
    root = make_project(tmp_path / "project", rows=10)
    monkeypatch.chdir(root)
    return root


def batches(root, rows: list[int], **settings: object) -> None:
    """Append batches to the log of the job: 300 ms and 0.1 ms a row, one a second."""
    store = LocalStore(root / "checkpoints" / "orders")
    open_or_create(store, now=0)
    owned = own(Log(store), holder="elsewhere:1:1")
    for number, count in enumerate(rows):
        owned.append(offsets(number, settings=settings))
        read = {"source:orders": {"read": count}}
        owned.append(commit(number, accounting=read, timings={"FixOffsets": 10.0, "Compute": 290 + 0.1 * count}))


def test_a_burst_on_the_plant_is_a_table_and_a_summary() -> None:
    """Without any option: a minute of quiet, a pause, and ten times the rows."""
    lines = simulate().stdout.splitlines()
    assert lines[0].split() == [
        "batch",
        "second",
        "rows",
        "rate",
        "delay",
        "ms",
        "batch",
        "ms",
        "late",
        "ms",
        "left",
        "interval",
        "ms",
    ]
    assert lines[1].split()[:3] == ["0", "1.0", "99"]
    assert "32,000 of 32,000 rows in" in lines[-2]
    assert lines[-1].startswith("worst delay ")


@pytest.mark.parametrize(
    "estimator", [["cost_model"], ["pid"], ["constant", "--rate", "500"], ["off"]], ids=lambda words: words[0]
)
def test_every_estimator_is_simulated_for_programs(estimator: list[str]) -> None:
    """A line of JSON with each batch; the same seed gives the same."""
    words = ("--json", "--estimator", *estimator, "--seed", "4", *SHORT)
    told = json.loads(simulate(*words).stdout)
    assert (told["metrics"], told["estimator"]) == ("plant", estimator[0])
    assert sum(batch["rows"] for batch in told["batches"]) > 2_000
    assert json.loads(simulate(*words).stdout) == told


def test_costs_caps_and_the_interval_are_options() -> None:
    """1.2 seconds a batch in ticks of half a second: the adaptive interval is longer."""
    words = (
        "--json",
        "--interval",
        "500 millis",
        "--fixed-ms",
        "1200",
        "--row-ms",
        "0",
        "--noise",
        "0",
        "--adaptive",
        "--max-rate",
        "50",
        *SHORT,
    )
    told = json.loads(simulate(*words).stdout)
    assert {batch["batch_ms"] for batch in told["batches"]} == {1_200}
    assert told["batches"][-1]["interval_ms"] > 1_200
    assert max(batch["rows"] for batch in told["batches"]) <= 4 * 50 * 2


def test_a_picture_is_written(tmp_path) -> None:
    """As SVG, with what was simulated as its title."""
    path = tmp_path / "burst.svg"
    assert simulate("--picture", str(path), *SHORT).exit_code == 0
    root = ET.fromstring(path.read_text())  # noqa: S314 - written above
    assert root.attrib["aria-label"] == "plant: cost_model, 1 s"


def test_the_history_of_a_job_is_replayed(project) -> None:
    """Rows as they arrived; costs as they were fitted, unless an option replaces them."""
    batches(project, [100, 900, 400, 1_600, 200, 800])
    told = json.loads(simulate("--metrics", "orders", "--json").stdout)
    assert (round(told["fixed_ms"]), round(told["row_ms"], 3)) == (300, 0.1)
    assert sum(batch["rows"] for batch in told["batches"]) <= 4_000
    text = simulate("--metrics", "orders").stdout
    assert "orders: 6 batches, fitted 300 ms a batch and 100.0 ms for 1,000 rows\n" in text
    assert json.loads(simulate("--metrics", "orders", "--fixed-ms", "5", "--json").stdout)["fixed_ms"] == 5


def test_the_interval_is_that_of_the_job_unless_an_option_says_another(project) -> None:
    """A job with batches every two seconds is not simulated with twice as many."""
    batches(project, [100, 900, 400, 1_600], interval=2_000_000)

    def every(*words: str) -> set[float]:
        told = json.loads(simulate("--metrics", "orders", "--json", *words).stdout)
        return {batch["interval_ms"] for batch in told["batches"]}

    assert (every(), every("--interval", "3 seconds")) == ({2_000.0}, {3_000.0})
    assert "4 batches in an interval of 2 s, fitted 300 ms" in simulate("--metrics", "orders").stdout


def test_costs_that_are_a_guess_are_called_so(project) -> None:
    """Row counts that hardly differ cannot separate them."""
    batches(project, [500, 501, 500, 502])
    assert "these two are a guess" in simulate("--metrics", "orders").stdout


@pytest.mark.remedy("PEN-RAT-001")
def test_a_job_without_history_is_named_until_it_has_run(project) -> None:
    """With the remedy, which helps: three batches with rows, or the plant."""
    result = simulate("--metrics", "orders")
    assert (result.exit_code, "PEN-RAT-001" in result.stderr, "--metrics plant" in result.stderr) == (78, True, True)
    assert simulate("--metrics", "plant", *SHORT).exit_code == 0
    batches(project, [100, 900, 400])
    assert simulate("--metrics", "orders").exit_code == 0


def test_a_job_that_is_none_is_named(project) -> None:
    """As by every command."""
    result = simulate("--metrics", "order")
    assert (result.exit_code, "PEN-JOB-009" in result.stderr) == (78, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interval", "soon"], 'write a number and a unit, such as "10 seconds"'),
        (["--interval", "0 seconds"], "interval"),
        (["--estimator", "constant"], "give it with --estimator constant"),
        (["--rate", "5"], "give it with --estimator constant, and only there"),
        (["--estimator", "constant", "--rate", "0"], "rate is above 0, found 0.0"),
        (["--estimator", "pid", "--adaptive"], "only the cost model advises an interval"),
        (["--load", "100"], "'100' is no step"),
        (["--load", "5 seconds=many"], "'5 seconds=many' is no step"),
        (["--load", "5 seconds=-1"], "the rate of a step is 0 or more"),
        (["--noise", "-1"], "noise is 0 or more, found -1.0"),
        (["--pauses", "2"], "pause_chance is at most 1, found 2.0"),
        (["--max-rate", "0.5"], "max_rate is 0.5 rows a second, below min_rate of 1"),
        (["--first-rate", "0"], "first_rate is above 0, found 0.0"),
        (["--metrics", "orders", *SHORT], "the log of a job says what arrived"),
        (["--picture", "nowhere/at/all.svg"], "cannot write nowhere/at/all.svg"),
        (["--estimator", "fuzzy"], "cost_model"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)  # fmt: skip
def test_an_argument_out_of_range_is_named(project, words: list[str], message: str) -> None:
    """Exit code 2, and what is expected."""
    result = simulate(*words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
