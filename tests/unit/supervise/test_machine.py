"""What a supervisor does about a stream, decided from its record and what was seen: a pure function (DESIGN 11)."""

from __future__ import annotations

import pytest
from policy_samples import POLICY, SECOND, SETTINGS, holder

from penstock.errors import EXIT_FENCED, EXIT_PERSON
from penstock.supervise.commands import Command, CommandResult, Verb, fold
from penstock.supervise.machine import Action, Beat, Exit, Life, Seen, Step, not_launched, step
from penstock.supervise.stream import DriverSlot, Phase, StartOptions, Stream, Wish

HOUR = 3_600 * SECOND
T = 10 * HOUR
HANDLE = {"host": "h", "pid": 7, "start": "1"}
SLOT = DriverSlot(generation=5, at=T, handle=HANDLE)
RUNNING = Stream(
    wish=Wish.RUN, phase=Phase.RUNNING, first=5, generation=5, driver=SLOT, launches=1, version="new", healthy_since=T
)
ALIVE = Seen(life=Life.RUNS, beat=Beat(still_for=0))


def gone(**fields: object) -> Seen:
    """Return what is seen of a driver that ended."""
    return Seen(life=Life.GONE, exit=Exit(**fields))  # type: ignore[arg-type]


def like(stream: Stream, **changes: object) -> Stream:
    """Return the stream with changes."""
    return stream.model_copy(update=changes)


def at(stream: Stream, seen: Seen, now: int = T) -> Step:
    """Step once."""
    return step(stream, seen, SETTINGS, now, "h")


# --- a driver that lives ------------------------------------------------------------------------
def test_a_start_is_launched_with_the_generation_that_the_command_claimed() -> None:
    """The record is written first: SUBMITTING, with a place for the driver's handle."""
    asked, _ = fold(Stream(generation=4), Command(verb=Verb.START, id="a"), T)
    after = at(asked, Seen())
    assert (after.action, after.stream.generation, after.stream.phase) == (Action.LAUNCH, 5, Phase.SUBMITTING)
    assert after.stream.driver == DriverSlot(generation=5, at=T, host="h")


def test_a_launch_is_newer_than_the_log() -> None:
    """Also where the control root was lost, or a driver was started by hand: or else the log would refuse it."""
    asked, _ = fold(Stream(), Command(verb=Verb.START, id="a"), T)
    after = at(asked, Seen(holder=holder(generation=8)))
    assert (after.stream.generation, after.stream.first) == (9, 1)


@pytest.mark.parametrize(("generation", "outcome"), [(1, CommandResult.DONE), (5, CommandResult.STALE), (8, CommandResult.STALE),
                                                     (9, CommandResult.DONE), (10, CommandResult.STALE)])  # fmt: skip
def test_what_was_meant_for_drivers_before_the_record_stops_nothing(generation: int, outcome: CommandResult) -> None:
    """Generations that only the log has seen were of another stream; its own are what was claimed and what ran."""
    asked, _ = fold(Stream(), Command(verb=Verb.START, id="a"), T)
    launched = at(asked, Seen(holder=holder(generation=8))).stream
    assert fold(launched, Command(verb=Verb.STOP, id="b", generation=generation), T)[1] is outcome


def test_a_driver_that_has_done_nothing_yet_is_not_healthy() -> None:
    """It beats while its first batch computes; one that dies of that batch again and again is to be given up."""
    begins = Seen(life=Life.RUNS, beat=Beat(still_for=0, works=False))
    stream = like(RUNNING, phase=Phase.SUBMITTING, stable="old", failures=(T,), streak=1)
    for now in (T, T + POLICY.healthy_after + 1, T + 2 * POLICY.healthy_after):
        stream = at(stream, begins, now).stream
    assert (stream.phase, stream.stable, stream.streak) == (Phase.SUBMITTING, "old", 1)
    died = at(stream, gone(), T + 2 * POLICY.healthy_after).stream
    assert (len(died.failures), died.streak, died.phase) == (2, 2, Phase.BACKOFF)
    assert at(stream, ALIVE).stream.phase is Phase.RUNNING


