"""WaitStream in every state that a stream can be in, and where nobody supervises."""

from __future__ import annotations

import pytest
from apart import run_apart

pytestmark = [pytest.mark.slow]

SCRIPT = """
import asyncio, json, sys, threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.airflow import DrainStream, LimitStream, RestartStream, ResumeStream, StartStream, StopStream, WaitStream, awaiting
from penstock.airflow.triggers import StreamTrigger
from penstock.errors import PenstockError
from penstock.supervise import control
from penstock.supervise.commands import Command, Verb, fold
from penstock.supervise.stream import DriverSlot, Phase, Stream, Wish

control.PATIENCE = 0.2
PROJECT = sys.argv[1]
RECORDS = control.StreamControl(LocalFolder(PROJECT, "checkpoints"), "orders", None).records
FACTS = {"job": "orders", "project": PROJECT}

def become(**said):
    RECORDS.update(lambda found: (Stream(first=3, generation=3, reason="because", **said), None))

def tries(call):
    try:
        return ["done", call()]
    except AirflowFailException as why:
        return ["for good", str(why)]
    except AirflowSkipException as why:
        return ["skipped", str(why)]
    except PenstockError as why:
        return ["again", str(why)]
    except TaskDeferred as deferred:
        return ["deferred", deferred.kwargs]

def waits(until, phase, **more):
    become(phase=Phase[phase], wish=Wish.RUN)
    wait = WaitStream(task_id="t", until=until, **FACTS)
    return [wait.is_job_active(phase), wait.is_job_succeeded(phase), *tries(lambda: wait.poll_until_complete(3, {}))]

said = {}
for until in ("healthy", "end"):
    for phase in Phase:
        said[f"{until} {phase.value}"] = waits(until, phase.value)

ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)
for name, by in (("cli", "0a1b2c"), ("other dag", "restart_from_checkpoint/m/restart"), ("own run", "d/r/deploy"),
                 ("newer run", "d/r2/deploy")):
    for phase in (Phase.RUNNING, Phase.FINISHED, Phase.FAILED):
        for deferrable in (False, True):
            wait = WaitStream(task_id="t", until="end", deferrable=deferrable, **FACTS)
            become(phase=phase, wish=Wish.RUN, command=by)
            said[f"{name} {phase.value} {deferrable}"] = tries(
                (lambda: wait.execute_complete({"ti": ti}, None, first=2)) if deferrable
                else (lambda: wait.poll_until_complete(2, {"ti": ti}))
            )
for name, kind in (("stop", StopStream), ("drain", DrainStream), ("restart", RestartStream)):
    stale = kind(task_id="t", generation="2", **FACTS)
    said[f"stale {name}"] = [*tries(lambda: stale.execute({"ti": ti})), RECORDS.newest().wish.value, RECORDS.newest().first]
def checked(kind, verb, options=None):
    # A restart whose check takes long enough for somebody to ask for something else.
    become(phase=Phase.RUNNING, wish=Wish.RUN, command="d/r0/deploy", driver=DriverSlot(generation=3, at=0))
    class Slow(kind):
        def _penstock(self, *words):
            theirs = Command(verb=verb, id="stop_stream/m/stop")
            RECORDS.update(lambda found: fold(found, theirs, 9))
            if verb not in (Verb.RESTART, Verb.DRAIN):
                ended = Phase.STOPPED if verb is Verb.STOP else Phase.SUSPENDED
                RECORDS.update(lambda found: (found.having(phase=ended, driver=None), None))
    slow = Slow(task_id="t", **FACTS, **(options or {}))
    return [*tries(lambda: slow.execute({"ti": ti})), RECORDS.newest().asked_by, RECORDS.newest().generation]
for verb in (Verb.STOP, Verb.SUSPEND, Verb.RESTART):
    said[f"overtaken by {verb.value}"] = checked(RestartStream, verb)
for verb in (Verb.STOP, Verb.DRAIN, Verb.RESTART):
    said[f"generation overtaken by {verb.value}"] = checked(RestartStream, verb, {"generation": "3"})
said["deploy overtaken by stop"] = checked(StartStream, Verb.STOP, {"restart": True})
again = {"ti": SimpleNamespace(**{**vars(ti), "try_number": 2}), "dag_run": SimpleNamespace(start_date=datetime.fromtimestamp(0, UTC))}
for kind in (DrainStream, StopStream):
    become(phase=Phase.STOPPED, wish=Wish.STOP, asked_by="stop_stream/m/stop", asked_at=9)
    late = kind(task_id="t", **FACTS)
    said[f"late {kind.verb.value}"] = [*tries(lambda: late.execute(again)), RECORDS.newest().wish.value]
for name, by in (("own", "d/r/deploy"), ("other", "d/r0/deploy")):
    become(phase=Phase.RUNNING, wish=Wish.RUN, command=by, rolled_back="new")
    wait = WaitStream(task_id="t", until="healthy", **FACTS)
    said[f"rolled back, healthy, {name}"] = tries(lambda: wait.poll_until_complete(3, {"ti": ti}))
said["rolled back"] = [
    tries(lambda: kind(task_id="t", deferrable=deferrable, **FACTS).execute_complete({"ti": ti}, None, {"generation": 3}))
    for kind in (RestartStream, ResumeStream) for deferrable in (False, True)
]
stops = StopStream(task_id="t", deferrable=True, **FACTS)
become(phase=Phase.STOPPED, wish=Wish.STOP, rolled_back="new")
said["rolled back, stopped"] = tries(lambda: stops.execute_complete({"ti": ti}, None, {"generation": 3}))
become(phase=Phase.RUNNING, wish=Wish.RUN)
for name, given in (("set", {"rows": "5", "bytes": "64 MiB", "files": "7"}), ("no size", {"bytes": "64 MB"}),
                    ("no files", {"files": "few"}), ("number", {"bytes": 9}),
                    ("rates", {"max_rate": "900", "max_rate_per_partition": 30, "paused": "true"}),
                    ("no rate", {"max_rate": "fast"}), ("no rate of partitions", {"max_rate_per_partition": 0.5}),
                    ("paused", {"paused": True}), ("lifted", {}), ("of each", {"rows": 3}),
                    ("of one", {"source": " clicks ", "rows": "8", "max_rate": "9"}),
                    ("of one again", {"source": "clicks", "bytes": "1 MiB"}),
                    ("of one paused", {"source": "clicks", "paused": "true"}), ("of one lifted", {"source": "clicks"}),
                    ("of all lifted", {})):
    limited = LimitStream(task_id="t", **given, **FACTS)
    of_run = {"ti": SimpleNamespace(**{**vars(ti), "run_id": name})}
    now = [*tries(lambda: limited.execute(of_run)), RECORDS.newest().limits]
    said[f"limits {name}"] = [*now[:2], now[2] and now[2].set_limits()]
for name, given in (("set", {"rows": "5", "bytes": "64 MiB", "files": "7"}), ("no size", {"bytes": "64 MB"}),
                    ("kept", {})):
    started = StartStream(task_id="t", **given, **FACTS)
    of_run = {"ti": SimpleNamespace(**{**vars(ti), "run_id": f"start {name}"})}
    now = [*tries(lambda: started.execute(of_run)), RECORDS.newest().limits]
    said[f"starts {name}"] = [*now[:2], now[2] and now[2].set_limits()]
nobody = StopStream(task_id="t", job="nope", project=PROJECT)
said["unknown job"] = tries(lambda: nobody.execute({"ti": ti}))

lines = []
class Heard:
    def info(self, text, *words):
        lines.append(text % words)
class Loud(WaitStream):
    log = Heard()
steps = [Stream(first=3, generation=3, phase=phase, wish=Wish.RUN, reason=reason) for phase, reason in (
    (Phase.SUBMITTING, None), (Phase.SUBMITTING, "the driver ended with 75: PEN-SRC-040"),
    (Phase.SUBMITTING, "the driver ended with 75: PEN-SRC-040"), (Phase.RUNNING, None))]
newest, patience, control._POLL = control.StreamControl.newest, control._POLL, 0.01
control.StreamControl.newest = lambda self: steps.pop(0)
Loud(task_id="t", until="healthy", **FACTS)._wait(3, lambda seen: seen.phase is Phase.RUNNING)
control.StreamControl.newest, control._POLL = newest, patience
said["heard"] = lines

async def fires():
    async for event in StreamTrigger(first=3, until="end", **FACTS).run():
        return event.payload
become(phase=Phase.SUBMITTING, wish=Wish.RUN)
import penstock.airflow.triggers as triggers
triggers._POLL = 0.1
event = asyncio.run(fires())
said["trigger"] = event
opens, threads = triggers.control_of, []
def opened(project, job):
    threads.append(threading.current_thread() is threading.main_thread())
    return opens(project, job)
triggers.control_of = opened
become(phase=Phase.SUSPENDED, wish=Wish.SUSPEND)
said["trigger, suspended"] = asyncio.run(fires())
become(phase=Phase.FAILED, wish=Wish.RUN)
said["trigger, failed"] = asyncio.run(fires())
said["opened in the loop"] = threads
become(phase=Phase.SUSPENDED, wish=Wish.SUSPEND)
follows = WaitStream(task_id="t", until="end", deferrable=True, **FACTS)
said["suspended, deferred"] = tries(lambda: follows.execute_complete({}, {"phase": "SUSPENDED"}, first=3))
become(phase=Phase.SUSPENDED, wish=Wish.SUSPEND, asked_by="suspend_stream/m/suspend")
RECORDS.update(lambda found: (found.having(reason=None), None))
meets = WaitStream(task_id="t", until="healthy", deferrable=True, **FACTS)
said["met a suspend"] = [tries(lambda: meets.execute_complete({}, None, first=3))]
for deferrable in (False, True):
    stops = StopStream(task_id="t", deferrable=deferrable, **FACTS)
    said["met a suspend"].append(tries(lambda: stops.execute_complete({}, None, {"generation": 3})))
become(phase=Phase.SUBMITTING, wish=Wish.RUN)
late = WaitStream(task_id="t", until="healthy", deferrable=True, **FACTS)
said["deferred"] = tries(lambda: late.execute_complete({}, event, first=3))
said["looked at again"] = tries(lambda: late.execute_complete({}, None, first=3))

begun = []
def starts(project, root):
    begun.append([str(project), str(root)])
    become(phase=Phase.RUNNING, wish=Wish.RUN)
    return 7
awaiting.start_supervisor = starts
Path(PROJECT, "conf/penstock.toml").open("a").write("\\n[supervise]\\nautostart = true\\n")
healthy = WaitStream(task_id="t", until="healthy", **FACTS)
said["autostart"] = tries(lambda: healthy.poll_until_complete(3, {}))
awaiting.start_supervisor = lambda project, root: begun.append([str(project), str(root)]) or 8
become(phase=Phase.SUBMITTING, wish=Wish.RUN)
said["autostart in vain"] = tries(lambda: healthy.poll_until_complete(3, {}))
said["deferred, autostart"] = tries(lambda: late.execute_complete({}, event, first=3))
said["deferred, autostart in vain"] = tries(lambda: late.execute_complete({}, event, first=3, begun=True))
said["begun"] = begun

import shutil
shutil.rmtree(Path(PROJECT, "checkpoints"))
from types import SimpleNamespace
ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=None, try_number=1)
said["no root"] = tries(lambda: StartStream(task_id="t", **FACTS).execute({"ti": ti}))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of every wait."""
    project, by_wait = run_apart(SCRIPT.replace("\\\\n", "\\n"), tmp_path_factory.mktemp("waits"))
    return {"project": str(project), **by_wait}


