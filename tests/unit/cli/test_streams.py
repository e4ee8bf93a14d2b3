"""`penstock streams` and commands on streams whose files are in trouble: one job's trouble is that job's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess

import pytest
from checkpoint_samples import commit, offsets, own, run_batch
from project_samples import make_project
from typer.testing import CliRunner

from penstock.checkpoint.log.entries import SourceProgress
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.local import LocalStore
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.cli.main import app
from penstock.errors import CommandRefused
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.runtime.process.os_processes import process_start
from penstock.supervise.commands import Command, Verb, fold
from penstock.supervise.control import StreamControl
from penstock.supervise.orders import StreamOrders
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import DriverSlot, Phase, StartOptions, Wish
from penstock.time.clock import SystemClock


@pytest.fixture
def root(tmp_path):
    """A project with two jobs."""
    root = make_project(tmp_path / "project", rows=10)
    shutil.copy(root / "jobs" / "orders.py", root / "jobs" / "second.py")
    return root


def run(root, *words):
    """Run a command of the project; return its exit code, what it said and what it complained of."""
    result = CliRunner().invoke(app, [*words, "--project", str(root)])
    return result.exit_code, result.stdout, result.stderr


def test_all_jobs_are_listed_where_nothing_was_ever_started(root):
    """And looking makes no control root."""
    code, out, _ = run(root, "streams", "--json")
    rows = json.loads(out)
    assert (code, [(row["job"], row["phase"]) for row in rows]) == (0, [("orders", "STOPPED"), ("second", "STOPPED")])
    assert all("there is no control root" in row["reason"] for row in rows)
    assert not (root / "checkpoints").exists()


def test_a_command_without_a_control_root_is_refused(root):
    """Nobody would ever read what it writes."""
    code, _, err = run(root, "start", "orders")
    assert (code, "PEN-SUP-004" in err, "penstock supervise" in err) == (75, True, True)
    assert not (root / "checkpoints").exists()


@pytest.mark.fault("F66")
def test_a_job_whose_file_is_wrong_hides_no_other(root):
    """Its row says what is wrong, and where, and how its stream stands; the command ends as trouble with a file does."""
    control_store(root / "checkpoints")
    for job in ("orders", "second"):
        assert run(root, "start", job)[0] == 0
    (root / "conf" / "jobs" / "second.toml").write_text("[sources\n")
    code, out, err = run(root, "streams", "--json")
    rows = {s["job"]: s for s in json.loads(out)}
    assert (code, rows["orders"]["phase"], rows["second"]["phase"]) == (78, "SUBMITTING", "SUBMITTING")
    assert "second.toml" in rows["second"]["reason"]
    assert "PEN-CNF-001" in err
    assert "second.toml" in run(root, "streams")[1]


def test_a_stream_whose_code_is_gone_is_seen_and_stopped(root):
    """It runs from a copy; a job that never had a stream is still no job."""
    control_store(root / "checkpoints")
    assert run(root, "start", "second")[0] == 0
    (root / "jobs" / "second.py").unlink()
    assert "second" in run(root, "streams")[1]
    assert run(root, "stop", "second")[0] == 0
    assert "PEN-JOB" in run(root, "stop", "third")[2]


def test_a_start_of_a_stream_that_runs_says_what_it_set(root):
    """Limits and note; the generation stays."""
    control_store(root / "checkpoints")
    assert "generation 1" in run(root, "start", "orders")[1]
    code, out, _ = run(root, "start", "orders", "--rows", "7", "--bytes", "64 MiB", "--files", "9")
    assert (code, out) == (0, "orders: it runs (generation 1), with these limits and this note from now on\n")
    assert "nothing to do" in run(root, "start", "orders", "--rows", "7")[1]


def test_limits_are_set_by_name_and_let_go_by_name(root):
    """One who names none wants to look; all go by --defaults, which stands alone."""
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    run(root, "start", "orders")
    assert run(root, "limits", "orders", "--rows", "7")[0] == 0
    for words in ((), ("--defaults", "--rows", "8"), ("--defaults", "--no-pause")):
        code, _, err = run(root, "limits", "orders", *words)
        assert (code, "--defaults" in err, "penstock status" in err) == (2, True, True)
    assert records.newest().limits.rows == 7
    assert "the limits of its configuration" in run(root, "limits", "orders", "--defaults")[1]


def driver_says(root, **facts):
    """Write the status record of a driver that gives a sign of life."""
    record = {"writer": "w1", "at": SystemClock().wall(), "state": "running", **facts}
    StatusRecords(control_store(root / "checkpoints"), "orders").put(record)


def test_a_driver_that_was_started_by_hand_is_asked_and_waited_for(root, monkeypatch):
    """It obeys without a supervisor, so nothing says that one has to come, or that the stream is stopped already."""
    driver_says(root, generation=0)
    (row,) = [row for row in json.loads(run(root, "streams", "--json")[1]) if row["job"] == "orders"]
    assert (row["phase"], row["by_hand"]) == ("STOPPED", True)
    assert "by hand" in run(root, "streams")[1]
    assert run(root, "limits", "orders", "--rows", "7") == (
        0,
        "orders: at most 7 rows a batch and source from now on\n",
        "",
    )
    naps = []

    def ends_at_last(_, seconds):
        naps.append(seconds)
        if len(naps) == 3:
            driver_says(root, generation=0, state="stopped")

    monkeypatch.setattr(SystemClock, "sleep", ends_at_last)
    asked = "orders: stop asked for, of the driver that was started by hand\n"
    assert run(root, "stop", "orders", "--wait") == (0, asked + "orders: the driver has ended\n", "")
    assert len(naps) == 3
    code, out, err = run(root, "stop", "orders")
    assert (code, out, err.count("no supervisor runs")) == (
        0, "orders: nothing to do, it is STOPPED (generation 0)\n", 1,
    )  # fmt: skip
    driver_says(root, generation=3)
    assert not json.loads(run(root, "streams", "--json")[1])[0]["by_hand"]


def test_a_driver_that_was_started_by_hand_is_waited_for_only_if_it_obeys(root):
    """It ignores what is for a generation that is over, and what was asked before its start."""
    driver_says(root, generation=0)
    assert "by hand" in run(root, "stop", "orders", "--command", "c1")[1]
    code, out, _ = run(root, "stop", "orders", "--wait", "--generation", "7")
    assert (code, "by hand" in out) == (0, False)
    code, out, _ = run(root, "stop", "orders", "--wait", "--command", "c1")
    assert (code, "by hand" in out, "has ended" in out) == (0, False, False)


def test_a_drain_of_a_driver_that_was_started_by_hand_begins_no_stream(root, monkeypatch):
    """Else the next supervisor would drain once more, whatever somebody has restored by then."""
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    driver_says(root, generation=0)
    before = StreamOrders(records, 0)
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: driver_says(root, generation=0, state="finished"))
    assert run(root, "drain", "orders", "--wait")[0] == 0
    stream = records.newest()
    assert (stream.phase, stream.wants_driver, stream.generation) == (Phase.STOPPED, False, 0)
    assert before.look().drain
    driver_says(root, generation=0)
    for _ in range(2):  # a try again waits as well, also when the driver has ended
        assert run(root, "drain", "orders", "--wait", "--command", "c1")[0] == 0
    driver_says(root, generation=0)
    control = StreamControl(LocalFolder(root / "checkpoints"), "orders", SystemClock())
    with pytest.raises(CommandRefused, match="drains by `penstock drain orders`"):
        control.ask(Command(verb=Verb.DRAIN, id="of_a_dag"))


def test_a_driver_by_hand_that_was_killed_is_not_asked(root):
    """Its newest sign of life is younger than its death, and nobody would drain."""
    gone = subprocess.Popen(["true"])
    holder = f"{socket.gethostname()}:{gone.pid}:{process_start(gone.pid)}"
    gone.wait()
    driver_says(root, generation=0, holder=holder)
    code, out, err = run(root, "drain", "orders")
    assert (code, "by hand" in out, "no supervisor runs" in err) == (0, False, True)
    assert StreamRecords(control_store(root / "checkpoints"), "orders").newest().wish is Wish.DRAIN


def test_a_driver_by_hand_that_has_taken_a_supervised_stream_over_ends_with_the_stream(root, monkeypatch):
    """Who waits wants to know of the stream, which the supervisor ends once the driver has."""
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    run(root, "start", "orders")
    monkeypatch.setattr(StreamControl, "is_supervised", lambda _: True)
    driver_says(root, generation=0)

    def supervisor(*_):
        records.update(lambda stream: (stream.having(phase=Phase.SUSPENDED), None))

    monkeypatch.setattr(SystemClock, "sleep", supervisor)
    code, out, _ = run(root, "suspend", "orders", "--wait", "--json")
    assert (code, json.loads(out)["phase"]) == (0, "SUSPENDED")


def test_a_drain_is_not_repeated_for_the_next_driver_by_hand(root, monkeypatch):
    """It ignores what was asked before its start, and one that is supervised was not asked at all."""
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: driver_says(root, generation=0, state="finished"))
    driver_says(root, generation=0)
    assert run(root, "drain", "orders", "--wait", "--command", "c1")[0] == 0
    for facts in ({"generation": 0, "ignores": ["c1"], "writer": "w2"}, {"generation": 1, "writer": "w2"}):
        driver_says(root, **facts)
        code, _, err = run(root, "drain", "orders", "--wait", "--command", "c1")
        assert (code != 0, "orders is STOPPED" in err) == (True, True), err


def test_a_dag_drains_no_driver_by_hand_behind_a_stream_that_was_drained(root):
    """There is nothing to do for the stream, and all the same the driver would hear of it."""
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    records.update(lambda stream: (stream.having(wish=Wish.DRAIN, phase=Phase.FINISHED, first=1, generation=1), None))
    driver_says(root, generation=0)
    orders = StreamOrders(records, 0)
    control = StreamControl(LocalFolder(root / "checkpoints"), "orders", SystemClock())
    with pytest.raises(CommandRefused, match="drains by"):
        control.ask(Command(verb=Verb.DRAIN, id="of_a_dag"))
    assert not orders.look().drain
    assert run(root, "drain", "orders")[0] == 0
    assert orders.look().drain


def test_the_next_driver_by_hand_is_not_waited_for(root, monkeypatch):
    """It is another one, which does not heed what was asked before its start; of a drain nobody knows then."""
    driver_says(root, generation=0)
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: driver_says(root, generation=0, writer="w2"))
    assert run(root, "stop", "orders", "--wait")[0] == 0
    driver_says(root, generation=0)
    code, _, err = run(root, "drain", "orders", "--wait")
    assert (code != 0, "another driver" in err) == (True, True)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"state": "failed", "error": {"what": "no such topic"}}, "no such topic"),
        ({"state": "failed", "error": {"what": None}}, "failed"),
        ({"at": 5}, "no sign of life"),
        ({"state": "stopped"}, "before all was drained"),
    ],
    ids=["failed", "of an older version", "silent", "stopped"],
)
def test_a_wait_for_a_driver_by_hand_fails_where_it_did_not_end_well(root, monkeypatch, facts, words):
    """A script would take the job for drained."""
    driver_says(root, generation=0)
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: driver_says(root, generation=0, **facts))
    code, _, err = run(root, "drain", "orders", "--wait")
    assert (code != 0, words in err) == (True, True)


@pytest.mark.parametrize("ended", [True, False])
def test_a_start_that_reads_nothing_says_so(root, ended):
    """After a drain all sources have ended, and a stream that finishes at once would look like a success."""
    control_store(root / "checkpoints")
    store = LocalStore(root / "checkpoints" / "orders")
    open_or_create(store, now=0)
    owned = own(Log(store))
    for batch in range(3):
        sources = {
            name: SourceProgress(position={"at": batch}, partitions={}, ended=ended or name == "other")
            for name in ("rows", "other")
        }
        owned.append(offsets(batch))
        owned.append(commit(batch, sources=sources))
    code, _, err = run(root, "start", "orders")
    assert (code, "all sources of orders have ended with batch 2" in err) == (0, ended)
    assert "ended" not in run(root, "stop", "orders")[2]
    assert "ended" not in run(root, "start", "orders", "--from", "batch=1")[2]
    assert "ended" not in run(root, "start", "orders")[2], "it waits for the restore"
    run(root, "suspend", "orders")
    assert "ended" not in run(root, "resume", "orders")[2]


def test_limits_are_given_by_option_and_lie_over_those_of_before(root):
    """Rates and the pause as well: what no option names stays, and `none` and `default` differ (SEMANTICS 8.5)."""
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    run(root, "start", "orders")
    for words, expected in (
        (("--max-rate", "50", "--rows", "9"), {"rows": 9, "max_rate": 50}),
        (("--max-rate-per-partition", "7"), {"rows": 9, "max_rate": 50, "max_rate_per_partition": 7}),
        (("--rows", "default", "--pause"), {"max_rate": 50, "max_rate_per_partition": 7, "paused": True}),
        (("--max-rate", "none", "--no-pause"), {"max_rate": None, "max_rate_per_partition": 7, "paused": False}),
    ):
        assert run(root, "limits", "orders", *words)[0] == 0
        assert records.newest().limits.set_limits() == expected


def test_a_limit_below_the_minimum_of_the_driver_is_refused(root):
    """With the place of the minimum and nothing changed; a driver that has ended has none (decision 106)."""
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    run(root, "start", "orders")
    minimum = {"key": "min_rate", "rows": 80, "live": ["rows"], "where": "conf/penstock.toml:7"}
    driver_says(root, minimum_rates={"max_rate": minimum})
    code, _, err = run(root, "limits", "orders", "--max-rate", "79")
    assert (code, records.newest().limits) == (78, None)
    said = " ".join(err.split())
    assert "PEN-CNF-001" in said
    assert "max_rate is 79 rows a second, too low for a min_rate of 80 (conf/penstock.toml:7)" in said
    assert run(root, "limits", "orders", "--max-rate", "80", "--max-rate-per-partition", "1")[0] == 0
    driver_says(root, minimum_rates={"max_rate": minimum}, state="stopped")
    assert run(root, "limits", "orders", "--max-rate", "79")[0] == 0
    assert records.newest().limits.max_rate == 79


def test_a_restart_with_a_limit_below_the_minimum_ends_nothing(root):
    """The check of a restart looks at the rates, before Spark starts."""
    control_store(root / "checkpoints")
    (root / "jobs" / "orders.py").write_text(
        "from penstock import Job\nfrom penstock.sinks import MemorySink\nfrom penstock.sources import Rate\n\n\n"
        'def build(conf):\n    job = Job("orders")\n'
        '    job.source("r", Rate(100)).max_rate(50).write("out", MemorySink())\n    return job\n'
    )
    (root / "conf" / "penstock.toml").write_text('[checkpoint]\nroot = "checkpoints"\n[rates]\nmin_rate = 80\n')
    code, _, err = run(root, "restart", "orders", "--check")
    assert (code, "jobs/orders.py:8" in err, "penstock.toml:4" in err) == (78, True, True)


@pytest.mark.slow
def test_a_restart_carries_what_becomes_of_state_and_sinks(root):
    """Into the stream's record, from where each of its drivers gets it; what is wrong ends with 2, and writes nothing."""
    control_store(root / "checkpoints")
    log = Log(LocalStore(root / "checkpoints" / "orders"))
    open_or_create(log.store, now=0)
    run_batch(own(log), 0)
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    wrong = [
        ("--partitions", "0"),
        ("--state", "minutely"),
        ("--state", "a=t", "--state", "a=u"),
        ("--drop", "../x"),
        ("--truncate-sinks",),
        ("--from", "empty", "--partitions", "4"),
    ]
    for words in wrong:
        for command in ("start", "restart", "restore"):
            assert run(root, command, "orders", *words)[0] == 2, words
    assert records.number() == -1
    options = ("--from", "batch=0", "--partitions", "4", "--state", "minutely=t", "--truncate-sinks", "--drop", "x")
    for command in ("start", "restart"):
        assert run(root, command, "orders", *options)[0] == 0
        assert records.newest().options == StartOptions(
            partitions=4, state={"minutely": "t"}, truncate_sinks=True, drop=("x",)
        )
    assert run(root, "restart", "orders")[0] == 0
    assert records.newest().options is None


