"""What a command makes of a stream's record, whatever the stream is at (DESIGN 11). Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CommandRefused
from penstock.rates.limits import Limits
from penstock.supervise.commands import Command, CommandResult, Verb, fold, generation_of
from penstock.supervise.stream import DriverSlot, Phase, StartOptions, Stream, Wish

NOW = 1_000_000_000
RUNNING = Stream(
    wish=Wish.RUN,
    phase=Phase.RUNNING,
    first=3,
    generation=5,
    launches=3,
    driver=DriverSlot(generation=5, at=1),
    version="v1",
    stable="v1",
    failures=(7,),
    streak=1,
    limits=Limits(rows=9),
)
OVER = {phase: Stream(wish=Wish.RUN, phase=phase, first=3, generation=5, version="v1") for phase in Phase}
OVER[Phase.SUSPENDED] = OVER[Phase.SUSPENDED].model_copy(update={"wish": Wish.SUSPEND, "limits": Limits(rows=4)})
OVER[Phase.STOPPED] = OVER[Phase.STOPPED].model_copy(update={"wish": Wish.STOP})
FINAL = [phase for phase in Phase if phase.is_final]
verbs = st.sampled_from(list(Verb))


def ask(verb: Verb, name: str = "a", generation: int | None = None, start: str = "last") -> Command:
    """Return a command."""
    return Command(verb=verb, id=name, generation=generation, start=start)


@pytest.mark.parametrize("phase", FINAL)
def test_a_start_begins_a_generation_of_its_own(phase: Phase) -> None:
    """The generation is claimed with the command; the code is the newest, and old failures are forgotten."""
    after, outcome = fold(OVER[phase], ask(Verb.START), NOW)
    assert outcome is CommandResult.DONE
    assert (after.wish, after.phase, after.first, after.generation) == (Wish.RUN, Phase.SUBMITTING, 6, 6)
    assert (after.version, after.failures, after.streak, after.launches, after.command) == (None, (), 0, 0, "a")


def test_a_start_of_what_runs_finds_it() -> None:
    """Attach before submit: nothing is begun, and the id is answered with the generation that runs."""
    after, outcome = fold(RUNNING, ask(Verb.START), NOW)
    assert outcome is CommandResult.ALREADY
    assert generation_of(after, "a") == 5
    assert after.model_copy(update={"answered": ()}) == RUNNING


def test_a_start_of_what_runs_sets_limits_and_note() -> None:
    """A form that says both is not passed over in silence; the driver goes on, under its generation."""
    asked = Command(verb=Verb.START, id="b", limits=Limits(rows=7), note="slower")
    after, outcome = fold(RUNNING, asked, NOW)
    assert (outcome, after.limits, after.note) == (CommandResult.DONE, Limits(rows=7), "slower")
    kept = after.having(limits=RUNNING.limits, note=RUNNING.note, answered=RUNNING.answered)
    assert kept == RUNNING
    assert fold(after, Command(verb=Verb.START, id="c", limits=Limits(rows=7)), NOW)[1] is CommandResult.ALREADY


def test_a_start_from_elsewhere_is_refused_where_a_stream_runs() -> None:
    """It would begin anew in silence."""
    with pytest.raises(CommandRefused, match="use restart"):
        fold(RUNNING, ask(Verb.START, start="batch=2"), NOW)


def test_a_restart_begins_anew_while_the_old_driver_is_there() -> None:
    """The old one is named in the record until it is gone."""
    after, outcome = fold(RUNNING, ask(Verb.RESTART, start="batch=2"), NOW)
    assert (outcome, after.first, after.generation, after.start) == (CommandResult.DONE, 6, 6, "batch=2")
    assert after.driver == RUNNING.driver


@pytest.mark.parametrize(
    ("verb", "wish"), [(Verb.STOP, Wish.STOP), (Verb.SUSPEND, Wish.SUSPEND), (Verb.DRAIN, Wish.DRAIN)]
)
def test_an_end_is_a_wish_and_the_driver_stays_until_it_is_gone(verb: Verb, wish: Wish) -> None:
    """The generation is the same: it is the same stream that ends."""
    after, outcome = fold(RUNNING, ask(verb), NOW)
    assert (outcome, after.wish, after.asked_at) == (CommandResult.DONE, wish, NOW)
    assert (after.generation, after.first, after.driver) == (5, 3, RUNNING.driver)


def test_what_failed_is_acknowledged_by_a_stop() -> None:
    """A finished stream stays finished."""
    assert fold(OVER[Phase.FAILED], ask(Verb.STOP), NOW)[0].phase is Phase.STOPPED
    assert fold(OVER[Phase.FINISHED], ask(Verb.STOP), NOW)[1] is CommandResult.ALREADY


def test_a_resume_goes_on_with_the_limits_and_the_code_of_before() -> None:
    """That is what sets suspend apart from stop."""
    after, outcome = fold(OVER[Phase.SUSPENDED], ask(Verb.RESUME), NOW)
    assert (outcome, after.limits, after.version, after.generation) == (CommandResult.DONE, Limits(rows=4), "v1", 6)


def test_what_becomes_of_state_and_sinks_is_kept_for_every_driver_of_the_stream() -> None:
    """Also of a resume, whose driver asks the log for the command that restored; the next start says its own."""
    options = StartOptions(partitions=16, drop=("old",))
    with pytest.raises(CommandRefused, match="--partitions 16 --drop old needs a new start: use restart"):
        fold(RUNNING, Command(verb=Verb.START, id="a", options=options), NOW)
    begun, _ = fold(RUNNING, Command(verb=Verb.RESTART, id="back", options=options), NOW)
    assert (begun.start, begun.options, begun.command) == ("last", options, "back")
    suspended, _ = fold(begun, ask(Verb.SUSPEND), NOW + 1)
    resumed, _ = fold(suspended.having(phase=Phase.SUSPENDED), Command(verb=Verb.RESUME, id="go"), NOW + 2)
    assert (resumed.options, resumed.command) == (options, "back")
    assert fold(resumed, ask(Verb.RESTART, "anew"), NOW + 3)[0].options is None


@pytest.mark.parametrize(
    ("start", "options", "why"),
    [
        ("last", StartOptions(truncate_sinks=True), "say with --from what sinks are to show again"),
        ("empty", StartOptions(partitions=2), "begins with no state"),
        ("empty", StartOptions(state={"a": "t"}), "begins with no state"),
    ],
)
def test_options_that_a_start_does_not_take_change_nothing(start: str, options: StartOptions, why: str) -> None:
    """The driver that runs would be ended for one that must fail."""
    with pytest.raises(ValueError, match=why):
        fold(RUNNING, Command(verb=Verb.RESTART, id="a", start=start, options=options), NOW)


@pytest.mark.parametrize("launches", [0, 1, 3])
def test_a_resume_does_the_restore_that_nobody_has_done_yet(launches: int) -> None:
    """A driver that was launched for it may have died before; where it was done, the log tells by the command's id."""
    back, _ = fold(RUNNING, Command(verb=Verb.RESTART, id="back", start="batch=2"), NOW)
    suspended, _ = fold(back.having(launches=launches), ask(Verb.SUSPEND), NOW + 1)
    after, _ = fold(suspended.having(phase=Phase.SUSPENDED), Command(verb=Verb.RESUME, id="go"), NOW + 2)
    assert (after.start, after.command, after.generation) == ("batch=2", "back", 7)
    once_more, _ = fold(
        after.having(phase=Phase.SUSPENDED, wish=Wish.SUSPEND), Command(verb=Verb.RESUME, id="on"), NOW + 3
    )
    assert (once_more.start, once_more.command, once_more.generation) == ("batch=2", "back", 8)


