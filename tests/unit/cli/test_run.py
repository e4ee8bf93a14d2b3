"""The penstock command as people and supervisors run it: real processes, real signals, real Spark."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from cli_runner import PATIENCE, Shell
from project_samples import JOB, PROJECT_TOML, expected_totals, job_toml, make_project

from penstock.checkpoint.log.entries import Offsets
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.local import LocalStore
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.os_processes import argv_of, session_members

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SLOW = JOB.replace(
    "    totals = (",
    """    orders = orders.transform("slow", slowly)
    totals = (""",
).replace(
    "def build",
    """def sleep(batches):
    import pathlib
    import time

    for batch in batches:
        while pathlib.Path("slow").exists():
            time.sleep(0.1)
        yield batch


def slowly(frame):
    return frame.mapInArrow(sleep, frame.schema)


def build""",
)

GATED = JOB.replace(
    'totals.write("totals", Delta(conf.table("totals")))',
    """few = {"name": "few", "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": 1600}}]}
    never = {"name": "never", "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": 5200}}]}
    totals.check("stops", suite=never, on_fail=OnFail.STOP).write("all", Delta(conf.table("all")))
    totals.check("holds", suite=few, on_fail=OnFail.HOLD).write("totals", Delta(conf.table("totals")))""",
).replace("from penstock.sinks", "from penstock.quality import OnFail\nfrom penstock.sinks")

RATED = """
from penstock import Job
from penstock.sinks import Delta
from penstock.sources import Rate


def build(conf):
    job = Job("orders")
    job.source("rate", Rate(200)).write("out", Delta(conf.table("totals")))
    return job
"""


@pytest.fixture
def shell(tmp_path) -> Iterator[Shell]:
    """A project of 1,000 orders in 20 batches."""
    project = Shell(make_project(tmp_path / "project", rows_per_batch=50))
    yield project
    project.end()


def events(process: subprocess.Popen[str], name: str, count: int = 1) -> list[dict]:
    """Read events until so many of that name have come; return those."""
    assert process.stdout is not None
    seen: list[dict] = []
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == name:
            seen.append(event)
            if len(seen) == count:
                return seen
    process.wait(PATIENCE)
    assert process.stderr is not None
    raise AssertionError(f"{len(seen)} events {name}, then exit {process.returncode}: {process.stderr.read()[-2000:]}")


@pytest.mark.sample(seconds=90)
@pytest.mark.fault("F01", "F02", "F07", "F09")
def test_a_job_is_stopped_killed_and_finished_and_its_table_is_that_of_one_run(shell):
    """SIGTERM, a second driver, a save, kill -9, a run on a terminal, and a restore, one after the other."""
    toml = shell.root / "conf" / "jobs" / "orders.toml"
    # Slow enough to be stopped, saved and killed on the way, on a busy machine too.
    toml.write_text(job_toml(rows_per_batch=20, more='[run]\ntrigger = "interval 2 seconds"\n'))
    first = shell.start("run", "orders")
    events(first, "batch.committed", 2)
    code, _, err = shell.run("run", "orders")
    assert (code, f":{first.pid}:" in err, "PEN-CKP-013" in err) == (77, True, True)
    assert shell.json("status", "orders")["state"] == "running"
    first.send_signal(signal.SIGTERM)
    last = [json.loads(line) for line in first.communicate(timeout=PATIENCE)[0].splitlines()][-1]
    assert (first.returncode, last["event"], last["ending"]) == (0, "run.ended", "stopped")
    stopped = shell.json("status", "orders")
    assert (stopped["state"], stopped["pending"], stopped["holder"]) == ("stopped", False, None)

    second = shell.start("run", "orders")
    took = events(second, "run.took_over")[0]
    assert took["next_batch"] == stopped["next_batch"]
    assert took["rows_left"] == {"orders": 1_000 - 20 * stopped["next_batch"]}
    events(second, "batch.committed", 2)
    saved = shell.json("save", "orders", "half_way")  # by the driver, between two batches
    code, _, err = shell.run("save", "orders", "half_way")
    assert (code, "PEN-CKP-024" in err, "['half_way']" in err) == (78, True, True)
    second.kill()
    second.wait(PATIENCE)
    toml.write_text(job_toml(rows_per_batch=50))
    assert shell.json("status", "orders")["state"] == "died"
    nothing_is_left_of(first, second)

    shown = on_a_terminal(shell)
    assert "100%" in shown
    assert "finished" in shown
    assert shell.totals() == expected_totals()
    assert shell.json("status", "orders")["state"] == "finished"

    assert shell.json("checkpoints", "orders")["saves"] == {"half_way": saved["batch"]}
    assert shell.json("save", "orders", "done")["batch"] > saved["batch"]  # nobody runs it
    assert shell.json("save", "orders", "done", "--delete") == {"job": "orders", "deleted": "done"}
    code, _, err = shell.run("save", "orders", "done", "--delete")
    assert (code, "there is no saved checkpoint 'done'" in err) == (78, True)
    words = [
        "run",
        "orders",
        "--from",
        "saved=half_way",
        "--available-now",
        "--command",
        "dag/run/1",
        "--generation",
        "2",
    ]
    code, out, err = shell.run(*words)
    assert code == 0, err
    printed = [json.loads(line) for line in out.splitlines()]
    assert (printed[0]["event"], printed[0]["back_to"]) == ("restore.superseded", saved["batch"])
    assert printed[-1]["ending"] == "finished"
    again = printed[0]["sinks"]["totals"]["rows"]
    assert again > 0
    assert len(shell.totals()) == len(expected_totals()) + again
    assert sorted(set(shell.totals())) == expected_totals()
    code, _, err = shell.run("run", "orders", "--generation", "1")
    assert (code, "generation 2 has had the log since" in err) == (77, True)


def nothing_is_left_of(*processes: subprocess.Popen[str]) -> None:
    """Wait until no process of their groups runs: Spark's JVM ends with its driver, also when that is killed."""
    for process in processes:
        for _ in range(600):
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"something that {process.pid} started still runs")


