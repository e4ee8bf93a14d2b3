"""Drivers as processes of this machine: started, found again by others, ended with all they have, and how they ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from project_samples import make_project

from penstock.errors import (
    CannotListen,
    CommitUnknown,
    GateStopped,
    SinkBusy,
    SinkUnavailable,
    SourceUnavailable,
    StorageFull,
    StorageUnavailable,
)
from penstock.runtime.process.os_processes import pid_namespace, process_runs, process_start, session_members
from penstock.supervise.launcher import LaunchOrder, run_words
from penstock.supervise.launchers.local import LocalLauncher, log_files, read_exit
from penstock.supervise.machine import Exit, Life, Seen
from penstock.supervise.stream import DriverSlot, StartOptions, Stream, Wish
from tools.waiting import until

HERE = socket.gethostname()


# --- how a driver ended -----------------------------------------------------------------------
def write_logs(logs, *lines, log=""):
    """Write what the driver of generation 3 said and complained of."""
    events, errors = log_files(logs, 3)
    events.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    errors.write_text(log, encoding="utf-8")


def ended(ending):
    return {"event": "run.ended", "ending": ending, "batches": 2}


def failed(code, **more):
    return {"event": "run.failed", "code": code, "what": "it broke", "exit_code": 75} | more


BATCH = {"event": "batch.committed", "batch": 1}


@pytest.mark.parametrize(
    ("lines", "code", "expected"),
    [
        ([BATCH, ended("finished")], 0, Exit(code=0, finished=True)),
        ([ended("finished")], None, Exit(code=0, finished=True)),
        ([ended("stopped")], 0, Exit(code=0)),
        ([ended("abandoned")], 0, Exit(code=0)),
        ([BATCH, failed("PEN-OPR-002")], 75, Exit(code=75, error="PEN-OPR-002 it broke")),
        ([failed("PEN-OPR-002")], None, Exit(code=75, error="PEN-OPR-002 it broke")),
        ([failed("PEN-OPR-002", where="batch 1")], 75, Exit(code=75, error="PEN-OPR-002 it broke (batch 1)")),
        ([failed("PEN-OPR-002", where=None)], 75, Exit(code=75, error="PEN-OPR-002 it broke")),
        ([failed(StorageFull.code)], 75, Exit(code=75, error=f"{StorageFull.code} it broke", storage=True)),
        ([failed(StorageUnavailable.code)], 75, Exit(code=75, error=f"{StorageUnavailable.code} it broke", storage=True)),
        ([failed(SourceUnavailable.code)], 75, Exit(code=75, error=f"{SourceUnavailable.code} it broke", storage=True)),
        ([failed(SinkUnavailable.code)], 75, Exit(code=75, error=f"{SinkUnavailable.code} it broke", storage=True)),
        ([failed(SinkBusy.code)], 75, Exit(code=75, error=f"{SinkBusy.code} it broke", storage=True)),
        ([failed(CannotListen.code)], 75, Exit(code=75, error=f"{CannotListen.code} it broke")),
        ([failed(CommitUnknown.code)], 75, Exit(code=75, error=f"{CommitUnknown.code} it broke", storage=True)),
        ([failed(GateStopped.code, exit_code=78)], 78, Exit(code=78, error=f"{GateStopped.code} it broke", judged=True)),
        ([failed("PEN-CKP-015", exit_code=78)], 78, Exit(code=78, error="PEN-CKP-015 it broke", unfit=True)),
        ([failed("PEN-CKP-016", exit_code=78)], 78, Exit(code=78, error="PEN-CKP-016 it broke", unfit=True)),
        ([failed("PEN-SNK-006", exit_code=78)], 78, Exit(code=78, error="PEN-SNK-006 it broke")),
        ([ended("stopped"), failed("PEN-CKP-012", exit_code=77)], 77, Exit(code=77, error="PEN-CKP-012 it broke")),
        ([failed("PEN-OPR-002", exit_code="75")], 75, Exit(error="PEN-OPR-002 it broke")),
        ([BATCH, ended("finished"), {"event": "spark.stopped"}], 0, Exit(code=0, finished=True)),
        ([BATCH], -9, Exit()),
        ([BATCH], None, Exit()),
        ([], -15, Exit()),
        ([BATCH, "not JSON", '"text"', "[1]", "{"], None, Exit()),
        ([ended("finished"), "not JSON", '"run.failed"', '["run.failed"]', '{"event": "run.fai'], 0, Exit(code=0, finished=True)),
        ([BATCH], 70, Exit(code=70, error="KeyError: 'x'")),
        ([], 1, Exit(code=1, error="KeyError: 'x'")),
    ],
    ids=[
        "finished", "finished, not our child", "stopped", "abandoned", "failed", "failed, not our child", "with a place",
        "without a place", "no room", "no answer", "no answer of a source",
        "no answer of a sink", "busy sink", "taken port", "not known", "gate", "other partitions",
        "other steps", "a table that the code names", "fenced at the end", "code that is none",
        "said something after it", "killed", "killed, not our child", "killed at the start", "junk", "junk after it",
        "code alone", "code alone and no event",
    ],
)  # fmt: skip
def test_how_a_driver_ended(tmp_path, lines, code, expected):
    """Its last words count before its exit code, and the last line of its complaints where it had none."""
    write_logs(tmp_path, *lines, log="Traceback\n  File\nKeyError: 'x'\n\n  \n")
    assert read_exit(tmp_path, 3, code) == expected


@pytest.mark.parametrize(
    "code",
    [
        *("PEN-CKP-001", "PEN-CKP-002", "PEN-CKP-003", "PEN-CKP-004", "PEN-CKP-005", "PEN-CKP-014", "PEN-CKP-026"),
        *("PEN-CKP-027", "PEN-CKP-028", "PEN-CKP-029", "PEN-CKP-040", "PEN-SRC-031", "PEN-SRC-041"),
    ],
)
def test_what_is_wrong_with_a_checkpoint_is_not_blamed_on_the_code(tmp_path: Path, code: str) -> None:
    """DESIGN 11: every version reads the same log, state and blocks, so an older one is no way out."""
    write_logs(tmp_path, failed(code, exit_code=78))
    assert read_exit(tmp_path, 3, 78) == Exit(code=78, error=f"{code} it broke", judged=True)


@pytest.mark.parametrize("copies", ["checkpoints/_versions/c7201bced254/", "/srv/p/_versions/c7201bced254/"])
def test_a_reason_says_what_to_do_to_which_file_of_the_project(tmp_path, copies):
    """A person in a browser sees no more than it; a line of the driver's copy of the code would be mended in vain."""
    where = f"{copies}jobs/orders.py:20"
    words = {
        "what": f"'totals' is the name of a step at {copies}jobs/orders.py:17",
        "where": where,
        "remedy": "Mend it.",
    }
    write_logs(tmp_path, failed("PEN-JOB-003", exit_code=78, **words))
    told = "PEN-JOB-003 'totals' is the name of a step at jobs/orders.py:17 (jobs/orders.py:20). Mend it."
    assert read_exit(tmp_path, 3, 78) == Exit(code=78, error=told)