def test_a_stream_that_is_drained_or_ends_otherwise_is_not_taken_for_the_one_that_is_asked_for() -> None:
    """Who waits for it would wait for ever, or see the end of another for its own."""
    drained = RUNNING.having(wish=Wish.DRAIN)
    with pytest.raises(CommandRefused, match="ends when it is drained"):
        fold(drained, ask(Verb.START), NOW)
    with pytest.raises(CommandRefused, match="runs on, unlike what is asked for"):
        fold(RUNNING, Command(verb=Verb.START, id="s", available_now=True), NOW)
    with pytest.raises(CommandRefused, match="ends when what was there is done"):
        fold(RUNNING.having(available_now=True), ask(Verb.START), NOW)


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.FAILED, Phase.FINISHED])
@pytest.mark.parametrize("verb", [Verb.RESUME, Verb.SUSPEND])
def test_only_what_was_suspended_is_resumed_and_only_what_runs_is_suspended(verb: Verb, phase: Phase) -> None:
    """The message names the phase."""
    with pytest.raises(CommandRefused, match=phase.value):
        fold(OVER[phase], ask(verb), NOW)


def test_a_stopped_stream_is_drained_by_starting_it() -> None:
    """SEMANTICS 10.6: what is there is done, then the windows close."""
    after, _ = fold(OVER[Phase.STOPPED], ask(Verb.DRAIN), NOW)
    assert (after.wish, after.phase, after.generation) == (Wish.DRAIN, Phase.SUBMITTING, 6)


