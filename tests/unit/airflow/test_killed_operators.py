"""Tasks that are killed at each call to storage and tried again, cleared, or overtaken: nothing is done twice."""

from __future__ import annotations

import pytest
from apart import run_apart

pytestmark = [pytest.mark.slow]
KINDS = [
    "start", "start anew", "restart", "restart what is meant", "stop", "stop what is meant", "drain",
    "restart, deferred", "drain, deferred",
]  # fmt: skip

SCRIPT = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.airflow import DrainStream, RestartStream, StartStream, StopStream, awaiting
from penstock.airflow.command_context import options_of
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.supervise.commands import Command, Verb, fold
from penstock.supervise.control import StreamControl
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import Phase, Stream, Wish

PROJECT = sys.argv[1]
FACTS = {"task_id": "t", "job": "orders", "project": PROJECT}
STOPPED = Stream(first=2, generation=3, launches=1)
RUNNING = STOPPED.having(wish=Wish.RUN, phase=Phase.RUNNING)
TASKS = {
    "start": (STOPPED, lambda: StartStream(rows="5", note="n", **FACTS)),
    "start anew": (RUNNING, lambda: StartStream(start="empty", restart="True", **FACTS)),
    "restart": (RUNNING, lambda: RestartStream(start="empty", truncate_sinks="True", drop="old older", **FACTS)),
    "restart what is meant": (RUNNING, lambda: RestartStream(generation="3", **FACTS)),
    "stop": (RUNNING, lambda: StopStream(**FACTS)),
    "stop what is meant": (RUNNING, lambda: StopStream(generation="3", **FACTS)),
    "drain": (RUNNING, lambda: DrainStream(**FACTS)),
    "restart, deferred": (RUNNING, lambda: RestartStream(start="empty", deferrable=True, **FACTS)),
    "drain, deferred": (RUNNING, lambda: DrainStream(deferrable=True, **FACTS)),
}

class Killed(BaseException):
    pass

class Mortal:
    # A store whose user is killed before or behind one of its calls.
    def __init__(self, inner, at, behind):
        self.inner, self.left, self.behind = inner, at, behind
    def __getattr__(self, name):
        def call(*args):
            self.left -= 1
            if not self.left and not self.behind:
                raise Killed
            done = getattr(self.inner, name)(*args)
            if not self.left:
                raise Killed
            return done
        return call

class World:
    # One stream in a store of its own, with a supervisor that does something whenever a task naps.
    def __init__(self, stream):
        self.store = MemoryStore()
        self.records = StreamRecords(self.store, "orders")
        self.records.update(lambda _: (stream, None))
        self.began, self.told = [], None
    def wall(self):
        return 5_000_000
    def monotonic(self):
        return 0.0
    def sleep(self, seconds):
        self.supervise()
    def supervise(self):
        def goes_on(s):
            if s.wish is Wish.STOP and not s.is_over:
                return s.having(phase=Phase.STOPPED)
            if s.wish is Wish.DRAIN and not s.is_over:
                return s.having(phase=Phase.FINISHED if s.phase is Phase.DRAINING else Phase.DRAINING)
            return s.having(phase=Phase.RUNNING, launches=1) if s.phase is Phase.SUBMITTING else s
        before = self.records.newest()
        after, _ = self.records.update(lambda s: (goes_on(s), None))
        if after.launches > before.launches:
            self.began.append(after.first)
    def run(self, task, at=0, behind=False, attempt=1):
        def control(project, job):
            made = StreamControl(LocalFolder(project, "checkpoints"), job, self)
            made.store = Mortal(self.store, at, behind)
            made.records = StreamRecords(made.store, job)
            return made
        awaiting.control_of = control
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=attempt)
        run = SimpleNamespace(start_date=datetime.fromtimestamp(4, UTC))
        try:
            return self.carry_on(task, lambda made: made.execute({"ti": ti, "dag_run": run}), {"ti": ti})
        except Killed:
            return None
        except (AirflowFailException, AirflowSkipException) as why:
            self.told = str(why)
    def carry_on(self, task, what, context):
        # What a triggerer does: it wakes the task, in another process, too early as well.
        while True:
            try:
                return what(task())
            except TaskDeferred as deferred:
                self.supervise()
                what = lambda made, d=deferred: getattr(made, d.method_name)(context, None, **d.kwargs)
    def shows(self):
        for _ in range(3):
            self.supervise()
        stream = self.records.newest()
        return [json.loads(stream.model_dump_json()), self.began]
    def another_begins_it_anew(self):
        self.records.update(lambda s: fold(s, Command(verb=Verb.RESTART, id="another"), 6_000_000))

def killed(stream, task, *, between):
    # What the stream shows after a kill at each call, and what then comes to pass.
    found = []
    for behind in (False, True):
        at, ended = 0, None
        while ended is None:
            at += 1
            world = World(stream)
            ended = world.run(task, at, behind)
            if ended is None:
                found.append(between(world))
    return found