def test_a_driver_that_wrote_nothing_at_all(tmp_path):
    """There is no file to read: its exit code is all that is known."""
    assert read_exit(tmp_path / "gone", 3, 1) == Exit(code=1)
    assert read_exit(tmp_path / "gone", 3, None) == Exit()
    write_logs(tmp_path, log="")
    assert read_exit(tmp_path, 3, 1) == Exit(code=1)


def test_the_words_of_another_generation_are_not_its_own(tmp_path):
    """Each has files of its own."""
    write_logs(tmp_path, ended("finished"))
    assert read_exit(tmp_path, 4, None) == Exit()


def test_what_a_job_prints_keeps_nobody_from_its_last_words(tmp_path):
    """JSON that is nested deeper than Python reads is no event."""
    write_logs(tmp_path, "[" * 20_000, failed("PEN-OPR-002", what="é"))
    assert read_exit(tmp_path, 3, None) == Exit(code=75, error="PEN-OPR-002 é")


def test_last_words_are_found_at_the_end_of_a_long_file(tmp_path):
    """Only its end is read, wherever in a line or a character that begins; bytes that are no text do not matter."""
    for spare in range(4):
        write_logs(tmp_path, *["é" * 1_000] * 100, "x" * spare, failed("PEN-OPR-002", what="é"))
        events, _ = log_files(tmp_path, 3)
        with events.open("ab") as file:
            file.write(b"\xff\xfe\n")
        assert read_exit(tmp_path, 3, None) == Exit(code=75, error="PEN-OPR-002 é")


