"""The penstock command: help that teaches, errors in a few words, exit codes of DESIGN 11. No Spark here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from checkpoint_samples import commit, offsets, own
from project_samples import JOB, job_toml, make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import Release, StagedFile
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.storage.local import LocalStore
from penstock.cli.main import app
from penstock.cli.run import parse_gates
from penstock.runtime.process.heartbeat import StatusRecords

PAGE = Path(__file__).resolve().parents[3] / "docs" / "commands.md"
COMMANDS = [[], ["run"], ["explain"], ["status"], ["checkpoints"], ["held"], ["held", "orders", "release"]]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project that the working folder is in."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    project = make_project(tmp_path / "project", rows=10)
    monkeypatch.chdir(project)
    return project


def penstock(*words: str):
    """Run the command in this process."""
    return CliRunner().invoke(app, list(words))


def log_of(root: Path):
    """Return the log of the job, taken over by a driver elsewhere."""
    store = LocalStore(root / "checkpoints" / "orders")
    open_or_create(store, now=0)
    return own(Log(store), holder="elsewhere:1:1")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "penstock")
def test_help_shows_examples(words):
    """Every command says how it is used."""
    result = penstock(*words, "--help")
    assert result.exit_code == 0
    if len(words) < 3:
        assert re.search(r"penstock (run|explain|status|checkpoints|held) flights", result.stdout)


def test_help_imports_neither_spark_nor_the_engine():
    """So it is there at once."""
    code = (
        "import sys, penstock.cli.main as m\n"
        "try: m.app(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('pyspark', 'pyarrow', 'deltalake', 'structlog', 'rich') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_the_version_is_told():
    """That of the package."""
    result = penstock("--version")
    assert (result.exit_code, result.stdout.split()[0]) == (0, "penstock")


@pytest.mark.parametrize(
    "words",
    [["run"], ["run", "orders", "--from", "batch"], ["run", "orders", "--gate", "1=x"], ["run", "orders", "--x"],
     ["run", "orders", "--gate", "1=hold", "--gate", "1=drop"], ["held", "orders", "release", "-1"], ["nothing"]],
)  # fmt: skip
def test_a_wrong_command_line_ends_with_2(root, words):
    """With the usage, and nothing is loaded."""
    result = penstock(*words)
    assert (result.exit_code, "Usage: " in result.stderr) == (2, True)


def test_gates_are_read():
    """A person's word on batches that a gate has stopped (SEMANTICS 11.5)."""
    assert parse_gates(["17=publish", "18=hold", "17=publish", "3=drop"]) == {17: "publish", 18: "hold", 3: "drop"}
    with pytest.raises(typer.BadParameter):
        parse_gates(["x=publish"])


@pytest.mark.fault("F66")
def test_an_error_says_what_where_and_what_to_do(root):
    """In a few lines on standard error, without a traceback; exit 78."""
    (root / "conf" / "jobs" / "orders.toml").write_text(job_toml().replace("order_by", "orderby"))
    result = penstock("explain", "orders", "--no-spark")
    assert result.exit_code == 78
    assert result.stderr.splitlines() == [
        "PEN-CNF-001 the key 'order_by' is missing in [sources.orders]; "
        "line 4: unknown key 'orderby' in [sources.orders]; did you mean 'order_by'?",
        "  where: conf/jobs/orders.toml:1",
        "  do: Correct what is named: a line of a file, or a variable of the environment.",
    ]
    assert "Traceback" in penstock("explain", "orders", "--no-spark", "--debug").stderr


def test_an_error_of_penstock_itself_ends_with_70(root, monkeypatch):
    """It says so, and where."""

    def broken(*args):
        raise KeyError("oops")

    monkeypatch.setattr("penstock.runtime.inspect.explain.explain_graph", broken)
    result = penstock("explain", "orders", "--no-spark")
    assert result.exit_code == 70
    assert "KeyError: 'oops'" in result.stderr
    assert "This is an error in Penstock" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words", [["run", "order"], ["status", "order"], ["checkpoints", "../orders"], ["held", "x", "list"]]
)
def test_a_job_that_is_not_there_is_refused(root, words):
    """With those that are."""
    result = penstock(*words)
    assert (result.exit_code, "PEN-JOB-009" in result.stderr, "'orders'" in result.stderr) == (78, True, True)