def on_a_terminal(shell: Shell) -> str:
    """Run the job with a terminal as its standard output, and return what was shown on it."""
    ours, theirs = pty.openpty()
    process = shell.start("run", "orders", stdout=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end was closed, as a terminal tells it
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    return shown.decode()


@pytest.mark.sample(1)
@pytest.mark.fault("F02")
@pytest.mark.parametrize(
    ("number", "java", "after"), [(signal.SIGINT, False, 0.0), (signal.SIGTERM, True, 0.0), (signal.SIGTERM, True, 1.0)]
)
def test_a_stop_while_spark_starts_leaves_nothing_behind(shell, number, java, after):
    """Neither an error nor a checkpoint nor a process, though the whole group gets the signal, Java included."""
    run = shell.start("run", "orders")
    events(run, "run.starting")
    while java and not any("org.apache.spark.deploy.SparkSubmit" in argv_of(pid) for pid in session_members(run.pid)):
        time.sleep(0.05)
    time.sleep(after)
    os.killpg(run.pid, number)
    out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, err
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["run.stopping", "run.ended"]
    assert not (shell.root / "checkpoints" / "orders").exists()
    nothing_is_left_of(run)


@pytest.mark.sample(seconds=45)
@pytest.mark.fault("F02")
def test_a_batch_that_outlasts_the_deadline_is_given_up_and_done_again(shell):
    """Exit 0, the log released, no rows in the sink; the next run gives the rows of an undisturbed one."""
    (shell.root / "jobs" / "orders.py").write_text(SLOW)
    (shell.root / "conf" / "jobs" / "orders.toml").write_text(job_toml(rows_per_batch=250))
    (shell.root / "slow").touch()
    run = shell.start("run", "orders", "--deadline", "1")
    events(run, "run.took_over")
    records = StatusRecords(LocalStore(shell.root / "checkpoints"), "orders")  # asked by `status` it would cost a core
    while (((report := records.newest()) and report.body["stage"]) or {}).get("name") != "Compute":
        time.sleep(0.2)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["run.stopping", "run.ended"]
    assert json.loads(out.splitlines()[-1])["ending"] == "abandoned"
    status = shell.json("status", "orders")
    assert (status["state"], status["pending"], status["next_batch"], shell.totals()) == ("stopped", True, 0, [])
    (shell.root / "slow").unlink()
    code, _, err = shell.run("run", "orders")
    assert code == 0, err
    assert shell.totals() == expected_totals()


@pytest.mark.sample(seconds=30)
@pytest.mark.remedy("PEN-QLT-003")
def test_gates_stop_and_hold_until_a_person_decides(shell):
    """Exit 78 and a way on; held rows are published by a release only (SEMANTICS 11.5)."""
    (shell.root / "jobs" / "orders.py").write_text(GATED)
    (shell.root / "conf" / "jobs" / "orders.toml").write_text(job_toml(rows_per_batch=200, more='all = "tables/all"\n'))
    code, out, err = shell.run("run", "orders")
    failed = json.loads(out.splitlines()[-1])
    assert (code, failed["event"], failed["code"], "PEN-QLT-003" in err) == (78, "run.failed", "PEN-QLT-003", True)
    status = shell.json("status", "orders")
    assert (status["state"], status["error"]["code"]) == ("needs_person", "PEN-QLT-003")
    stopped = status["next_batch"]
    gates = [word for batch in range(stopped, stopped + 5) for word in ("--gate", f"{batch}=publish")]
    code, _, err = shell.run("run", "orders", *gates)
    assert code == 0, err
    assert shell.totals("all") == expected_totals()

    held = shell.json("held", "orders", "list")["held"]
    waiting = [h["batch"] for h in held]
    before = shell.totals()
    assert len(waiting) >= 2
    assert len(before) + sum(h["rows"]["totals"] for h in held) == len(expected_totals())
    assert shell.json("held", "orders", "release", str(waiting[-1]))["rows"] == held[-1]["rows"]
    assert shell.json("held", "orders", "discard", str(waiting[0]))["rows"] == held[0]["rows"]
    after = shell.totals()
    assert set(before) < set(after) <= set(expected_totals())
    assert len(after) == len(before) + held[-1]["rows"]["totals"]
    assert [h["batch"] for h in shell.json("held", "orders", "list")["held"]] == waiting[1:-1]


@pytest.mark.sample(seconds=30)
def test_a_rate_below_the_minimum_is_refused_before_spark_starts_and_while_a_driver_runs(shell):
    """Nothing is written; the Offsets record a limit that is high enough (SEMANTICS 8.5, decision 106)."""
    (shell.root / "jobs" / "orders.py").write_text(RATED)
    (shell.root / "conf" / "penstock.toml").write_text(PROJECT_TOML + "[rates]\nmin_rate = 80\n")
    toml = shell.root / "conf" / "jobs" / "orders.toml"
    toml.write_text(job_toml(more="[limits]\nmax_rate = 79\n"))
    code, _, err = shell.run("run", "orders")
    places = ("conf/jobs/orders.toml:10" in err, "conf/penstock.toml:8" in err)
    assert (code, "PEN-CNF-001" in err, *places) == (78, True, True, True)
    assert not (shell.root / "checkpoints" / "orders").exists()

    toml.write_text(job_toml(more='[run]\ntrigger = "interval 1 second"\n'))
    run = shell.start("run", "orders")
    events(run, "batch.committed")
    code, _, err = shell.run("limits", "orders", "--max-rate", "79")
    assert (code, "too low for a min_rate of 80" in " ".join(err.split())) == (78, True)
    assert shell.json("limits", "orders", "--max-rate", "80")["limits"] == {"max_rate": 80}
    log, ends, limits = Log(LocalStore(shell.root / "checkpoints" / "orders")), time.monotonic() + PATIENCE, {}
    while "max_rate" not in limits:
        assert time.monotonic() < ends
        time.sleep(0.5)
        limits = next(entry.limits for _, entry in log.entries_back(log.find_tail()) if isinstance(entry, Offsets))
    assert limits["max_rate"] == 80
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=PATIENCE)
    assert run.returncode == 0