# --- what it is started with --------------------------------------------------------------------
def order(folder, stream, job="flights"):
    root = folder / "root"
    return LaunchOrder(
        job=job, project=folder, code=root / "_versions" / "abc", stream=stream, logs=root / "_logs" / job
    )


OPTIONS = StartOptions(partitions=16, state={"a": "t", "b": "u"}, truncate_sinks=True, drop=("x", "y"))
FIRST = ["run", "flights", "--json", "--project", "/p", "--code", "/p/root/_versions/abc"]


@pytest.mark.parametrize(
    ("stream", "more"),
    [
        (Stream(wish=Wish.RUN, generation=3, command="c"), ["--generation", "3", "--command", "c"]),
        (Stream(wish=Wish.RUN, generation=3), ["--generation", "3", "--command", "generation-3"]),
        (
            Stream(wish=Wish.RUN, generation=3, command="c", start="batch=12"),
            ["--generation", "3", "--command", "c", "--from", "batch=12"],
        ),
        (
            Stream(wish=Wish.RUN, generation=3, command="c", start="empty", available_now=True),
            ["--generation", "3", "--command", "c", "--from", "empty", "--available-now"],
        ),
        (Stream(wish=Wish.DRAIN, generation=3, command="c"), ["--generation", "3", "--command", "c", "--drain"]),
        (
            Stream(wish=Wish.RUN, generation=3, command="c", start="saved=a", options=OPTIONS),
            [
                "--generation",
                "3",
                "--command",
                "c",
                "--from",
                "saved=a",
                "--partitions",
                "16",
                "--state",
                "a=t",
                "--state",
                "b=u",
                "--truncate-sinks",
                "--drop",
                "x",
                "--drop",
                "y",
            ],
        ),
    ],
    ids=["from the last commit", "no command", "from a batch", "from nothing, to the end", "draining", "with options"],
)
def test_the_words_of_a_driver(stream, more):
    """`penstock run` takes them, each."""
    from typer.main import get_command

    from penstock.cli.main import app

    words = run_words(order(Path("/p"), stream))
    assert words == FIRST + more
    command = get_command(app).commands["run"]
    params = command.make_context("run", words[1:], resilient_parsing=True).params
    assert params["generation"] == 3
    assert params["command"] == (stream.command or "generation-3")
    if stream.options is not None:
        assert (params["partitions"], params["truncate_sinks"]) == (16, True)
        assert (list(params["state"]), list(params["drop"])) == (["a=t", "b=u"], ["x", "y"])


# --- real processes -------------------------------------------------------------------------------
DRIVER = """
import json, os, subprocess, sys, time
say = lambda **event: print(json.dumps(event), flush=True)
child = [sys.executable, "-c", "import time; time.sleep(60)"]
if "--drain" in sys.argv:
    say(event="run.ended", ending="finished")
elif "--available-now" in sys.argv:
    print("trouble", file=sys.stderr)
    sys.exit(70)
else:
    family = subprocess.Popen(child, process_group=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    say(event="told", argv=sys.argv[1:], cwd=os.getcwd(), child=family.pid, python=os.environ["PYSPARK_PYTHON"])
    time.sleep(60)
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Let `python -m penstock` be a small program; end what it leaves."""
    module = tmp_path / "modules" / "penstock"
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    (module / "__main__.py").write_text(DRIVER, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(module.parent))
    started = []
    launch = LocalLauncher.launch

    def noted(self, launched):
        handle = launch(self, launched)
        started.append((handle["pid"], self._children[handle["pid"]]))
        return handle

    monkeypatch.setattr(LocalLauncher, "launch", noted)
    yield tmp_path
    for session, child in started:
        for pid in session_members(session):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.wait()