def test_a_wait_logs_why_a_start_fails(outcomes) -> None:
    """An operator looks there first: the phase stays, and the reason says with what the driver ended."""
    assert outcomes["heard"] == [
        "orders is SUBMITTING", "orders is SUBMITTING: the driver ended with 75: PEN-SRC-040", "orders is RUNNING",
    ]  # fmt: skip


@pytest.mark.parametrize("until", ["healthy", "end"])
@pytest.mark.parametrize(
    ("phase", "healthy", "end"),
    [
        ("RUNNING", "done", "again"),
        ("DRAINING", "done", "again"),
        ("FINISHED", "done", "done"),
        ("SUBMITTING", "for good", "again"),
        ("BACKOFF", "for good", "again"),
        ("UNHEALTHY", "for good", "again"),
        ("PAUSED", "for good", "again"),
        ("STOPPED", "for good", "done"),
        ("SUSPENDED", "for good", "again"),
        ("FAILED", "for good", "for good"),
    ],
)
def test_a_wait_ends_as_the_stream_stands(outcomes, until, phase, healthy, end):
    """Nobody supervises here: a wait for the end may be tried again, because drivers go on; the other fails for good."""
    active, succeeded, outcome, why = outcomes[f"{until} {phase}"]  # what a try that attaches again returns, or raises
    assert outcome == (healthy if until == "healthy" else end)
    over = phase in ("FINISHED", "STOPPED", "FAILED") or (until, phase) == ("healthy", "SUSPENDED")
    assert (active, succeeded) == (outcome != "done" and not over, outcome == "done")
    if outcome == "done":
        assert (why["job"], why["first"], why["phase"]) == ("orders", 3, phase)
    else:
        assert ("PEN-SUP-002" if over else "PEN-SUP-003") in why
    if outcome != "done" and over:
        assert f"orders is {phase}: because" in why