def test_a_driver_that_waits_for_its_first_tick_runs_and_proves_nothing() -> None:
    """Its interval may be longer than `healthy_after`, and its first batch the end of it."""
    waits = Seen(life=Life.RUNS, beat=Beat(still_for=0, proved=False))
    stream = like(RUNNING, phase=Phase.SUBMITTING, stable="old", failures=(T,), streak=1)
    for now in (T, T + POLICY.healthy_after + 1, T + 2 * POLICY.healthy_after):
        stream = at(stream, waits, now).stream
    assert (stream.phase, stream.stable, stream.streak) == (Phase.RUNNING, "old", 1)
    after = at(stream, ALIVE, T + 2 * POLICY.healthy_after).stream
    assert (after.stable, after.streak, after.failures) == ("new", 0, ())


def test_a_sign_of_life_makes_it_run() -> None:
    """And a stream that drains is DRAINING."""
    submitted = like(RUNNING, phase=Phase.SUBMITTING)
    assert at(submitted, ALIVE).stream.phase is Phase.RUNNING
    assert at(like(submitted, wish=Wish.DRAIN), ALIVE).stream.phase is Phase.DRAINING


def test_a_driver_without_a_sign_of_life_is_killed_after_a_while() -> None:
    """Its process is there, and perhaps hangs."""
    submitted = like(RUNNING, phase=Phase.SUBMITTING)
    seen = Seen(life=Life.RUNS)
    assert at(submitted, seen) == Step(submitted)
    late = at(submitted, seen, T + POLICY.start_within + 1)
    assert (late.action, late.stream.phase) == (Action.KILL, Phase.UNHEALTHY)


def test_a_mark_that_stands_still_is_unhealthy_then_killed() -> None:
    """Once it moves again all is well."""
    stalled = Seen(life=Life.RUNS, beat=Beat(still_for=POLICY.deadline + 1))
    first = at(RUNNING, stalled)
    assert (first.stream.phase, first.action) == (Phase.UNHEALTHY, Action.NOTHING)
    longer = Seen(life=Life.RUNS, beat=Beat(still_for=2 * POLICY.deadline + 1))
    assert at(first.stream, longer).action is Action.KILL
    assert at(first.stream, ALIVE).stream.phase is Phase.RUNNING


def test_why_a_driver_was_killed_stays_the_reason() -> None:
    """Who reads of a killed driver learns what the supervisor killed it for; a driver that told why has told more."""
    hung = at(like(RUNNING, phase=Phase.SUBMITTING), Seen(life=Life.RUNS), T + POLICY.start_within + 1).stream
    killed = at(hung, gone(), T + POLICY.start_within + 2).stream
    told = "the driver was killed, or ended without saying why; before it, no sign of life since it was started"
    assert (killed.phase, killed.reason) == (Phase.BACKOFF, told)
    assert at(hung, gone(code=70, error="PEN-000 x")).stream.reason == "the driver ended with 70: PEN-000 x"
    assert at(RUNNING, gone()).stream.reason == "the driver was killed, or ended without saying why"


def test_a_stream_whose_next_driver_starts_says_so_and_why() -> None:
    """Whoever reads SUBMITTING beside the reason of a BACKOFF or a PAUSED cannot tell that a driver starts."""
    why = "the driver was killed, or ended without saying why"
    failed = like(RUNNING, phase=Phase.BACKOFF, reason=why, driver=None)
    assert at(failed, Seen()).stream.reason == f"the next driver starts, after this: {why}"
    asked = like(failed, phase=Phase.SUBMITTING, reason="asked for by restart", launches=0)
    assert at(asked, Seen()).stream.reason == "asked for by restart"
    again = at(at(at(failed, Seen()).stream, gone()).stream, Seen(), 2 * T).stream
    assert again.reason == f"the next driver starts, after this: {why}"


def test_a_healthy_period_forgets_failures_and_makes_the_version_stable() -> None:
    """Not a moment before."""
    troubled = like(RUNNING, failures=(T - 5,), streak=2)
    assert at(troubled, ALIVE, T + POLICY.healthy_after).stream == troubled
    after = at(troubled, ALIVE, T + POLICY.healthy_after + 1).stream
    assert (after.failures, after.streak, after.stable) == ((), 0, "new")


@pytest.mark.parametrize("wish", [Wish.STOP, Wish.SUSPEND])
def test_a_driver_that_does_not_stop_in_time_is_killed(wish: Wish) -> None:
    """It hears of the stop by itself, from the record."""
    stopping = like(RUNNING, wish=wish, asked_at=T)
    assert at(stopping, ALIVE, T + POLICY.stop_within).action is Action.NOTHING
    assert at(stopping, ALIVE, T + POLICY.stop_within + 1).action is Action.KILL