def tried_again(task, slept):
    def between(world):
        for _ in range(slept):
            world.supervise()
        answer = world.run(task, attempt=2)
        return [answer["generation"], *world.shows()]
    return between

def overtaken(task):
    def between(world):
        world.another_begins_it_anew()
        first = world.records.newest().first
        world.supervise()
        world.run(task, attempt=2)
        now = world.records.newest()
        return [world.told, first, now.first, now.phase.value, now.wish.value, world.began.count(first)]
    return between

said = {}
for name, (stream, task) in TASKS.items():
    peace = World(stream)
    answer = peace.run(task)
    whole = [answer["generation"], *peace.shows()]
    cleared = peace.run(task, attempt=2)
    said[name] = {
        "peace": whole,
        "cleared": [cleared["generation"], *peace.shows()],
    }
    if name in ASKED:
        said[name]["killed"] = [
            one for slept in ((0,) if "deferred" in name else (0, 1, 3))
            for one in killed(stream, task, between=tried_again(task, slept))
        ]
        said[name]["overtaken"] = killed(stream, task, between=overtaken(task))

def read(partitions=None, state=None, drop=None):
    try:
        return options_of(partitions, state, drop, truncate_sinks=False).model_dump(mode="json")
    except AirflowFailException as why:
        return str(why)

said["read"] = [
    read("16", "a=t b=u/v", "c"), read(16, {"a": "t", "b": "u/v"}, ["c"]), read(16, ["a=t", "b=u/v"], ("c",)),
    read("0"), read("8; rm"), read(state="a"), read(state="a=t a=u"), read(state="../a=t"), read(drop="a ../b"),
]
said["nothing"] = options_of("", "", "", truncate_sinks=False) is None
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, request):
    """What became of the stream of each operator; of those that were drawn, at each call too."""
    here = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    asked = sorted({item.callspec.params["kind"] for item in here} | {"restart", "stop"})
    return run_apart(f"ASKED = {asked!r}\n{SCRIPT}", tmp_path_factory.mktemp("killed"))[1]


@pytest.mark.sample(1)
@pytest.mark.fault("F08", "F12")
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_is_killed_at_any_call_and_tried_again_does_no_more_than_one_in_peace(outcomes, kind):
    """Whatever the supervisor has done meanwhile; each call to storage is one at which it is killed, before and behind."""
    assert len(outcomes[kind]["killed"]) > (6 if "deferred" in kind else 20)
    for outcome in outcomes[kind]["killed"]:
        assert outcome == outcomes[kind]["peace"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_is_cleared_changes_nothing(outcomes, kind):
    """It finds what its first run has done."""
    assert outcomes[kind]["cleared"] == outcomes[kind]["peace"]


@pytest.mark.sample(1)
@pytest.mark.fault("F08")
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_is_tried_again_after_another_began_the_stream_anew_leaves_it_alone(outcomes, kind):
    """A stale attempt can never end a newer generation (DESIGN 11)."""
    assert len(outcomes[kind]["overtaken"]) > 6
    for error, first, *state in outcomes[kind]["overtaken"]:
        assert state == [first, "RUNNING", "RUN", 1]
        assert (
            error is None
            or f"another has started generation {first}" in error
            or "generation 3 of orders is over" in error
        )


def test_a_restart_that_another_has_overtaken_says_whether_it_was_carried_out(outcomes):
    """It fails where nothing of it was done; it is done where the stream had run by it (review 17.3)."""
    reasons = {error and error.split(",")[0] for error, *_ in outcomes["restart"]["overtaken"]}
    assert "superseded: nothing was restarted" in reasons
    assert {error for error, *_ in outcomes["stop"]["overtaken"]} == {None}


def test_a_restart_says_what_becomes_of_state_and_sinks(outcomes):
    """As a template makes it of a form, or a DAG file says it; what is none of it fails the task."""
    stream = outcomes["restart"]["peace"][1]
    assert stream["options"] == {"partitions": None, "state": {}, "truncate_sinks": True, "drop": ["old", "older"]}
    assert [outcomes[kind]["peace"][1]["options"] for kind in KINDS if kind != "restart"] == [None] * (len(KINDS) - 1)
    options = {"partitions": 16, "state": {"a": "t", "b": "u/v"}, "truncate_sinks": False, "drop": ["c"]}
    assert outcomes["read"][:3] == [options] * 3
    assert outcomes["read"][3:] == [
        "'0' is not a number of partitions, 1 or more",
        "'8; rm' is not a number of partitions, 1 or more",
        "'a' is not STEP=TABLE",
        "step 'a' is named twice",
        "'../a=t' is not STEP=TABLE",
        "'../b' is no name of a step or source",
    ]
    assert outcomes["nothing"]
