"""Commands on a stream, and the wait for what becomes of them."""

from __future__ import annotations

import pytest
from checkpoint_samples import own, purge, run_batch

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.local import LocalStore
from penstock.errors import (
    CannotRestore,
    CommandRefused,
    ConfigError,
    RolledBack,
    RootMissing,
    StreamFailed,
    SupervisorAbsent,
)
from penstock.rates.limits import Limits, SourceLimits
from penstock.runtime.process.heartbeat import StatusRecords
from penstock.supervise.commands import Command, CommandResult, Verb
from penstock.supervise.control import StreamControl
from penstock.supervise.records import LeaseWatch
from penstock.supervise.stream import Phase, StartOptions, Wish
from penstock.supervise.supervisor import PATIENCE

SECOND = 1_000_000


class Clock:
    """Move on by what is slept; `then` happens after so many sleeps."""

    def __init__(self):
        self.seconds = 1_000.0
        self.sleeps = 0
        self.then = {}
        self.each = lambda: None

    def wall(self):
        return int(self.seconds * SECOND)

    def monotonic(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds
        self.sleeps += 1
        self.each()
        self.then.get(self.sleeps, lambda: None)()
        assert self.sleeps < 10_000, "it waits for ever"

    def sleep_until(self, wall):
        self.sleep(max(0.0, wall / SECOND - self.seconds))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def control(tmp_path, clock):
    control_store(tmp_path / "root")
    return StreamControl(tmp_path / "root", "flights", clock)


@pytest.fixture
def supervised(control, clock):
    """Let a supervisor give a sign of life now and after each sleep; return its lease."""
    lease = LeaseWatch(control.store, writer="a", place="h:1", patience=PATIENCE)
    clock.each = lambda: lease.hold(wall=clock.wall(), monotonic=clock.seconds)
    clock.each()
    return lease


def command(verb, id_="a", **more):
    return Command(verb=verb, id=id_, **more)


def become(control, **changes):
    """Return what makes the stream so."""
    return lambda: control.records.update(lambda stream: (stream.model_copy(update=changes), None))


def begin(control, id_="a", **more):
    """Start the stream, and let its driver run."""
    asked = control.ask(command(Verb.START, id_, **more))
    become(control, phase=Phase.RUNNING)()
    return asked


def checkpoint(control, batches, floor=0):
    """Let the job have a checkpoint of so many batches, those from the floor on kept."""
    log = Log(LocalStore(control.root / control.job))
    open_or_create(log.store, now=0)
    owned = own(log)
    for batch in range(batches):
        run_batch(owned, batch, floor=min(batch, floor))
    purge(log, owned)


# --- asking -------------------------------------------------------------------------------------
def test_a_start_is_written_down_with_a_generation_of_its_own(control, clock):
    """Nobody need supervise for that; whoever asks again with another id finds it so already."""
    asked = control.ask(command(Verb.START, note="at night"))
    assert (asked.outcome, asked.generation, asked.stream) == (CommandResult.DONE, 1, control.newest())
    stream = control.newest()
    assert (stream.wish, stream.phase, stream.asked_at, stream.note) == (
        Wish.RUN, Phase.SUBMITTING, clock.wall(), "at night",
    )  # fmt: skip
    again = control.ask(command(Verb.START, "b"))
    assert (again.outcome, again.generation, control.newest().generation) == (CommandResult.ALREADY, 1, 1)


@pytest.mark.remedy("PEN-SUP-004")
def test_a_control_root_that_is_not_there_is_named_and_not_made(tmp_path, clock):
    """It may be on a disk that is not mounted: what is written to another folder nobody would ever read."""
    for root in (tmp_path / "root", tmp_path / "mount" / "root"):
        with pytest.raises(RootMissing, match="PEN-SUP-004 there is no control root") as caught:
            StreamControl(root, "flights", clock)
        assert caught.value.where == str(root)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "root").mkdir(mode=0o700)  # it is mounted
    assert StreamControl(tmp_path / "root", "flights", clock).records.number() == -1


