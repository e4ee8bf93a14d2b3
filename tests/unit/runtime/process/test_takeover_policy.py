"""Who may take a log over (DESIGN 4): a driver that lives is left alone, a dead one is not waited for (F07, F09)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from checkpoint_samples import leave, own, run_batch
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.takeover import View, survey
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import EXIT_FENCED, EXIT_RETRY, Fenced, HolderAlive, StorageUnavailable
from penstock.runtime.process.os_processes import process_start
from penstock.runtime.process.takeover_policy import (
    Answer,
    HolderName,
    HolderWatch,
    StoppedWaiting,
    holder_name,
    judge,
    process_runs,
)
from penstock.time.clock import ManualClock

HOLDER = "here:17:4711"
SILENT = {"gone": False, "moved": False, "still_for": 0.0}


def held(**other) -> View:
    """Return a view of a log that a driver of generation 1 on host `here` holds."""
    log = Log(MemoryStore())
    own(log, holder=HOLDER)
    return replace(survey(log), **other)


def released() -> View:
    log = Log(MemoryStore())
    leave(own(log, holder=HOLDER))
    return survey(log)


@pytest.mark.parametrize(
    ("view", "signs", "generation", "is_told", "answer"),
    [
        (View(tail=-1, epoch=0, takeover=None, released=False, damaged=0, last=None), SILENT, 0, False, Answer.TAKE),
        (released(), SILENT, 0, False, Answer.TAKE),
        (held(), SILENT, 0, False, Answer.WAIT),
        (held(), SILENT, 1, False, Answer.WAIT),
        (held(), SILENT, 2, False, Answer.TAKE),
        (held(), SILENT, 0, True, Answer.TAKE),
        (held(), dict(SILENT, gone=True), 0, False, Answer.TAKE),
        (held(), dict(SILENT, moved=True), 0, False, Answer.REFUSE),
        (held(), dict(SILENT, moved=True, still_for=99.0), 0, False, Answer.REFUSE),
        (held(), dict(SILENT, moved=True), 2, False, Answer.TAKE),
        (held(), dict(SILENT, moved=True), 0, True, Answer.TAKE),
        (held(), dict(SILENT, still_for=9.9), 0, False, Answer.WAIT),
        (held(), dict(SILENT, still_for=10.0), 0, False, Answer.TAKE),
        (held(takeover=None), SILENT, 5, False, Answer.WAIT),
        (held(takeover=None), dict(SILENT, still_for=10.0), 0, False, Answer.TAKE),
    ],
    ids=[
        "empty log", "released", "held", "held by the same generation", "a newer generation", "told to",
        "its process is gone", "it moved", "it moved and then stood still", "it moved, but a newer generation",
        "it moved, but told to", "still, not long enough", "still for long enough",
        "a holder whose entry cannot be read", "the same, still for long enough",
    ],
)  # fmt: skip
def test_each_rule(view, signs, generation, is_told, answer):
    """The rules of DESIGN 4, "May take over"."""
    assert judge(view, **signs, generation=generation, told=is_told, patience=10.0) is answer


@given(moved=st.booleans(), still_for=st.floats(0, 100), generation=st.integers(0, 1), patience=st.floats(0.1, 50))
def test_a_holder_with_a_sign_of_life_is_never_taken_from_by_patience_alone(moved, still_for, generation, patience):
    """Without a newer generation, an order or proof of death, only standing still for long enough is enough."""
    signs = {"gone": False, "moved": moved, "still_for": still_for}
    taken = judge(held(), **signs, generation=generation, told=False, patience=patience) is Answer.TAKE
    assert taken == (not moved and still_for >= patience)


class Ticking(ManualClock):
    """A clock that only waiting moves."""

    def monotonic(self) -> float:
        return self.now / 1_000_000

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


@dataclass
class Beats:
    """Heartbeats of writer `w1`: number n is written at second `2 n`, until `dies`."""

    clock: Ticking
    dies: float
    writer: str = "w1"
    asked: list[str | None] = field(default_factory=list)

    def newest_of(self, writer):
        self.asked.append(writer)
        if writer not in (None, self.writer):
            return None
        return int(min(self.clock.monotonic(), self.dies) // 2)


@dataclass(kw_only=True)
class Watch(HolderWatch):
    """A watch of a log and of heartbeats that are in no folder."""

    log: Log
    beats: Beats

    def __post_init__(self):
        pass

    def look(self):
        return survey(self.log)

    def heartbeat_of(self, writer):
        return self.beats.newest_of(writer)


def watch(log: Log, clock: Ticking, beats, **other) -> HolderWatch:
    return Watch(
        None, log=log, beats=beats, clock=clock, patience=10.0, host="here",
        runs=other.pop("runs", lambda pid, start: True), **other,
    )  # fmt: skip


@pytest.fixture
def log():
    """A log that `w1` on host `here` holds."""
    held_log = Log(MemoryStore())
    run_batch(own(held_log, holder=HOLDER), 0)
    return held_log


@pytest.mark.remedy("PEN-CKP-012", "PEN-CKP-013")
@pytest.mark.fault("F07", "F09")
def test_a_holder_that_beats_is_left_alone_and_named(log):
    """The second driver ends with exit code 77 as soon as it sees the next heartbeat."""
    clock = Ticking(1_000_000)
    with pytest.raises(HolderAlive, match=HOLDER) as caught:
        watch(log, clock, Beats(clock, dies=1e9)).may_take_over(survey(log))
    assert caught.value.exit_code == EXIT_FENCED
    assert caught.value.fields == {"holder": HOLDER, "epoch": 1}
    assert clock.monotonic() == 2.0
    watch(log, clock, Beats(clock, dies=1e9), told=True).may_take_over(survey(log))
    watch(log, clock, Beats(clock, dies=2.0)).may_take_over(survey(log))


@pytest.mark.fault("F09")
def test_a_holder_that_writes_its_log_lives_though_its_heartbeat_stands_still(log):
    """Status records may fail while the log goes on."""
    clock = Ticking()
    owned_elsewhere = own(log, holder="there:1:1")
    guard = watch(log, clock, Beats(clock, dies=0, writer=owned_elsewhere.writer))
    guard._answer(survey(log))
    run_batch(owned_elsewhere, 1)
    with pytest.raises(HolderAlive):
        guard.may_take_over(survey(log))


def test_a_holder_that_stands_still_is_taken_from_after_the_patience(log):
    """Counted on the watcher's own clock from its first look."""
    clock = Ticking(40_000_000)
    watch(log, clock, Beats(clock, dies=30)).may_take_over(survey(log))
    assert clock.monotonic() == 50.0