def begun(launcher, folder, generation=3, job="flights", **fields):
    """Launch a driver; return its slot, its handle, the folder of its logs and what it says at its start."""
    launched = order(
        folder, Stream(wish=fields.pop("wish", Wish.RUN), generation=generation, command="c", **fields), job
    )
    handle = launcher.launch(launched)
    return DriverSlot(generation=generation, at=0, host=HERE, handle=handle), handle, launched.logs


def first_event(logs, generation=3):
    events, _ = log_files(logs, generation)
    return json.loads(
        until(lambda: [line for line in events.read_text("utf-8").splitlines(keepends=True) if line[-1:] == "\n"])[0]
    )


def gone(launcher, slot, logs, job="flights"):
    def look():
        taken = launcher.look(job, slot, logs)
        return taken if taken.life is Life.GONE else None

    return until(look, "the end of the driver")


def test_a_driver_runs_in_a_session_of_its_own(small):
    """In the project's folder, with its words, its interpreter and its files; its handle is plain JSON."""
    _, handle, logs = begun(LocalLauncher(), small)
    event = first_event(logs)
    assert event["argv"][:2] == ["run", "flights"]
    assert (event["cwd"], event["python"]) == (str(small), sys.executable)
    assert os.getsid(handle["pid"]) == handle["pid"] != os.getsid(0)
    start, scratch = process_start(handle["pid"]), handle["scratch"]
    place = {"host": HERE, "namespace": pid_namespace()}
    assert handle == {**place, "pid": handle["pid"], "start": start, "scratch": scratch}
    assert json.loads(json.dumps(handle)) == handle
    assert sorted(path.name for path in logs.iterdir()) == ["000003.jsonl", "000003.log"]
    assert logs.stat().st_mode & 0o777 == 0o700


def test_a_driver_is_killed_with_all_it_has(small):
    """Also its children that have process groups of their own; killing it again does nothing."""
    launcher = LocalLauncher()
    slot, handle, logs = begun(launcher, small)
    child = first_event(logs)["child"]
    assert launcher.look("flights", slot, logs) == Seen(Life.RUNS)
    assert set(session_members(handle["pid"])) == {handle["pid"], child}
    launcher.kill(handle)
    assert session_members(handle["pid"]) == []
    assert launcher.look("flights", slot, logs) == Seen(Life.GONE, Exit())
    launcher.kill(handle)
    assert launcher.look("flights", slot, logs) == Seen(Life.GONE, Exit())


@pytest.mark.fault("F62")
def test_a_driver_does_not_get_the_secrets_of_its_supervisor(small, monkeypatch):
    """The variables that they are in, and Airflow's; it has all others."""
    monkeypatch.setenv("HOOK", "canary")
    for name in ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW_CONN_MINE", "AIRFLOW_VAR_KEY"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("OTHER", "seen")
    launcher = LocalLauncher(hidden=["HOOK"])
    _, handle, _ = begun(launcher, small)
    # Between fork(2) and exec(2) it has none that could be read.
    around = until(Path(f"/proc/{handle['pid']}/environ").read_bytes)
    assert b"OTHER=seen" in around
    assert b"canary" not in around
    launcher.kill(handle)


def test_a_driver_for_a_yarn_that_is_nowhere_starts_without_java(small, monkeypatch):
    """It names the variable that is missing; spark-submit would end first, with a stack of Java."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    make_project(small, more='[checkpoint]\nshared = true\n[spark]\nmaster = "yarn"\n')
    _, _, logs = begun(LocalLauncher(), small, job="orders")
    assert first_event(logs)["argv"][:2] == ["run", "orders"]


def test_what_spark_leaves_behind_goes_with_its_driver(small, tmp_path):
    """Its temporary files are in a folder of the driver's own; a record that names another folder deletes nothing."""
    launcher = LocalLauncher()
    _, handle, _ = begun(launcher, small)
    scratch, other = Path(handle["scratch"]), tmp_path / "penstock-driver-mine"
    (scratch / "blockmgr-1").mkdir()
    other.mkdir()
    for forged in (str(other), str(scratch.parent), f"{scratch}/..", "", "."):
        launcher.kill({**handle, "scratch": forged})
        assert (scratch.is_dir(), other.is_dir()) == (True, True)
    launcher.kill(handle)
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"wish": Wish.DRAIN}, Exit(code=0, finished=True)),
        ({"available_now": True}, Exit(code=70, error="trouble")),
    ],
    ids=["last words", "exit code"],
)
def test_a_driver_that_ends_by_itself(small, asked, expected):
    """It is gone as soon as it has ended, though nobody has asked after it yet."""
    launcher = LocalLauncher()
    slot, _, logs = begun(launcher, small, **asked)
    assert gone(launcher, slot, logs).exit == expected