def test_who_runs_and_who_supervises_makes_the_root(tmp_path):
    """For its user alone."""
    control_store(tmp_path / "var" / "root")
    assert (tmp_path / "var" / "root").stat().st_mode & 0o777 == 0o700


def test_a_command_counts_once_however_often_it_comes(control):
    """The second time it is told what the first began, though others came in between."""
    first = begin(control, "try")
    second = control.ask(command(Verb.RESTART, "other"))
    number = control.records.number()
    again = control.ask(command(Verb.START, "try"))
    assert (first.generation, second.generation) == (1, 2)
    assert (again.outcome, again.generation) == (CommandResult.ALREADY, 1)
    assert control.ask(command(Verb.RESTART, "other")).generation == 2
    assert control.records.number() == number


def test_state_is_written_anew_only_where_there_is_some(control):
    """A driver that runs would be ended for one that must fail."""
    options = StartOptions(partitions=2)
    with pytest.raises(CannotRestore, match="no checkpoint yet, so there is no state to rewrite"):
        control.ask(command(Verb.START, options=options))
    checkpoint(control, 0)
    with pytest.raises(CannotRestore, match="no batch was committed yet"):
        control.ask(command(Verb.START, options=options))
    assert control.records.number() == -1
    run_batch(own(Log(LocalStore(control.root / "flights")), "w2"), 0)
    assert control.ask(command(Verb.START, options=options)).stream.options == options
    assert control.newest().options == options


def test_a_restart_that_is_tried_again_does_not_ask_for_its_batch_again(control):
    """What it went back to may be purged by the time of the second try."""
    checkpoint(control, 5)
    begin(control)
    first = control.ask(command(Verb.RESTART, "try", start="batch=1"))
    log = Log(LocalStore(control.root / "flights"))
    owned = own(log)
    run_batch(owned, 5, floor=4)
    purge(log, owned)
    with pytest.raises(CannotRestore):
        control.ask(command(Verb.RESTART, "another", start="batch=1"))
    again = control.ask(command(Verb.RESTART, "try", start="batch=1"))
    assert (first.outcome, again.outcome, again.generation) == (CommandResult.DONE, CommandResult.ALREADY, 2)


@pytest.mark.parametrize("batch", [2, 3, 4])
def test_a_batch_that_is_kept_may_be_gone_back_to(control, batch):
    """The driver is told so by its words, and nothing is restored here."""
    checkpoint(control, 5, floor=2)
    asked = control.ask(command(Verb.START, start=f"batch={batch}"))
    assert (asked.outcome, control.newest().start) == (CommandResult.DONE, f"batch={batch}")


@pytest.mark.parametrize("verb", [Verb.START, Verb.RESTART], ids=lambda verb: verb.value)
@pytest.mark.parametrize("batch", [0, 1, 5])
def test_a_batch_that_is_not_kept_is_refused_and_changes_nothing(control, verb, batch):
    """The driver that runs goes on, and the error names what there is."""
    checkpoint(control, 5, floor=2)
    if verb is Verb.RESTART:
        begin(control, "before")
    before, number = control.newest(), control.records.number()
    with pytest.raises(CannotRestore, match=f"batch {batch} is not kept; available: batches 2 to 4"):
        control.ask(command(verb, start=f"batch={batch}"))
    assert (control.newest(), control.records.number()) == (before, number)


def test_a_batch_is_refused_where_there_is_no_checkpoint(control):
    """And none is made by asking."""
    with pytest.raises(CannotRestore, match="no checkpoint to restore batch 3 from"):
        control.ask(command(Verb.START, start="batch=3"))
    assert control.records.number() == -1
    assert not (control.root / "flights").exists()
    assert control.ask(command(Verb.START, start="empty")).outcome is CommandResult.DONE


@pytest.mark.parametrize("start", ["first", "batch=", "batch=-1", "batch=x", ""])
def test_a_start_that_is_none_is_refused(control, start):
    """With what can be written."""
    with pytest.raises(ValueError, match="is none of last, batch=N, saved=NAME, snapshot=VERSION and empty"):
        control.ask(command(Verb.START, start=start))
    assert control.records.number() == -1