def test_the_time_between_two_askings_counts(log):
    """It is asked before Spark starts, which takes seconds, and again after."""
    clock = Ticking()
    guard = watch(log, clock, Beats(clock, dies=0))
    guard._answer(survey(log))
    clock.now = 20_000_000
    guard.may_take_over(survey(log))
    assert clock.monotonic() == 20.0


def test_another_holder_is_watched_from_the_beginning(log):
    """That the last one stood still says nothing about the next."""
    clock = Ticking()
    guard = watch(log, clock, Beats(clock, dies=0))
    guard._answer(survey(log))
    clock.now = 20_000_000
    own(log, "w2", holder="there:1:1")
    guard.may_take_over(survey(log))
    assert clock.monotonic() == 30.0


def test_a_zombie_that_still_beats_does_not_keep_its_successor_alive(log):
    """Only the holder's own heartbeat counts."""
    own(log, "w2", holder="there:1:1")
    clock = Ticking()
    beats = Beats(clock, dies=1e9, writer="w1")
    watch(log, clock, beats).may_take_over(survey(log))
    assert clock.monotonic() == 10.0
    assert set(beats.asked) == {"w2"}


def test_a_checkpoint_that_vanishes_while_a_command_waits_is_storage_that_does_not_answer(tmp_path):
    """A scheduler repeats the command; the holder is of another host, so only patience could decide."""
    folder = LocalFolder(tmp_path) / "root" / "job"
    own(Log(folder.store()), holder="there:17:4711")
    watcher = HolderWatch(folder, patience=10.0, clock=Ticking(0))
    watcher.look()
    shutil.rmtree(folder)
    for again in (watcher, HolderWatch(folder, patience=10.0, clock=Ticking(0))):
        with pytest.raises(StorageUnavailable) as gone:
            again.look()
        assert gone.value.exit_code == EXIT_RETRY