@pytest.mark.parametrize("more", [(), ("--generation", "1")], ids=["whatever runs", "one generation"])
def test_a_restart_begins_nothing_that_was_stopped_during_its_check(root, monkeypatch, more):
    """The check may take a minute, and what is asked for meanwhile is newer; the command fails, and says whose it was.

    It exited 0, so a script took the stream for restarted.
    """
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    run(root, "start", "orders")
    driver = DriverSlot(generation=1, at=0)
    records.update(lambda stream: (stream.having(phase=Phase.RUNNING, driver=driver, asked_at=1), None))

    def stopped(*_):
        records.update(lambda stream: fold(stream, Command(verb=Verb.STOP, id="theirs"), 0))

    monkeypatch.setattr("penstock.cli.streams._check", stopped)
    code, out, err = run(root, "restart", "orders", *more)
    assert (code, out) == (78, "")
    assert "PEN-SUP-001" in err
    assert "orders: nothing was restarted, because theirs has asked for stop since" in err
    assert (records.newest().wish, records.newest().generation) == (Wish.STOP, 1)


def test_an_editors_lock_and_a_name_that_is_none_are_no_jobs(root):
    """The one is a link to nowhere, and the other could not be run."""
    (root / "jobs" / ".#orders.py").symlink_to("me@host.123:456")
    (root / "jobs" / "my-helper.py").touch()
    code, out, _ = run(root, "streams", "--json")
    assert (code, [s["job"] for s in json.loads(out)]) == (0, ["orders", "second"])