@pytest.mark.sample(seconds=15)
def test_explain_analyses_the_job_and_writes_nothing(shell):
    """What is wrong with a column is told at the user's line, before there is a checkpoint.

    Standard error has that and no more: no stack of Java's, no columns that are not the user's.
    """
    code, out, err = shell.run("explain", "orders")
    assert code == 0, err
    assert complaints(err) == []
    assert "merge the slices of each window" in out
    assert "user string, window_start timestamp[us, tz=UTC]" in out
    (shell.root / "jobs" / "orders.py").write_text(JOB.replace('agg.sum("v")', 'agg.sum("w")'))
    code, _, err = shell.run("run", "orders")
    assert code == 78
    what, where, remedy = complaints(err)
    assert what.startswith("PEN-JOB-005 ")
    asked, _, proposed = what.partition(" Did you mean one of the following? ")
    assert asked.endswith("`w` cannot be resolved.")
    assert sorted(proposed.strip("[].").split(", ")) == ["`t`", "`user`", "`v`"]
    assert where.endswith("jobs/orders.py:13")
    assert remedy == "  do: Correct the expression at the line named."
    assert not (shell.root / "checkpoints").joinpath("orders").exists()
    assert not (shell.root / "tables").exists()


def complaints(err: str) -> list[str]:
    """Return the lines of standard error, without the one that Java prints whenever Spark starts it."""
    return [line for line in err.splitlines() if line != "WARNING: Using incubator modules: jdk.incubator.vector"]