def test_an_older_generation_makes_room_first() -> None:
    """Two drivers of one stream are never started side by side."""
    restarted, _ = fold(RUNNING, Command(verb=Verb.RESTART, id="r"), T)
    assert at(restarted, ALIVE).action is Action.NOTHING
    ended = at(restarted, gone(code=0)).stream
    assert (ended.driver, ended.failures, ended.phase) == (None, (), Phase.SUBMITTING)
    launched = at(ended, Seen(holder=holder(generation=5)))
    assert (launched.action, launched.stream.generation) == (Action.LAUNCH, 6)


def test_what_cannot_be_told_is_no_end() -> None:
    """A launcher that does not answer changes nothing."""
    assert at(RUNNING, Seen(life=Life.UNKNOWN)) == at(RUNNING, Seen(life=Life.RUNS))


# --- a driver that ended ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wish", "exit_", "phase"),
    [
        (Wish.RUN, {"code": 0, "finished": True}, Phase.FINISHED),
        (Wish.DRAIN, {"code": 0, "finished": True}, Phase.FINISHED),
        (Wish.STOP, {"code": 0}, Phase.STOPPED),
        (Wish.STOP, {}, Phase.STOPPED),
        (Wish.SUSPEND, {"code": 0}, Phase.SUSPENDED),
        (Wish.RUN, {"code": EXIT_PERSON, "error": "PEN-CNF-001 x"}, Phase.FAILED),
        (Wish.RUN, {"code": 75, "error": "PEN-CKP-009 x", "storage": True}, Phase.PAUSED),
        (Wish.RUN, {"code": 75, "error": "PEN-OPR-002 x"}, Phase.BACKOFF),
        (Wish.RUN, {"code": 70}, Phase.BACKOFF),
        (Wish.RUN, {}, Phase.BACKOFF),
        (Wish.RUN, {"code": 0}, Phase.BACKOFF),
    ],
)
def test_an_end_leads_to(wish: Wish, exit_: dict[str, object], phase: Phase) -> None:
    """DESIGN 11: the exit code says whether a retry may help."""
    after = at(like(RUNNING, wish=wish), gone(**exit_))
    assert (after.stream.phase, after.stream.driver, after.action) == (phase, None, Action.NOTHING)