def test_a_process_of_this_host_that_is_gone_is_not_waited_for(log):
    """Neither a heartbeat nor time is asked for."""
    clock = Ticking()
    seen = []

    def runs(pid, start):
        seen.append((pid, start))
        return False

    watch(log, clock, Beats(clock, dies=1e9), runs=runs).may_take_over(survey(log))
    assert (clock.monotonic(), seen) == (0.0, [(17, "4711")])


def test_the_process_table_says_nothing_about_another_host(log):
    """A process of that number may run here and not there, or the other way round."""
    clock = Ticking()
    guard = watch(log, clock, Beats(clock, dies=0), runs=lambda pid, start: False)
    guard.host = "elsewhere"
    guard.may_take_over(survey(log))
    assert clock.monotonic() == 10.0


@pytest.mark.fault("F09")
def test_the_process_table_says_nothing_about_another_container_of_the_same_host_name():
    """Two containers on the network of their host have its name, and each its own process 17."""
    log, clock = Log(MemoryStore()), Ticking()
    own(log, holder="here:17:4711:4026531001")
    guard = watch(log, clock, Beats(clock, dies=1e9), runs=lambda pid, start: False)
    guard.namespace = "4026531002"
    with pytest.raises(HolderAlive):
        guard.may_take_over(survey(log))
    guard = watch(log, clock, Beats(clock, dies=1e9), runs=lambda pid, start: False)
    guard.namespace = "4026531001"
    guard.may_take_over(survey(log))


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="there are no namespaces on macOS")
def test_a_holder_names_its_namespace():
    """A process in a namespace of its own has another name than its starter gives it."""
    name = HolderName.parse(holder_name())
    assert name is not None
    assert name.is_of(socket.gethostname(), str(Path("/proc/self/ns/pid").stat().st_ino))
    assert not name.is_of(socket.gethostname(), "1")


def test_a_holder_that_leaves_while_it_is_watched_is_followed_at_once():
    """Its Release ends the waiting."""
    log, clock = Log(MemoryStore()), Ticking()
    owned = own(log, holder=HOLDER)

    class Leaves(Ticking):
        def sleep(self, seconds):
            super().sleep(seconds)
            leave(owned)

    clock = Leaves()
    watch(log, clock, Beats(clock, dies=0)).may_take_over(survey(log))
    assert clock.monotonic() == 0.25


def test_waiting_ends_when_a_stop_is_asked_for(log):
    """A driver that waits for its turn stops as any other."""
    clock = Ticking()
    with pytest.raises(StoppedWaiting):
        watch(log, clock, Beats(clock, dies=0), stopped=lambda: clock.monotonic() >= 1).may_take_over(survey(log))


@pytest.mark.parametrize(
    ("text", "name"),
    [("h:1:2", HolderName("h", 1, "2")), ("h:1:", HolderName("h", 1, "")), ("h:1:2:3", HolderName("h", 1, "2", "3")), ("h", None), ("h:x:2", None), (":1:2", None)],
)  # fmt: skip
def test_a_holder_of_another_form_is_no_process(text, name):
    """Such a holder is judged by its heartbeat alone."""
    assert HolderName.parse(text) == name


def test_a_process_is_known_by_number_and_start():
    """A number is used again; one that was killed and not asked after yet is dead."""
    me = os.getpid()
    assert process_runs(me, process_start(me))
    assert not process_runs(me, "1")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = process_start(child.pid)
    assert process_runs(child.pid, start)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie from here on
    assert process_start(child.pid) == start
    assert not process_runs(child.pid, start)
    child.communicate()
    assert not process_runs(child.pid, start)


@pytest.mark.fault("F09")
@pytest.mark.parametrize("left", [False, True])
def test_a_generation_that_is_older_than_the_logs_is_fenced(log, left):
    """Also where the log is free: a start that was overtaken must not come back, whatever it was told (DESIGN 11)."""
    owned = own(log, "w2", holder=HOLDER, generation=3)
    if left:
        leave(owned)
    clock = Ticking()
    beats = Beats(clock, dies=1e9)
    for is_told in (False, True):
        with pytest.raises(Fenced, match="generation 2, and generation 3"):
            watch(log, clock, beats, generation=2, told=is_told).may_take_over(survey(log))
    watch(log, clock, beats, generation=4).may_take_over(survey(log))