def test_a_command_for_a_generation_that_is_over_changes_nothing(control):
    """An old attempt stops nothing that a newer one started."""
    begin(control)
    control.ask(command(Verb.RESTART, "newer"))
    before = control.newest()
    asked = control.ask(command(Verb.STOP, "old", generation=1))
    assert (asked.outcome, asked.stream, control.newest()) == (CommandResult.STALE, before, before)


def test_a_restart_of_a_generation_that_is_over_is_stale_whatever_it_goes_back_to(control):
    """It changes nothing, so nothing need be kept for it."""
    checkpoint(control, 5, floor=2)
    begin(control)
    control.ask(command(Verb.RESTART, "newer"))
    asked = control.ask(command(Verb.RESTART, "old", generation=1, start="batch=0"))
    assert asked.outcome is CommandResult.STALE


@pytest.mark.remedy("PEN-SUP-001")
def test_what_the_phase_does_not_allow_is_refused(control):
    """And nothing is written, not even the id."""
    with pytest.raises(CommandRefused, match="resume is refused"):
        control.ask(command(Verb.RESUME))
    assert control.records.number() == -1
    assert control.ask(command(Verb.START, "b")).outcome is CommandResult.DONE, "what is not there can be started"


def test_limits_are_in_the_record(control):
    """A driver hears of them there."""
    begin(control)
    control.ask(command(Verb.LIMITS, "b", limits=Limits(rows=5)))
    assert control.newest().limits == Limits(rows=5)


def test_limits_of_one_source_are_in_the_record(control):
    """They lie beside those of each, and are taken back by name."""
    begin(control)
    control.ask(command(Verb.LIMITS, "b", limits=Limits(rows=5)))
    control.ask(command(Verb.LIMITS, "c", limits=Limits(sources={"orders": SourceLimits(rows=7, bytes=8)})))
    control.ask(command(Verb.LIMITS, "d", limits=Limits(sources={"orders": SourceLimits(rows=9)})))
    assert control.newest().limits.set_limits() == {"rows": 5, "sources": {"orders": {"rows": 9, "bytes": 8}}}
    control.ask(command(Verb.LIMITS, "e", unlimits=frozenset({"orders.rows", "orders.bytes"})))
    assert control.newest().limits == Limits(rows=5)


def test_limits_of_a_source_that_the_job_has_not_are_refused(control):
    """As its newest driver says, whether it still runs or not; before one ran nobody knows. They can be taken back."""
    asked = {"limits": Limits(sources={"order": SourceLimits(rows=5)})}
    begin(control)
    control.ask(command(Verb.LIMITS, "early", **asked))
    before = control.newest()
    with pytest.raises(ConfigError, match="no source 'Order' to limit"):
        control.ask(command(Verb.LIMITS, "bad", limits=Limits(sources={"Order": SourceLimits(rows=5)})))
    StatusRecords(control.store, control.job).put(
        {"writer": "w", "state": "stopped", "left": {"orders": 5, "clicks": None}}
    )
    with pytest.raises(ConfigError, match="no source 'order' to limit; did you mean 'orders'"):
        control.ask(command(Verb.LIMITS, "b", **asked))
    assert control.newest() == before
    assert control.ask(command(Verb.LIMITS, "early", **asked)).outcome is CommandResult.ALREADY
    control.ask(command(Verb.LIMITS, "c", unlimits=frozenset({"order.rows"})))
    assert control.newest().limits is None


# --- waiting --------------------------------------------------------------------------------------
def runs(stream):
    return stream.phase is Phase.RUNNING


def test_what_is_so_already_is_not_waited_for(control, clock):
    """Though nobody supervises."""
    asked = begin(control)
    assert control.wait(asked.generation, runs) == control.newest()
    assert clock.sleeps == 0