@pytest.mark.parametrize(
    ("phase", "generation", "state"),
    [
        (Phase.SUSPENDED, 1, "stopped"),
        (Phase.STOPPED, 1, "stopped"),
        (Phase.BACKOFF, 1, "died"),
        (Phase.SUSPENDED, 0, "died"),
    ],
    ids=["suspended", "stopped", "to be restarted", "by hand"],
)
def test_a_stream_that_was_ended_before_a_driver_took_over_has_not_died(root, phase, generation, state):
    """Its driver was killed, and the next one was told to end while Spark started; `streams` says the same."""
    folder = root / "checkpoints"
    store = control_store(folder)
    log = Log(LocalStore(folder / "orders"))
    open_or_create(log.store, now=0)
    owned = own(log, holder=f"{socket.gethostname()}:{os.getpid()}:1")
    run_batch(owned, 0)
    StatusRecords(store, "orders").put({"writer": "w1", "at": 0, "state": "running", "generation": generation})
    StreamRecords(store, "orders").update(lambda stream: (stream.having(phase=phase, first=1, generation=2), None))
    code, out, _ = run(root, "status", "orders", "--json")
    assert (code, json.loads(out)["state"]) == (0, state)


def test_a_rollback_is_listed_with_its_reason_while_the_stable_version_runs(root):
    """DESIGN 11: RUNNING has no reason of its own, and the new version is not what runs."""
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    back = {"phase": Phase.BACKOFF, "version": "old", "rolled_back": "new", "reason": "new failed: PEN-X"}
    for changes in ({"phase": Phase.RUNNING, "version": "new"}, back, {"phase": Phase.RUNNING, "reason": None}):
        records.update(lambda stream, changes=changes: (stream.having(**changes), None))
    assert "new failed: PEN-X" in run(root, "streams")[1]
    (orders,) = [row for row in json.loads(run(root, "streams", "--json")[1]) if row["job"] == "orders"]
    assert (orders["rolled_back"], orders["rolled_back_for"], orders["reason"]) == ("new", "new failed: PEN-X", None)
    conf = root / "conf" / "jobs" / "orders.toml"
    right = conf.read_text()
    conf.write_text("[sources\n")
    listed = json.loads(run(root, "streams", "--json")[1])
    assert [row["rolled_back_for"] for row in listed] == ["version new was rolled back", None]
    conf.write_text(right)
    records.update(lambda stream: (stream.having(rolled_back=None), None))
    assert "PEN-X" not in run(root, "streams")[1]