def test_a_project_can_be_named(root, monkeypatch):
    """From anywhere."""
    monkeypatch.chdir(root.parent)
    assert penstock("status", "orders").exit_code == 78
    assert penstock("status", "orders", "--project", str(root)).stdout.split() == [
        "job",
        "orders",
        "state",
        "never",
        "run",
    ]


def test_an_error_of_run_is_an_event_and_a_message(root):
    """Standard output stays JSON where it is no terminal."""
    (root / "jobs" / "orders.py").write_text(JOB.replace(".drop_late()", ""))
    result = penstock("run", "orders")
    event = json.loads(result.stdout)
    assert (result.exit_code, event["event"], event["code"], event["exit_code"]) == (
        78,
        "run.failed",
        "PEN-JOB-004",
        78,
    )
    assert result.stderr.startswith("PEN-JOB-004 ")


def test_a_trigger_in_code_and_another_in_configuration_is_refused(root):
    """One of them would do nothing."""
    (root / "jobs" / "orders.py").write_text(JOB.replace("partitions=2", "partitions=2, interval=seconds(5)"))
    path = root / "conf" / "jobs" / "orders.toml"
    path.write_text(job_toml(more="[run]\ntrigger = 'as_fast'\n"))
    line = path.read_text().splitlines().index("trigger = 'as_fast'") + 1
    for words in (("run", "orders"), ("explain", "orders"), ("explain", "orders", "--no-spark"), ("config", "check")):
        result = penstock(*words)
        assert result.exit_code == 78, words
        assert f"conf/jobs/orders.toml:{line}" in result.stdout + result.stderr, words