@pytest.mark.slow
def test_a_wait_ends_when_it_is_reached(control, clock, supervised):
    """However long that takes, as long as it is supervised."""
    asked = control.ask(command(Verb.START))
    clock.then = {500: become(control, phase=Phase.RUNNING)}
    assert control.wait(asked.generation, runs).phase is Phase.RUNNING
    assert clock.sleeps == 500


@pytest.mark.remedy("PEN-SUP-002")
@pytest.mark.parametrize("end", [Phase.FAILED, Phase.STOPPED, Phase.SUSPENDED, Phase.FINISHED])
def test_a_stream_that_comes_to_another_end_is_an_error(control, clock, supervised, end):
    """With the reason; whoever ended it, what is waited for does not come any more."""
    asked = control.ask(command(Verb.START))
    clock.then = {3: become(control, phase=end, reason="the driver ended with 78")}
    with pytest.raises(StreamFailed, match=f"flights is {end.value}: the driver ended with 78"):
        control.wait(asked.generation, runs)
    if end is Phase.FAILED:
        again = control.ask(command(Verb.START, "again"))
        clock.then = {clock.sleeps + 3: become(control, phase=Phase.RUNNING)}
        assert control.wait(again.generation, runs).phase is Phase.RUNNING


@pytest.mark.remedy("PEN-SUP-040")
def test_who_waits_for_code_that_was_rolled_back_is_told(control: StreamControl) -> None:
    """DESIGN 11: the older version runs; once the code is corrected and restarted, nothing is refused."""
    asked = control.ask(command(Verb.START))
    become(control, phase=Phase.BACKOFF, rolled_back="new", reason="version new did not become healthy: PEN-X")()
    become(control, phase=Phase.RUNNING, reason=None)()
    with pytest.raises(RolledBack, match="flights is RUNNING: version new did not become healthy: PEN-X"):
        control.refuse_older(control.newest(), asked.generation)
    again = control.ask(command(Verb.RESTART, "again"))
    become(control, phase=Phase.RUNNING)()
    control.refuse_older(control.newest(), again.generation)
    become(control, rolled_back="newer")()
    control.refuse_older(control.newest(), asked.generation)  # it asked for what a later command has replaced


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.SUSPEND])
def test_a_wait_that_somebody_ends_says_who(control, clock, supervised, verb):
    """A stream that was stopped or suspended has no reason in its record: whose request it was is one."""
    asked = control.ask(command(Verb.START))
    phase = {Verb.STOP: Phase.STOPPED, Verb.SUSPEND: Phase.SUSPENDED}[verb]
    clock.then = {3: lambda: control.ask(command(verb, "theirs")), 6: become(control, phase=phase, reason=None)}
    why = f"flights is {phase.value}: theirs has asked for {verb.value} since"
    with pytest.raises(StreamFailed, match=why):
        control.wait(asked.generation, runs)


def test_a_wait_goes_on_through_a_rest_that_is_no_end_to_it(control, clock, supervised):
    """A stream that is suspended and comes to another end after that is followed until then."""
    asked = control.ask(command(Verb.START))
    clock.then = {3: become(control, phase=Phase.SUSPENDED), 6: become(control, phase=Phase.FAILED, reason="spent")}
    with pytest.raises(StreamFailed, match="flights is FAILED: spent"):
        control.wait(asked.generation, runs, through=[Phase.SUSPENDED])


def test_who_waits_for_the_failure_gets_the_stream(control, clock, supervised):
    """It is what was wanted."""
    asked = control.ask(command(Verb.START))
    clock.then = {3: become(control, phase=Phase.FAILED, reason="x")}
    assert control.wait(asked.generation, lambda stream: stream.phase.is_final).phase is Phase.FAILED