def test_pauses_double_up_to_the_longest() -> None:
    """The first is the shortest; a new driver starts when it is over, with a generation of its own."""
    stream, spans = RUNNING, []
    budget = SETTINGS.supervise.model_copy(update={"failures_per_hour": 99})
    forgiving = SETTINGS.model_copy(update={"supervise": budget})
    for _ in range(7):
        down = step(like(stream, driver=SLOT), gone(), forgiving, T, "h").stream
        assert down.until is not None
        spans.append((down.until - T) // SECOND)
        stream = down
    assert spans == [2, 4, 8, 16, 32, 60, 60]
    assert at(stream, Seen(), T + 59 * SECOND).action is Action.NOTHING
    up = at(stream, Seen(holder=holder(generation=5)), T + 60 * SECOND)
    assert (up.action, up.stream.generation, up.stream.restarts) == (Action.LAUNCH, 6, 1)


def test_a_pause_from_before_the_clock_went_back_is_over() -> None:
    """F45: nobody waits for a time that lies a year ahead."""
    waiting = like(RUNNING, driver=None, phase=Phase.BACKOFF, until=T + POLICY.backoff_max + 1)
    assert at(waiting, Seen()).action is Action.LAUNCH


def test_the_budget_is_an_hours_and_then_it_is_given_up() -> None:
    """Failures of more than an hour ago do not count."""
    stream = like(RUNNING, failures=(T - HOUR - 1, T - 3, T - 2))
    third = at(stream, gone())
    assert (third.stream.phase, third.stream.failures) == (Phase.BACKOFF, (T - 3, T - 2, T))
    fourth = at(like(third.stream, driver=SLOT), gone(code=70), T + 1).stream
    assert fourth.phase is Phase.FAILED
    assert "4 failures within an hour" in (fourth.reason or "")
    assert at(fourth, Seen(), T + HOUR).action is Action.NOTHING


def test_storage_that_is_away_spends_no_budget() -> None:
    """PAUSED, however often."""
    stream = RUNNING
    for _ in range(20):
        stream = at(like(stream, driver=SLOT), gone(code=75, storage=True)).stream
    assert (stream.phase, stream.failures) == (Phase.PAUSED, ())


def test_a_new_version_that_fails_is_rolled_back_to_the_stable_one() -> None:
    """And no further: the stable one that fails too is for a person, who is told of the restore."""
    stream = like(RUNNING, stable="old")
    back = at(stream, gone(code=EXIT_PERSON, error="PEN-JOB-005 x")).stream
    assert (back.phase, back.version, back.rolled_back) == (Phase.BACKOFF, "old", "new")
    up = at(back, Seen(holder=holder(generation=5)), T)
    assert (up.action, up.stream.version) == (Action.LAUNCH, "old")
    again = at(like(up.stream, driver=SLOT), gone(code=EXIT_PERSON, error="PEN-CKP-016 y. Mend it.")).stream
    assert again.phase is Phase.FAILED
    assert "PEN-CKP-016 y. Mend it. Version new ran before it" in (again.reason or "")
    assert "restart --from batch=N" in (again.reason or "")


def test_an_error_that_both_versions_end_with_is_not_blamed_on_the_code() -> None:
    """DESIGN 11: a damaged table stays damaged under older code, which a person need not put back then."""
    ended = gone(code=EXIT_PERSON, error="PEN-SNK-021 x. Restore the file.")
    back = at(like(RUNNING, stable="old"), ended).stream
    up = at(back, Seen(holder=holder(generation=5)), T).stream
    failed = at(like(up, driver=SLOT), ended).stream
    assert (failed.phase, failed.rolled_back) == (Phase.FAILED, "new")
    words = "PEN-SNK-021 x. Restore the file. Version new ended so too, so the code is not the cause"
    assert (failed.reason or "").endswith(words)
    once = at(like(up, driver=SLOT), gone(code=75, error="PEN-OPR-002 y")).stream
    other = at(like(once, driver=SLOT), gone(code=EXIT_PERSON, error="PEN-OPR-002 y")).stream
    assert "Version new ran before it" in (other.reason or ""), "the older version alone ended so"


def test_an_older_version_is_not_asked_for_what_only_the_new_one_can_do() -> None:
    """It has the steps and the partitions of before; what tables are to show does not depend on the code."""
    asked = StartOptions(partitions=16, state={"a": "t"}, truncate_sinks=True, drop=("old",))
    stream = like(RUNNING, stable="old", start="batch=1", options=asked)
    back = at(stream, gone(code=EXIT_PERSON, error="PEN-JOB-005 x")).stream
    assert (back.start, back.options) == ("batch=1", StartOptions(state={"a": "t"}, truncate_sinks=True))
    plain = like(stream, options=StartOptions(partitions=16, drop=("old",)))
    assert at(plain, gone(code=EXIT_PERSON, error="PEN-JOB-005 x")).stream.options is None
    assert at(stream, gone(code=1, error="x")).stream.options == asked, "the same version, again"


def test_an_older_version_does_not_begin_anew_what_a_start_has_dropped() -> None:
    """1.2: it has the source again, and would read it from its beginning: each row of it twice in the tables."""
    stream = like(RUNNING, stable="old", options=StartOptions(drop=("more",)), entered=5, launches=2)
    ended = Exit(code=EXIT_PERSON, error="PEN-JOB-005 x.")
    failed = at(stream, Seen(life=Life.GONE, exit=ended, holder=holder(generation=5))).stream
    assert (failed.phase, failed.version, failed.rolled_back) == (Phase.FAILED, "new", None)
    assert "PEN-JOB-005 x. Version old does not run again, because more may be dropped already" in (failed.reason or "")
    assert not_launched(stream, ended, SETTINGS, T).phase is Phase.FAILED
    for changes, had in (({}, 4), ({"options": None}, 5), ({"options": StartOptions(state={"a": "t"})}, 5)):
        begun = like(stream, **changes)
        back = at(begun, Seen(life=Life.GONE, exit=ended, holder=holder(generation=had))).stream
        assert back.rolled_back == "new", "nothing can be dropped yet"
    assert not_launched(like(stream, launches=1), ended, SETTINGS, T).rolled_back == "new"


def test_a_gate_that_stopped_a_job_rolls_nothing_back() -> None:
    """The rows would be judged by an older suite, and perhaps published."""
    stream = like(RUNNING, stable="old")
    assert at(stream, gone(code=EXIT_PERSON, error="PEN-QLT-003", judged=True)).stream.phase is Phase.FAILED


@pytest.mark.parametrize("options", [StartOptions(partitions=4), StartOptions(drop=("old",), truncate_sinks=True)])
def test_a_start_whose_options_the_state_refuses_is_not_done_without_them(options: StartOptions) -> None:
    """10.1: an older version would restore, and truncate sinks, without what was asked; without options it fits."""
    asked = like(RUNNING, stable="old", start="batch=1", options=options)
    refused = gone(code=EXIT_PERSON, error="PEN-CKP-015 x", unfit=True)
    failed = at(asked, refused).stream
    assert (failed.phase, failed.version, failed.options) == (Phase.FAILED, "new", options)
    assert "PEN-CKP-015 x" in (failed.reason or "")
    for plain in (None, StartOptions(truncate_sinks=True)):
        assert at(like(asked, options=plain), refused).stream.rolled_back == "new"


def test_a_fenced_driver_is_not_restarted_while_the_holder_lives() -> None:
    """The supervisor attaches to the holder, and takes over when it is gone; no failure is counted."""
    other = holder(handle={"host": "h", "pid": 9, "start": "2"}, generation=7)
    seen = Seen(life=Life.GONE, exit=Exit(code=EXIT_FENCED), holder=other)
    attached = at(RUNNING, seen).stream
    assert attached.driver == DriverSlot(generation=7, at=T, handle=other.handle, foreign=True)
    assert attached.phase is Phase.RUNNING
    later = at(attached, Seen(life=Life.RUNS, beat=Beat(still_for=0)), T + HOUR)
    assert later.action is Action.NOTHING
    free = at(attached, Seen(life=Life.GONE)).stream
    assert free.failures == ()
    launched = at(free, Seen(holder=holder(generation=7)))
    assert (launched.action, launched.stream.generation) == (Action.LAUNCH, 8)


FOREIGN = like(RUNNING, driver=SLOT.model_copy(update={"foreign": True}))


@pytest.mark.parametrize(
    ("stream", "seen", "phase"),
    [
        (like(FOREIGN, wish=Wish.STOP, asked_at=0), ALIVE, Phase.RUNNING),
        (like(FOREIGN, first=6, asked_at=0), ALIVE, Phase.RUNNING),
        (FOREIGN, Seen(life=Life.RUNS), Phase.UNHEALTHY),
        (FOREIGN, Seen(life=Life.RUNS, beat=Beat(still_for=HOUR)), Phase.UNHEALTHY),
    ],
    ids=["it does not stop", "it makes no room", "no sign of life", "it stands still"],
)
def test_a_driver_that_no_supervisor_started_is_never_killed(stream: Stream, seen: Seen, phase: Phase) -> None:
    """It hears of a stop like any other, and may be somebody's terminal."""
    done = at(stream, seen, T + HOUR)
    assert (done.action, done.stream.phase) == (Action.NOTHING, phase)
    ours = at(like(stream, driver=SLOT), seen, T + HOUR)
    assert ours.action is Action.KILL


def test_a_holder_on_another_machine_is_there_until_it_has_had_time_for_a_sign_of_life() -> None:
    """Its process cannot be looked at from here, so its signs of life are all there is."""
    cannot_tell = Seen(life=Life.UNKNOWN)
    assert at(FOREIGN, cannot_tell, T + POLICY.start_within).stream == FOREIGN
    lost = at(FOREIGN, cannot_tell, T + POLICY.start_within + 1).stream
    assert (lost.phase, lost.driver, lost.failures) == (Phase.SUBMITTING, None, ())
    lives = Seen(life=Life.UNKNOWN, beat=Beat(still_for=POLICY.deadline))
    assert at(FOREIGN, lives, T + HOUR).stream.driver == FOREIGN.driver
    still = Seen(life=Life.UNKNOWN, beat=Beat(still_for=POLICY.deadline + 1))
    assert at(FOREIGN, still).stream.driver is None


@pytest.mark.parametrize("wish", [Wish.RUN, Wish.STOP])
@pytest.mark.parametrize(
    ("quiet", "lost"),
    [
        ({"silent_for": POLICY.silent}, False),
        ({"silent_for": POLICY.silent + 1}, True),
        ({"still_for": POLICY.deadline}, False),
        ({"still_for": POLICY.deadline + 1}, True),
    ],
    ids=["silent", "silent for too long", "still", "still for too long"],
)
def test_a_driver_on_a_machine_that_went_down_is_replaced(quiet: dict[str, int], wish: Wish, *, lost: bool) -> None:
    """Its process can be neither seen nor killed from here; a newer generation fences it, should it wake up."""
    seen = Seen(life=Life.UNKNOWN, beat=Beat(**{"still_for": 0, **quiet}))
    after = at(like(RUNNING, wish=wish, asked_at=T), seen).stream
    assert (after.driver is None) is lost
    if lost:
        assert after.phase is (Phase.BACKOFF if wish is Wish.RUN else Phase.STOPPED)
    if lost and wish is Wish.RUN:
        assert after.reason == "the driver is gone: it gives no sign of life, and its machine cannot be looked at"
        assert after.failures == (T,)


def test_a_driver_on_a_machine_that_went_down_at_once_is_replaced() -> None:
    """It was launched and noted, and never gave a sign of life."""
    submitted = like(RUNNING, phase=Phase.SUBMITTING)
    cannot_tell = Seen(life=Life.UNKNOWN)
    assert at(submitted, cannot_tell, T + POLICY.start_within).stream == submitted
    after = at(submitted, cannot_tell, T + POLICY.start_within + 1).stream
    assert (after.phase, after.driver) == (Phase.BACKOFF, None)


def test_a_driver_in_sight_that_is_silent_is_shown_within_20_seconds_and_not_killed_for_it() -> None:
    """Its process runs, so it may be stopped by a signal, or hang: who looks is told, and a beat makes it well again."""
    quiet = Seen(life=Life.RUNS, beat=Beat(still_for=0, silent_for=16 * SECOND))
    shown = at(RUNNING, quiet)
    assert (shown.stream.phase, shown.action) == (Phase.UNHEALTHY, Action.NOTHING)
    assert "no sign of life" in (shown.stream.reason or "")
    assert at(RUNNING, Seen(life=Life.RUNS, beat=Beat(still_for=0, silent_for=8 * SECOND))) == Step(RUNNING)
    assert at(shown.stream, ALIVE).stream.phase is Phase.RUNNING
    starting = Seen(life=Life.RUNS, beat=Beat(still_for=0, works=False))
    assert at(shown.stream, starting).stream.phase is Phase.SUBMITTING


RIVAL = {"host": "h", "pid": 99, "start": "3"}
TAKEN = {"holder": holder(handle=RIVAL, generation=5), "rival": RIVAL}


def test_a_take_over_by_hand_is_not_fought() -> None:
    """The driver that lost its log ends by itself; the one that a person started is watched, and never killed."""
    late = T + 2 * POLICY.start_within
    lost = at(RUNNING, Seen(life=Life.RUNS, **TAKEN), late)
    assert (lost.stream.phase, lost.stream.driver, lost.action) == (Phase.RUNNING, SLOT, Action.NOTHING)
    assert "no supervisor started" in (lost.stream.reason or "")
    for ended in (Exit(code=EXIT_FENCED), Exit(), Exit(code=70, error="PEN-000")):
        watched = at(lost.stream, Seen(life=Life.GONE, exit=ended, **TAKEN), late).stream
        assert watched.driver == DriverSlot(generation=5, at=late, handle=RIVAL, foreign=True)
        assert (watched.phase, watched.failures) == (Phase.RUNNING, ())


def test_a_driver_that_a_person_started_during_a_pause_is_not_fought() -> None:
    """The pause is over, and the log is held by one that lives: nothing is launched until it is gone."""
    paused = like(RUNNING, phase=Phase.BACKOFF, driver=None, until=T)
    step = at(paused, Seen(**TAKEN), T + SECOND)
    assert (step.action, step.stream.generation) == (Action.NOTHING, 5)
    assert step.stream.driver == DriverSlot(generation=5, at=T + SECOND, handle=RIVAL, foreign=True)
    assert at(paused, Seen(holder=holder(handle=RIVAL, generation=5)), T + SECOND).action is Action.LAUNCH


def like_slot(**changes: object) -> DriverSlot:
    """Return the slot with changes."""
    return SLOT.model_copy(update=changes)


def test_a_launch_that_nobody_wrote_down_is_found_or_given_up() -> None:
    """The supervisor was killed between the claim and the note: F10."""
    unknown = like(RUNNING, phase=Phase.SUBMITTING, driver=like_slot(handle=None))
    stream = at(unknown, Seen(life=Life.RUNS, handle=HANDLE)).stream
    assert stream.driver == SLOT
    assert at(unknown, Seen(life=Life.UNKNOWN)).stream == unknown
    lost = at(unknown, Seen(life=Life.UNKNOWN), T + POLICY.start_within + 1).stream
    assert (lost.phase, lost.driver) == (Phase.BACKOFF, None)