def test_a_trigger_opens_the_control_root_outside_the_event_loop(outcomes):
    """A root on HDFS may not answer for long: the loop is that of all triggers of the triggerer."""
    assert outcomes["opened in the loop"] == [False, False]


def test_a_suspended_stream_has_not_ended(outcomes):
    """It is to be resumed: the trigger and the task wait on, and see how the stream ends after that."""
    assert "no supervisor has given a sign of life" in outcomes["trigger, suspended"]["absent"]
    assert outcomes["trigger, failed"] == {"phase": "FAILED"}
    assert outcomes["suspended, deferred"] == ["deferred", {"first": 3, "begun": False}]


def test_a_task_whose_stream_somebody_suspends_says_who(outcomes):
    """The record has no reason then; a wait in a worker, one without it and the last look say the same."""
    why = "orders is SUSPENDED: suspend_stream/m/suspend has asked for suspend since"
    for outcome, said in outcomes["met a suspend"]:
        assert (outcome, why in said) == ("for good", True), said


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("name", ["cli", "other dag", "own run"])
def test_a_stream_that_is_started_again_is_followed_to_its_end(outcomes, name, deferrable):
    """A restart is no end: the task goes on, and shows how the stream ends (review 17.4)."""
    outcome, what = outcomes[f"{name} RUNNING {deferrable}"]
    assert (
        (outcome, what["first"]) == ("deferred", 3)
        if deferrable
        else (outcome, "PEN-SUP-003" in what) == ("again", True)
    )
    assert outcomes[f"{name} FINISHED {deferrable}"][0] == "done"
    outcome, why = outcomes[f"{name} FAILED {deferrable}"]
    assert (outcome, "orders is FAILED: because" in why) == ("for good", True)


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("phase", ["RUNNING", "FINISHED", "FAILED"])
def test_a_stream_that_a_newer_run_of_the_dag_has_started_is_left_to_that_run(outcomes, phase, deferrable):
    """Skipped, so that no task behind it starts as if the stream had ended (review 17.4)."""
    outcome, why = outcomes[f"newer run {phase} {deferrable}"]
    assert (outcome, "d/r2/deploy has started generation 3" in why) == ("skipped", True)