def test_limits_change_nothing_else() -> None:
    """They hold for a stream that runs and for the next one."""
    command = Command(verb=Verb.LIMITS, id="a", limits=Limits(rows=100))
    after, outcome = fold(RUNNING, command, NOW)
    assert (outcome, after.limits) == (CommandResult.DONE, Limits(rows=100))
    assert after.model_copy(update={"limits": RUNNING.limits, "answered": ()}) == RUNNING


@given(verbs, st.integers(0, 2))
def test_a_generation_that_is_over_commands_nothing(verb: Verb, generation: int) -> None:
    """DESIGN 11: a stale attempt can never stop a newer generation."""
    assert fold(RUNNING, ask(verb, generation=generation), NOW) == (RUNNING, CommandResult.STALE)


@pytest.mark.parametrize("generation", [3, 4, 5])
def test_a_generation_of_the_same_stream_is_not_stale(generation: int) -> None:
    """The supervisor's own restarts have later generations than the command that began the stream."""
    assert fold(RUNNING, ask(Verb.STOP, generation=generation), NOW)[1] is CommandResult.DONE


@given(verbs, st.lists(verbs, max_size=6), st.sampled_from([RUNNING, *OVER.values()]))
def test_an_id_is_answered_once(verb: Verb, others: list[Verb], stream: Stream) -> None:
    """A retry of a command changes nothing, also after other commands: it restores nothing twice."""
    try:
        after, _ = fold(stream, ask(verb), NOW)
    except CommandRefused:
        return
    for index, other in enumerate(others):
        try:
            after, _ = fold(after, ask(other, f"b{index}"), NOW + index)
        except CommandRefused:
            continue
    assert fold(after, ask(verb), NOW + 99) == (after, CommandResult.ALREADY)


@given(st.lists(verbs, max_size=12), st.sampled_from([RUNNING, *OVER.values()]))
def test_generations_only_grow(given_verbs: list[Verb], stream: Stream) -> None:
    """No start is ever confused with an earlier one."""
    for index, verb in enumerate(given_verbs):
        try:
            after, _ = fold(stream, ask(verb, f"c{index}"), NOW + index)
        except CommandRefused:
            continue
        assert after.generation >= stream.generation
        assert after.first <= after.generation
        assert (after.first == stream.first) or (after.first == after.generation > stream.generation)
        stream = after


def test_a_start_that_is_none_is_refused() -> None:
    """Whatever a form or a command line said."""
    with pytest.raises(ValueError, match="none of last"):
        fold(RUNNING, ask(Verb.RESTART, start="batch=../x"), NOW)