def test_who_waits_for_a_restart_hears_of_its_rollback(root):
    """DESIGN 11: the stream runs, and not with the code that was asked for, which fails who waits and no other."""
    records = StreamRecords(control_store(root / "checkpoints"), "orders")
    run(root, "restart", "orders", "--command", "deploy")
    back = {"phase": Phase.BACKOFF, "version": "old", "rolled_back": "new", "reason": "new failed: PEN-X"}
    for changes in (back, {"phase": Phase.RUNNING, "reason": None}):
        records.update(lambda stream, changes=changes: (stream.having(**changes), None))
    code, out, err = run(root, "restart", "orders", "--command", "deploy", "--wait")
    assert (code, "orders is RUNNING" in out) == (78, True)
    assert "PEN-SUP-040 orders is RUNNING: new failed: PEN-X" in err
    assert run(root, "limits", "orders", "--rows", "9", "--wait")[0] == 0, "no code was asked for"
    records.update(lambda stream: (stream.having(generation=2), None))  # that of the older version's driver
    assert run(root, "start", "orders", "--wait")[0] == 0, "it runs, and was begun by somebody else"
    records.update(lambda stream: (stream.having(phase=Phase.STOPPED, wish=Wish.STOP), None))
    assert run(root, "stop", "orders", "--wait")[2] == ""  # what does not run has no code