@pytest.mark.parametrize("name", ["stop", "drain"])
def test_a_command_for_a_stream_that_is_over_ends_well_and_changes_nothing(outcomes, name):
    """A stale attempt can never touch a newer generation (DESIGN 11)."""
    outcome, answer, wish, first = outcomes[f"stale {name}"]
    assert (outcome, answer["outcome"], wish, first) == ("done", "stale", "RUN", 3)


def test_a_restart_of_a_generation_that_is_over_is_skipped(outcomes):
    """Nothing was restarted, and the task does not say it was (review 17.3)."""
    outcome, why, wish, first = outcomes["stale restart"]
    assert (outcome, why) == ("skipped", "nothing was restarted: generation 2 of orders is over")
    assert (wish, first) == ("RUN", 3)


def test_a_job_that_is_none_fails_for_good_by_its_name(outcomes):
    """No try makes it one."""
    outcome, why = outcomes["unknown job"]
    assert (outcome, "nope" in why) == ("for good", True)


def test_a_deferred_wait_notices_that_nobody_supervises(outcomes):
    """The trigger says so, and the task looks itself before it fails."""
    assert "no supervisor has given a sign of life" in outcomes["trigger"]["absent"]
    assert outcomes["deferred"][0] == "for good"
    assert "PEN-SUP-003" in outcomes["deferred"][1]
    assert outcomes["looked at again"] == ["deferred", {"first": 3, "begun": False}]
    assert outcomes["deferred, autostart"] == ["deferred", {"first": 3, "begun": True}]
    assert outcomes["deferred, autostart in vain"][0] == "for good"