@pytest.mark.parametrize("phase", FINAL)
def test_an_answered_id_that_revives_counts_again_where_the_stream_failed(phase: Phase) -> None:
    """The cleared task of a stream that was given up starts it; of one that somebody ended, or that finished, it does not."""
    begun, _ = fold(Stream(generation=5), Command(verb=Verb.START, id="a", revives=True), NOW)
    ended = begun.having(phase=phase)
    after, outcome = fold(ended, Command(verb=Verb.START, id="a", revives=True), NOW + 1)
    if phase is Phase.FAILED:
        assert (outcome, after.first, after.phase, after.command) == (CommandResult.DONE, 7, Phase.SUBMITTING, "a")
        assert generation_of(after, "a") == 7
    else:
        assert (outcome, after) == (CommandResult.ALREADY, ended)


def test_a_restart_of_one_generation_that_failed_is_begun_again_by_its_own_task_only() -> None:
    """What it meant is over by what it has begun itself; of what another began since it stays stale."""
    mine = Command(verb=Verb.RESTART, id="r", generation=5, revives=True)
    begun, _ = fold(RUNNING, mine, NOW)
    after, outcome = fold(begun.having(phase=Phase.FAILED), mine, NOW + 1)
    assert (outcome, after.phase, after.first) == (CommandResult.DONE, Phase.SUBMITTING, 7)
    other, _ = fold(begun, ask(Verb.RESTART), NOW + 1)
    failed = other.having(phase=Phase.FAILED)
    assert fold(failed, mine, NOW + 2) == (failed, CommandResult.STALE)


@pytest.mark.parametrize("verb", [Verb.RESTART, Verb.STOP, Verb.DRAIN, Verb.SUSPEND])
def test_what_was_meant_before_the_stream_began_ends_it_not(verb: Verb) -> None:
    """Unless both are of one run of a DAG: its tasks follow each other."""
    begun, _ = fold(RUNNING, Command(verb=Verb.RESTART, id="dag/run-2/restart"), NOW)
    late = Command(verb=verb, id="dag/run-1/t", meant_at=NOW - 1)
    assert fold(begun, late, NOW + 5) == (begun, CommandResult.STALE)
    for meant in (
        Command(verb=verb, id="dag/run-2/t", meant_at=NOW - 1),
        replace(late, meant_at=NOW),
        replace(late, meant_at=None),
    ):
        assert fold(begun, meant, NOW + 5)[1] is CommandResult.DONE
    drained, _ = fold(begun, Command(verb=Verb.DRAIN, id="dag/run-1/drain"), NOW + 1)
    if verb is not Verb.DRAIN:  # the newest wish is of its own run, whoever began the stream
        assert fold(drained, late, NOW + 5)[1] is CommandResult.DONE
    if verb is Verb.RESTART:  # and what is over cannot be ended
        assert fold(begun.having(phase=Phase.FAILED), late, NOW + 5)[1] is CommandResult.DONE


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.SUSPEND, Verb.DRAIN])
def test_what_was_meant_before_somebody_ended_the_stream_begins_it_not(verb: Verb) -> None:
    """Though the stream has come to its end meanwhile: the newest request holds, as between two restarts."""
    ended, _ = fold(RUNNING, Command(verb=verb, id="dag/run-2/t"), NOW)
    phases = {Verb.STOP: Phase.STOPPED, Verb.SUSPEND: Phase.SUSPENDED, Verb.DRAIN: Phase.FINISHED}
    for stream in (ended, ended.having(phase=phases[verb], driver=None)):
        for late in (Verb.RESTART, Verb.DRAIN):
            command = Command(verb=late, id="dag/run-1/t", meant_at=NOW - 1)
            assert fold(stream, command, NOW + 5) == (stream, CommandResult.STALE)
        again = Command(verb=Verb.RESTART, id="dag/run-1/t", meant_at=NOW)
        assert fold(stream, again, NOW + 5)[1] is CommandResult.DONE