def test_a_driver_that_ends_while_it_is_looked_at_has_its_exit_code(small):
    """It ran when its parent asked, and a moment later it did not."""
    launcher = LocalLauncher()
    slot, handle, logs = begun(launcher, small, available_now=True)
    until(lambda: not process_runs(handle["pid"], handle["start"]), "its end")
    child, polls = launcher._children[handle["pid"]], []

    def poll():
        polls.append(1)
        return None if len(polls) == 1 else child.poll()

    launcher._children[handle["pid"]] = SimpleNamespace(poll=poll)
    assert launcher.look("flights", slot, logs) == Seen(Life.GONE, Exit(code=70, error="trouble"))


def test_another_supervisor_finds_the_driver_by_its_handle(small):
    """It sees it run, and end; the exit code is its parent's to know, the last words are everybody's."""
    slot, handle, logs = begun(LocalLauncher(), small)
    first_event(logs)
    other = LocalLauncher()
    assert other.look("flights", slot, logs) == Seen(Life.RUNS)
    other.kill(handle)
    assert session_members(handle["pid"]) == []
    assert other.look("flights", slot, logs) == Seen(Life.GONE, Exit())
    with log_files(logs, 3)[0].open("a") as file:
        file.write(json.dumps(failed("PEN-OPR-002")) + "\n")
    assert other.look("flights", slot, logs).exit == Exit(code=75, error="PEN-OPR-002 it broke")


def test_a_driver_whose_handle_was_never_recorded_is_found(small):
    """The supervisor died between the start and the record; by its job and generation, and no other."""
    _, handle, logs = begun(LocalLauncher(), small)
    begun(LocalLauncher(), small, generation=30)
    begun(LocalLauncher(), small, job="arrivals")
    first_event(logs)
    lost = DriverSlot(generation=3, at=0, host=HERE)
    assert LocalLauncher().look("flights", lost, logs) == Seen(Life.RUNS, handle=handle)


def test_a_driver_that_was_never_started_is_gone(small):
    """The supervisor died before it, or the start failed."""
    begun(LocalLauncher(), small, generation=30)
    lost = DriverSlot(generation=3, at=0, host=HERE)
    seen = LocalLauncher().look("flights", lost, small / "root" / "_logs" / "flights")
    assert (seen.life, seen.handle, seen.exit) == (Life.GONE, None, Exit(error="it was never started"))


def test_the_driver_of_another_control_root_is_not_taken_for_a_lost_one(small):
    """Two projects of one machine may have a job of the same name, at the same generation."""
    (small / "other").mkdir()
    _, _, logs = begun(LocalLauncher(), small / "other")
    first_event(logs)
    lost = DriverSlot(generation=3, at=0, host=HERE)
    assert LocalLauncher().look("flights", lost, small / "root" / "_logs" / "flights").life is Life.GONE


@pytest.mark.parametrize("handle", [None, {"host": "elsewhere", "pid": 1, "start": "1"}], ids=["lost", "known"])
def test_of_a_driver_on_another_host_nothing_can_be_told(tmp_path, handle):
    """Never a guess, and never a kill."""
    launcher = LocalLauncher()
    slot = DriverSlot(generation=3, at=0, host="elsewhere", handle=handle)
    assert launcher.look("flights", slot, tmp_path) == Seen(Life.UNKNOWN)
    write_logs(tmp_path, BATCH)
    assert launcher.look("flights", slot, tmp_path) == Seen(Life.UNKNOWN)
    write_logs(tmp_path, BATCH, ended("finished"))  # on a disk that both machines see
    assert launcher.look("flights", slot, tmp_path) == Seen(Life.GONE, Exit(code=0, finished=True))
    assert launcher.look("flights", slot.model_copy(update={"foreign": True}), tmp_path) == Seen(Life.UNKNOWN)