def test_a_task_starts_a_supervisor_where_the_configuration_says_so(outcomes):
    """Once a task: one that does not come is no reason to start another."""
    project = outcomes["project"]
    assert outcomes["autostart"][0] == "done"
    assert outcomes["autostart in vain"][0] == "for good"
    assert outcomes["begun"] == [[project, f"{project}/checkpoints"]] * 3


def test_a_restart_begins_nothing_that_somebody_ended_during_its_check(outcomes):
    """The check may take a minute: a stop, a suspend and a restart that come meanwhile are newer, and hold."""
    for task, verb in (("", "stop"), ("", "suspend"), ("deploy ", "stop")):
        outcome, why, asked_by, generation = outcomes[f"{task}overtaken by {verb}"]
        assert (outcome, asked_by, generation) == ("for good", "stop_stream/m/stop", 3)
        assert why == f"nothing was restarted: stop_stream/m/stop has asked for {verb} since"
    for verb in ("stop", "drain"):
        outcome, why, asked_by, generation = outcomes[f"generation overtaken by {verb}"]
        assert (outcome, asked_by, generation) == ("for good", "stop_stream/m/stop", 3)
        assert why == f"nothing was restarted: stop_stream/m/stop has asked for {verb} since"
    outcome, why, asked_by, generation = outcomes["generation overtaken by restart"]
    assert (outcome, asked_by, generation) == ("skipped", "stop_stream/m/stop", 4)
    assert why == "nothing was restarted: generation 3 of orders is over"
    outcome, why, asked_by, generation = outcomes["overtaken by restart"]
    assert (outcome, asked_by, generation) == ("for good", "stop_stream/m/stop", 4)
    assert why == "nothing was restarted: stop_stream/m/stop has started generation 4"


def test_a_task_that_asked_for_code_which_was_rolled_back_fails(outcomes: dict[str, list[object]]) -> None:
    """DESIGN 11: the older version runs; a run that has begun nothing, and a stop, are not concerned."""
    for outcome, why in [*outcomes["rolled back"], outcomes["rolled back, healthy, own"]]:
        assert (outcome, "PEN-SUP-040 orders is RUNNING: " in why) == ("for good", True), why
    assert outcomes["rolled back, healthy, other"][0] == outcomes["rolled back, stopped"][0] == "done"