@pytest.mark.remedy("PEN-SUP-003")
@pytest.mark.parametrize("leaves", [None, "silently", "properly"], ids=["never", "killed", "left"])
def test_where_nobody_supervises_nobody_waits_for_ever(control, clock, leaves):
    """After two patiences of the waiter's own clock; what was asked stands."""
    if leaves is not None:
        lease = LeaseWatch(control.store, writer="a", place="h:1", patience=PATIENCE)
        lease.hold(wall=clock.wall(), monotonic=clock.seconds)
        if leaves == "properly":
            lease.leave(wall=clock.wall())
    asked = control.ask(command(Verb.START))
    begun = clock.seconds
    with pytest.raises(SupervisorAbsent, match="the request stays recorded"):
        control.wait(asked.generation, runs)
    assert 2 * PATIENCE < clock.seconds - begun < 2 * PATIENCE + 2
    assert control.newest() == asked.stream
    lease = LeaseWatch(control.store, writer="b", place="h:2", patience=PATIENCE)  # one is started
    clock.each = lambda: lease.hold(wall=clock.wall(), monotonic=clock.seconds)
    clock.then = {clock.sleeps + 200: become(control, phase=Phase.RUNNING)}
    assert control.wait(asked.generation, runs).phase is Phase.RUNNING


@pytest.mark.slow
def test_a_supervisor_that_begins_to_supervise_in_time_is_waited_for(control, clock):
    """One that is started a little later carries out what stands."""
    asked = control.ask(command(Verb.START))
    lease = LeaseWatch(control.store, writer="a", place="h:1", patience=PATIENCE)

    def supervise():
        clock.each = lambda: lease.hold(wall=clock.wall(), monotonic=clock.seconds)

    clock.then = {30: supervise, 300: become(control, phase=Phase.RUNNING)}
    assert control.wait(asked.generation, runs).phase is Phase.RUNNING


def test_a_supervisor_that_dies_meanwhile_is_noticed(control, clock, supervised):
    """Two patiences after its last sign of life."""
    asked = control.ask(command(Verb.START))
    died = []

    def die():
        died.append(clock.seconds)
        clock.each = lambda: None

    clock.then = {200: die}
    with pytest.raises(SupervisorAbsent):
        control.wait(asked.generation, runs)
    assert 2 * PATIENCE < clock.seconds - died[0] < 2 * PATIENCE + 2


def test_a_stream_that_a_later_command_began_anew_is_returned(control, clock, supervised):
    """It is not the one that was waited for, and its failures are its own."""
    asked = begin(control)

    def anew():
        control.ask(command(Verb.RESTART, "later"))
        become(control, phase=Phase.FAILED, reason="x")()

    clock.then = {5: anew}
    waited = control.wait(asked.generation, lambda stream: stream.phase is Phase.FINISHED)
    assert (waited.first, waited.phase, clock.sleeps) == (2, Phase.FAILED, 5)


def test_the_supervisors_own_restarts_are_the_same_stream(control, clock, supervised):
    """Who waits for the end waits through them."""
    asked = begin(control)
    clock.then = {5: become(control, generation=4, phase=Phase.SUBMITTING), 9: become(control, phase=Phase.FINISHED)}
    assert control.wait(asked.generation, lambda stream: stream.phase is Phase.FINISHED).generation == 4


def test_a_command_that_comes_again_waits_for_what_it_began(control, clock, supervised):
    """Not for what a later command began: that is returned as it is."""
    begin(control, "try")
    control.ask(command(Verb.RESTART, "later"))
    asked = control.ask(command(Verb.START, "try"))
    waited = control.wait(asked.generation, lambda stream: stream.phase is Phase.FINISHED)
    assert (asked.generation, waited.first, clock.sleeps) == (1, 2, 0)


# --- who supervises -------------------------------------------------------------------------------
def test_a_sign_of_life_counts_for_two_patiences(control, clock):
    """By the wall clock, for those who do not want to wait; one who left supervises no more."""
    assert not control.is_supervised()
    lease = LeaseWatch(control.store, writer="a", place="h:1", patience=PATIENCE)
    lease.hold(wall=clock.wall(), monotonic=clock.seconds)
    assert control.is_supervised()
    clock.seconds += 2 * PATIENCE - 1
    assert control.is_supervised()
    clock.seconds += 1
    assert not control.is_supervised()
    lease.hold(wall=clock.wall(), monotonic=clock.seconds)
    assert control.is_supervised()
    lease.leave(wall=clock.wall())
    assert not control.is_supervised()
