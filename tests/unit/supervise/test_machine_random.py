"""A supervisor's decisions in any order of events, whatever dies in between: one driver at most (DESIGN 11)."""

from __future__ import annotations

from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from policy_samples import SECOND, SETTINGS, holder

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.storage.memory import MemoryStore
from penstock.errors import EXIT_FENCED, EXIT_PERSON, CommandRefused
from penstock.supervise.commands import Command, CommandResult, Verb, fold
from penstock.supervise.machine import Action, Beat, Exit, Life, Seen, step
from penstock.supervise.orders import StreamOrders
from penstock.supervise.records import StreamRecords
from penstock.supervise.stream import DriverSlot, Phase, Stream, Wish

HOUR = 3_600 * SECOND
T = 10 * HOUR
HANDLE = {"host": "h", "pid": 7, "start": "1"}


class World(RuleBasedStateMachine):
    """Drivers that start, stall, die and are fenced, in sight, on another machine or in a terminal; commands."""

    @initialize()
    def begin(self) -> None:
        """Nothing was ever asked."""
        self.now = T
        self.stream = Stream()
        self.alive: dict[int, bool] = {}  # generation -> whether it has taken the log over
        self.ends: dict[int, Exit] = {}
        self.launched: list[int] = []
        self.log_generation = 0
        self.commands = 0
        self.lost_launches: list[int] = []
        self.far: set[int] = set()  # generations on a machine that cannot be looked at
        self.silent: dict[int, int] = {}  # how long ago such a driver's last heartbeat was
        self.by_hand: StreamOrders | None = None  # those of the driver that somebody has started in a terminal
        self.hand_store = MemoryStore()
        self.hands = 0

    def _is_told_to_end(self, g: int) -> bool:
        """Return what the driver's orders say, read by `StreamOrders` itself."""
        store = MemoryStore()
        Records(store, "streams", "j").put(self.stream.model_dump(mode="json"))
        order = StreamOrders(StreamRecords(store, "j"), g).look()
        return order.stop

    def _holder(self) -> DriverSlot:
        handle = None if self.by_hand is None else {**HANDLE, "pid": 100 + self.hands}
        return holder(generation=self.log_generation, handle=handle)

    @rule(noticed=st.booleans())
    def somebody_takes_over(self, *, noticed: bool) -> None:
        """Let a person run the job in a terminal, with the log taken over from whoever holds it."""
        self.hands += 1
        self.hand_store = MemoryStore()
        Records(self.hand_store, "streams", "j").put(self.stream.model_dump(mode="json"))
        self.by_hand = StreamOrders(StreamRecords(self.hand_store, "j"), 0)
        self.alive |= dict.fromkeys(self.alive, False)  # at their next write they hear that they are fenced
        if noticed:
            self.ends |= dict.fromkeys(self.alive, Exit(code=EXIT_FENCED))
            self.alive = {}
            self.tick(lost=False, seconds=1)

    def _hand_goes_on(self) -> None:
        if self.by_hand is not None:
            Records(self.hand_store, "streams", "j").put(self.stream.model_dump(mode="json"))
            order = self.by_hand.look()
            if order.stop or order.drain:
                self.by_hand = None

    @rule(ends=st.booleans())
    def hand_goes_on(self, *, ends: bool) -> None:
        """Let the driver in the terminal look for its orders, or end."""
        self._hand_goes_on()
        self.by_hand = None if ends else self.by_hand

    def _seen(self) -> Seen:
        slot = self.stream.driver
        if slot is None:
            return Seen(holder=self._holder())
        g = slot.generation
        if slot.foreign:
            there = slot.handle == self._holder().handle
            if not there:
                return Seen(life=Life.GONE, holder=self._holder())
            return Seen(life=Life.RUNS, beat=Beat(still_for=0))
        if g in self.far:
            silent = self.silent.get(g)
            return Seen(beat=None if silent is None else Beat(still_for=silent, silent_for=silent))
        beat = Beat(still_for=0) if self.alive.get(g) else None
        if g in self.alive:
            return Seen(life=Life.RUNS, beat=beat, handle=HANDLE)
        return Seen(life=Life.GONE, exit=self.ends.get(g), holder=self._holder())

    @rule(lost=st.booleans(), seconds=st.integers(0, 70))
    def tick(self, *, lost: bool, seconds: int) -> None:
        """Let the supervisor look; with `lost` it dies after it wrote the record, and may start the driver later."""
        self.now += seconds * SECOND
        for g in self.far & self.silent.keys():
            self.silent[g] = 0 if self.alive.get(g) else self.silent[g] + seconds * SECOND
        done = step(self.stream, self._seen(), SETTINGS, self.now, "h")
        if done.action is Action.LAUNCH:
            g = done.stream.generation
            assert g > max(self.launched, default=0)
            assert self.stream.driver is None
            self.launched.append(g)
            if lost:
                self.lost_launches.append(g)
            else:
                self.alive[g] = False
        if done.action is Action.KILL and not lost:
            assert done.stream.driver is not None
            if done.stream.driver.generation not in self.far:
                self.alive.pop(done.stream.driver.generation, None)
        self.stream = done.stream

    @rule()
    def supervisor_moves(self) -> None:
        """Let the supervisor that stood by elsewhere take over: it sees no driver of before any more."""
        self.far |= self.alive.keys()
        self.silent |= {g: 0 for g, holds in self.alive.items() if holds}

    @precondition(lambda self: self.far & self.silent.keys())
    @rule(data=st.data(), seconds=st.integers(1, 30))
    def driver_freezes(self, data: st.DataObject, seconds: int) -> None:
        """Let a driver on another machine give no sign of life for a while; it may go on afterwards."""
        g = data.draw(st.sampled_from(sorted(self.far & self.silent.keys())))
        self.silent[g] += seconds * SECOND
        self.stream = step(self.stream, self._seen(), SETTINGS, self.now, "h").stream

    @precondition(lambda self: self.lost_launches)
    @rule()
    def launch_late(self) -> None:
        """Let a supervisor that was only asleep start its driver after all."""
        self.alive[self.lost_launches.pop()] = False

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def driver_goes_on(self, data: st.DataObject) -> None:
        """Let a driver look for its orders, then take over or go on: what `StreamOrders` and the log make of it."""
        g = data.draw(st.sampled_from(sorted(self.alive)))
        if self._is_told_to_end(g):
            self.ends[g] = Exit(code=0)
            del self.alive[g]
        elif g < self.log_generation or self.by_hand is not None:
            self.ends[g] = Exit(code=EXIT_FENCED)
            del self.alive[g]
        else:
            self.log_generation = g
            self.alive[g] = True
            if g in self.far:
                self.silent[g] = 0

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), code=st.sampled_from([None, 0, 70, 75, EXIT_PERSON]), storage=st.booleans())
    def driver_ends(self, data: st.DataObject, code: int | None, *, storage: bool) -> None:
        """Let a driver end by itself."""
        g = data.draw(st.sampled_from(sorted(self.alive)))
        self.ends[g] = Exit(code=code, storage=storage and code == 75)
        del self.alive[g]

    @rule(verb=st.sampled_from(list(Verb)), meant=st.none() | st.integers(0, 12), again=st.booleans())
    def command(self, verb: Verb, meant: int | None, *, again: bool) -> None:
        """Ask for something, perhaps under an id that was there before, perhaps by an attempt that is over."""
        self.commands += not again
        before = self.stream
        try:
            command = Command(verb=verb, id=f"c{self.commands}", generation=meant)
            self.stream, outcome = fold(before, command, self.now)
        except CommandRefused:
            return
        if meant is not None and meant < before.first:
            assert outcome in (CommandResult.STALE, CommandResult.ALREADY)
            assert self.stream == before

    @invariant()
    def one_slot_for_the_newest(self) -> None:
        """The record never names two drivers, and the newest generation is the only one that may take over."""
        slot = self.stream.driver
        assert slot is None or slot.generation <= self.stream.generation
        assert sum(holds for g, holds in self.alive.items() if g >= self.stream.generation) <= 1

    @invariant()
    def what_is_over_starts_nothing(self) -> None:
        """A final phase is left by a command only, and nothing is left of a driver there."""
        if self.stream.is_over:
            assert self.stream.driver is None
            assert step(self.stream, Seen(), SETTINGS, self.now + HOUR, "h").action is Action.NOTHING

    def teardown(self) -> None:
        """Let everything settle: what is wanted then is so, with one driver or none."""
        if not hasattr(self, "stream"):
            return
        for _ in range(60):
            self._hand_goes_on()
            for g in sorted(self.alive):
                if self._is_told_to_end(g):
                    self.alive.pop(g)
                    self.ends[g] = Exit(code=0)
                elif self.by_hand is not None:
                    self.alive.pop(g)
                    self.ends[g] = Exit(code=EXIT_FENCED)
                else:
                    self.alive[g] = True
                    self.log_generation = g
            self.now += 30 * SECOND
            for g in self.far:
                self.silent[g] = 0 if self.alive.get(g) else self.silent.get(g, 0) + 30 * SECOND
            done = step(self.stream, self._seen(), SETTINGS, self.now, "h")
            if done.action is Action.LAUNCH:
                self.alive[done.stream.generation] = False
            self.stream = done.stream
        if self.stream.is_over:
            assert self.alive == {}
        elif self.by_hand is not None and self.stream.wish is Wish.DRAIN:
            # It began after that was asked, so it does not drain; the supervisor's own driver will, behind it.
            assert self.stream.phase in (Phase.RUNNING, Phase.DRAINING)
            assert self.alive == {}
        else:
            assert self.stream.phase is (Phase.DRAINING if self.stream.wish is Wish.DRAIN else Phase.RUNNING)
            assert list(self.alive) == ([] if self.by_hand is not None else [self.stream.generation])


World.TestCase.settings = settings(max_examples=examples(48), stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