def test_a_late_try_drains_nothing_that_somebody_stopped_and_says_so(outcomes):
    """What follows a drain would take its windows for closed; of a stop there is nothing left to do."""
    said = "nothing was drained: stop_stream/m/stop has asked for stop since"
    assert outcomes["late drain"] == ["for good", said, "STOP"]
    outcome, answer, wish = outcomes["late stop"]
    assert (outcome, answer["outcome"], wish) == ("done", "stale", "STOP")


def test_a_task_whose_machine_has_no_control_root_says_so(outcomes):
    """And may be tried again, when it is mounted."""
    outcome, why = outcomes["no root"]
    assert (outcome, "PEN-SUP-004 there is no control root" in why) == ("again", True)


def test_a_limit_is_set_by_a_number_or_a_size_and_what_is_empty_is_lifted(outcomes):
    """SEMANTICS 8.5: what is no limit is refused at once, and changes none."""
    limits = {"rows": 5, "bytes": 64 << 20, "files": 7}
    outcome, answer, recorded = outcomes["limits set"]
    assert (outcome, recorded) == ("done", limits)
    assert answer == {
        "job": "orders", "source": None, **limits, "max_rate": None, "max_rate_per_partition": None, "paused": False,
        "outcome": answer["outcome"],
    }  # fmt: skip
    assert outcomes["limits no size"][0] == "for good"
    assert outcomes["limits no size"][1].startswith("'64 MB' is not a size: write a whole number and a unit")
    assert outcomes["limits no files"][:2] == ["for good", "'few' is not a number of files, 1 or more"]
    assert outcomes["limits no size"][2] == outcomes["limits no files"][2] == limits
    assert outcomes["limits number"][2] == {"bytes": 9}
    assert outcomes["limits lifted"][2] is None


def test_limits_of_one_source_leave_those_of_each(outcomes):
    """The task lifts what it does not name of this source alone; a pause is of the whole job, and refused there."""
    outcome, answer, recorded = outcomes["limits of one"]
    assert (outcome, recorded) == ("done", {"rows": 3, "sources": {"clicks": {"rows": 8, "max_rate": 9}}})
    assert (answer["source"], answer["rows"], answer["max_rate"], answer["paused"]) == ("clicks", 8, 9, False)
    again = {"rows": 3, "sources": {"clicks": {"bytes": 1 << 20}}}
    assert outcomes["limits of one again"][2] == again
    outcome, why, recorded = outcomes["limits of one paused"]
    assert (outcome, "a pause is of the whole job" in why, recorded) == ("for good", True, again)
    assert outcomes["limits of one lifted"][2] == {"rows": 3}
    assert outcomes["limits of all lifted"][2] is None


def test_rates_and_a_pause_are_in_the_record_of_the_stream(outcomes):
    """SEMANTICS 8.5: the task sets them, and lifts those that it does not name. A number that is none changes none."""
    limits = {"max_rate": 900, "max_rate_per_partition": 30, "paused": True}
    outcome, answer, recorded = outcomes["limits rates"]
    assert (outcome, recorded) == ("done", limits)
    assert answer == {
        "job": "orders",
        "source": None,
        "rows": None,
        "bytes": None,
        "files": None,
        **limits,
        "outcome": answer["outcome"],
    }
    assert outcomes["limits no rate"] == ["for good", "'fast' is not a number of rows, 1 or more", limits]
    assert outcomes["limits no rate of partitions"] == ["for good", "'0.5' is not a number of rows, 1 or more", limits]
    assert outcomes["limits paused"][2] == {"paused": True}


def test_a_start_sets_what_batches_read_at_most_and_what_is_empty_stays(outcomes):
    """SEMANTICS 8.5: also of a stream that runs; a start takes no limit off."""
    limits = {"rows": 5, "bytes": 64 << 20, "files": 7}
    assert (outcomes["starts set"][0], outcomes["starts set"][2]) == ("done", limits)
    outcome, why, recorded = outcomes["starts no size"]
    assert (outcome, recorded) == ("for good", limits)
    assert why.startswith("'64 MB' is not a size: write a whole number and a unit")
    assert (outcomes["starts kept"][0], outcomes["starts kept"][2]) == ("done", limits)