@pytest.mark.fault("F07", "F09")
def test_a_second_driver_ends_with_77_before_spark_is_started(root):
    """It names the holder, and writes nothing."""
    owned = log_of(root)
    records = StatusRecords(LocalStore(root / "checkpoints"), "orders")
    code = (
        "import sys; from penstock.runtime.process.heartbeat import StatusRecords; "
        "from penstock.checkpoint.storage.local import LocalStore; import time\n"
        f"records = StatusRecords(LocalStore({str(root / 'checkpoints')!r}), 'orders')\n"
        f"while True: records.put({{'writer': {owned.writer!r}}}); time.sleep(0.2)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as holder:
        try:
            while records.newest() is None:
                time.sleep(0.05)
            result = penstock("run", "orders")
        finally:
            holder.kill()
    assert result.exit_code == 77
    assert "held by elsewhere:1:1, epoch 1, and it is alive" in result.stderr
    assert owned.log.find_tail() == 0
    assert [json.loads(line)["event"] for line in result.stdout.splitlines()] == ["run.failed"]


def test_going_back_without_a_checkpoint_is_refused_before_spark_is_started(root):
    """So is a batch that is not kept."""
    result = penstock("run", "orders", "--from", "batch=3")
    assert (result.exit_code, "there is no checkpoint to restore batch 3 from" in result.stderr) == (78, True)
    owned = log_of(root)
    owned.append(Release(epoch=1, writer="w1", reason="stopped"))
    result = penstock("run", "orders", "--from", "batch=3")
    assert (result.exit_code, "PEN-CKP-014" in result.stderr) == (78, True)


TOTALS = {
    "source:orders": {"read": 9_000, "quarantined": 12, "passed": 8_988, "too_far_ahead": 7},
    "filter:filter_1": {"rows": 8_988, "kept": 8_948, "filtered": 40},
    "window:minutely": {"rows": 8_948, "counted": 8_945, "late": 3},
    "batches": {"batches": 1, "mostly_late": 1},
}


def test_status_for_people_and_for_programs(root):
    """From storage alone."""
    owned = log_of(root)
    file = StagedFile(path="x", size=2**20, rows=4, checksum="", stats={})
    counts = {"source:orders": {"read": 50}, "window:minutely": {"rows": 50, "late": 3}}
    verdicts = [{"check": "quality", "action": "hold", "status": "failed"}]
    owned.append(offsets(0))
    owned.append(
        commit(
            0, accounting=counts, staged={"totals": [file]}, watermarks_out={"minutely": 60_000_000}, verdicts=verdicts,
            held={"totals": [file]}, totals=TOTALS, load={"late_ms": 40.4, "waiting": 50, "task_ms": 200, "gc_ms": 10},
        )
    )  # fmt: skip
    owned.append(Release(epoch=1, writer="w1", reason="finished"))
    lines = penstock("status", "orders").stdout.splitlines()
    assert "delay       the last batch began 40 ms after its batch time" in lines
    assert "garbage     5% of the time of tasks, in Java" in lines
    assert "in all      9,000 read, 12 quarantined (7 too far in the future), 40 filtered, 3 late" in lines
    assert "warning     most rows were late in 1 batch" in lines
    assert [line.split(maxsplit=1) for line in lines[:3]] == [["job", "orders"], ["state", "finished"], ["epoch", "1"]]
    assert "rows        50 read, 4 totals out, 3 minutely late" in lines
    assert "watermark   minutely 1970-01-01 00:01:00Z" in lines
    assert "verdicts    1 hold" in lines
    assert "held        batch 0 (penstock held orders list)" in lines
    printed = json.loads(penstock("status", "orders", "--json").stdout)
    assert (printed["state"], printed["last_batch"]["rows"], printed["held"]) == ("finished", 50, [0])
    assert printed["totals"] == {
        "read": 9_000,
        "quarantined": 12,
        "ahead": 7,
        "filtered": 40,
        "late": 3,
        "mostly_late": 1,
        "mostly_ahead": 0,
        "requeued": 0,
        "failed_again": 0,
    }


@pytest.mark.sample(seconds=12)
def test_held_batches_for_people_and_for_programs(root):
    """What waits is listed; what is not held is refused."""
    assert penstock("held", "orders", "list").stdout == "orders holds no batch back\n"
    assert penstock("held", "orders", "release", "0").exit_code == 78
    owned = log_of(root)
    file = StagedFile(path="x", size=1, rows=4, checksum="", stats={})
    owned.append(offsets(0))
    verdicts = [{"check": "quality", "action": "hold", "status": "failed"}]
    owned.append(commit(0, held={"totals": [file]}, verdicts=verdicts))
    line = penstock("held", "orders", "list").stdout.splitlines()[1]
    assert line.split() == ["0", "1970-01-01", "00:00:00Z", "quality", "4", "for", "totals"]
    printed = json.loads(penstock("held", "orders", "list", "--json").stdout)
    assert printed["held"][0]["rows"] == {"totals": 4}
    assert penstock("held", "orders", "release", "1").exit_code == 78
    result = penstock("held", "orders", "discard", "0")
    assert (result.exit_code, result.stdout) == (0, "batch 0 was discarded: 4 rows of totals\n")
    result = penstock("held", "orders", "discard", "0")
    assert (result.exit_code, result.stdout) == (0, "batch 0 was discarded before: 4 rows of totals\n")
    assert "PEN-QLT-006" in penstock("held", "orders", "release", "0").stderr


def test_the_page_names_every_command_and_option():
    """docs/commands.md lists what --help lists."""
    text = PAGE.read_text()
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        below = getattr(command, "commands", {})
        for each in [command, *below.values()]:
            for option in (o for p in each.params for o in p.opts if o.startswith("--")):
                assert f"`{option}" in text or f" {option}" in text, (name, option)
        assert f"## penstock {name}" in text


def test_what_is_dropped_and_compared_with_is_looked_at_before_anything_else(root):
    """Names of steps, and a root with a checkpoint of the job."""
    assert penstock("run", "orders", "--drop", "No Name").exit_code == 2
    assert penstock("diff", "orders", "--drop", "../w").exit_code == 2
    result = penstock("diff", "orders", "--against", str(root / "nowhere"))
    assert (result.exit_code, "no checkpoint of orders below" in " ".join(result.stderr.split())) == (2, True)


def test_sinks_take_back_nothing_without_a_restore(root):
    """There is no batch whose rows they would show."""
    result = penstock("run", "orders", "--truncate-sinks")
    assert (result.exit_code, "say with --from" in " ".join(result.stderr.split())) == (2, True)