@pytest.mark.parametrize("generation", [None, 3])
@pytest.mark.parametrize("verb", [Verb.STOP, Verb.SUSPEND, Verb.DRAIN])
def test_a_restart_that_was_checked_follows_the_request_that_its_check_began_after(
    verb: Verb, generation: int | None
) -> None:
    """Whatever the clock of the machine says that asked meanwhile, and also for the one generation that is meant."""
    command = Command(verb=Verb.RESTART, id="mine", generation=generation, follows=RUNNING.request)
    assert fold(RUNNING, command, NOW)[1] is CommandResult.DONE
    for at in (NOW, RUNNING.asked_at, RUNNING.asked_at - 60_000_000):
        ended, _ = fold(RUNNING, Command(verb=verb, id="theirs"), at)
        assert fold(ended, command, NOW) == (ended, CommandResult.STALE)
    limited, _ = fold(RUNNING, Command(verb=Verb.LIMITS, id="theirs", limits=Limits(rows=3)), NOW)
    assert fold(limited, command, NOW)[1] is CommandResult.DONE
    assert fold(RUNNING.having(phase=Phase.FAILED), command, NOW)[1] is CommandResult.DONE


@pytest.mark.parametrize("start", ["last", "batch=2"])
def test_who_resumed_a_stream_is_whose_request_it_was(start: str) -> None:
    """Not who began it, under whose id its restore is done."""
    begun, _ = fold(RUNNING, ask(Verb.RESTART, "a", start=start), NOW)
    suspended, _ = fold(begun, ask(Verb.SUSPEND, "b"), NOW + 1)
    resumed, _ = fold(suspended.having(phase=Phase.SUSPENDED, driver=None), ask(Verb.RESUME, "c"), NOW + 2)
    assert resumed.newest_request == "c has started generation 7"


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.SUSPEND, Verb.DRAIN, Verb.RESTART])
def test_what_ends_a_stream_forgets_which_restarts_are_checked(verb: Verb) -> None:
    """They do nothing from then on; a note that somebody left who was killed goes with them."""
    noted = RUNNING.having(checks={"c": 7})
    assert fold(noted, ask(verb), NOW)[0].checks == {}
    assert fold(noted, Command(verb=Verb.LIMITS, id="l", limits=Limits(rows=3)), NOW)[0].checks == {"c": 7}


def test_an_answered_id_that_does_not_revive_counts_once() -> None:
    """Also where the stream failed since."""
    begun, _ = fold(Stream(generation=5), ask(Verb.START), NOW)
    failed = begun.having(phase=Phase.FAILED)
    assert fold(failed, ask(Verb.START), NOW + 1) == (failed, CommandResult.ALREADY)


def test_a_revived_restart_of_a_running_stream_is_answered() -> None:
    """Clearing the task of a stream that goes well does not restore it again."""
    begun, _ = fold(RUNNING, Command(verb=Verb.RESTART, id="r", start="batch=2", revives=True), NOW)
    again = Command(verb=Verb.RESTART, id="r", start="batch=2", revives=True)
    assert fold(begun, again, NOW + 1) == (begun, CommandResult.ALREADY)


@pytest.mark.parametrize("text", ["", "a b", "a\n", "ä", "$(x)", "a" * 251, "<b>", "'"])
def test_what_is_no_id_is_no_command(text: str) -> None:
    """An id stands in file names of no kind, and in messages of every kind."""
    with pytest.raises(ValueError, match="1 to 250 letters"):
        ask(Verb.STOP, text)


@pytest.mark.parametrize("text", ["a", "dag/run__2026-11-21T10:00:00+00:00/task/3", "me@x.y_z-1", "a" * 250])
def test_what_is_an_id(text: str) -> None:
    """The names of a DAG, a run and a task."""
    assert ask(Verb.STOP, text).id == text