def test_a_handle_of_another_host_is_not_killed_here(small):
    """Though its number is that of a process here."""
    launcher = LocalLauncher()
    slot, handle, logs = begun(launcher, small)
    launcher.kill(handle | {"host": "elsewhere"})
    assert launcher.look("flights", slot, logs) == Seen(Life.RUNS)


def test_a_driver_in_another_namespace_of_this_host_is_as_one_on_another_machine(small):
    """Containers of one host name have different processes under one number: nothing is told, nothing killed (F09)."""
    launcher = LocalLauncher()
    slot, handle, logs = begun(launcher, small)
    for start in (handle["start"], "1"):
        there = handle | {"namespace": "1", "start": start}
        assert LocalLauncher().look("flights", slot.model_copy(update={"handle": there}), logs) == Seen(Life.UNKNOWN)
        assert launcher.kill(there) is False
    unnamed = {key: handle[key] for key in ("host", "pid", "start")}  # as an earlier version wrote it
    assert launcher.look("flights", slot.model_copy(update={"handle": unnamed}), logs) == Seen(Life.RUNS)


def test_a_process_that_has_got_the_drivers_number_is_not_the_driver(small):
    """It is another's by its start: the driver is gone, and whatever runs there is let alone."""
    launcher = LocalLauncher()
    _, handle, logs = begun(launcher, small)
    child = first_event(logs)["child"]
    before = handle | {"start": str(int(handle["start"]) - 1)}
    other = LocalLauncher()
    assert other.look("flights", DriverSlot(generation=9, at=0, host=HERE, handle=before), logs) == Seen(
        Life.GONE, Exit()
    )
    other.kill(before)
    assert set(session_members(handle["pid"])) == {handle["pid"], child}
    assert process_runs(handle["pid"], handle["start"])


def test_what_a_dead_driver_left_behind_is_ended(small):
    """Its handle is killed again before the next one starts."""
    launcher = LocalLauncher()
    slot, handle, logs = begun(launcher, small)
    child = first_event(logs)["child"]
    os.kill(handle["pid"], signal.SIGKILL)
    assert gone(launcher, slot, logs) == Seen(Life.GONE, Exit())
    assert session_members(handle["pid"]) == [child]
    launcher.kill(handle)
    assert session_members(handle["pid"]) == []


def test_of_a_foreign_driver_no_exit_is_read(small):
    """Its words are in its own terminal, and our file of that generation is another's."""
    launcher = LocalLauncher()
    slot, _, logs = begun(launcher, small, wish=Wish.DRAIN)
    gone(launcher, slot, logs)
    foreign = slot.model_copy(update={"foreign": True})
    assert launcher.look("flights", foreign, logs) == Seen(Life.GONE)


def test_a_start_that_fails_is_an_oserror(small):
    """Nothing was started."""
    launched = order(small, Stream(generation=3, command="c"))
    (small / "a file").touch()
    with pytest.raises(OSError, match="nowhere"):
        LocalLauncher().launch(replace(launched, project=small / "nowhere"))
    with pytest.raises(OSError, match="a file"):
        LocalLauncher().launch(replace(launched, logs=small / "a file" / "logs"))


def test_the_logs_of_the_newest_twenty_generations_are_kept(small):
    """Of each both files, with those of the driver that is started; what else lies there is let alone."""
    logs = small / "root" / "_logs" / "flights"
    logs.mkdir(parents=True)
    for generation in range(1, 31):
        for path in log_files(logs, generation):
            path.touch()
    (logs / "notes.txt").touch()
    launcher = LocalLauncher()
    slot, _, _ = begun(launcher, small, generation=31, wish=Wish.DRAIN)
    gone(launcher, slot, logs)
    expected = [path.name for generation in range(12, 32) for path in log_files(logs, generation)]
    assert sorted(path.name for path in logs.iterdir()) == [*expected, "notes.txt"]
