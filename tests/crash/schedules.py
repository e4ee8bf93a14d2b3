"""Play two drivers of the real loop against each other, hook by hook, in every order.

A play is a string such as `aabab`: whose turn it is. Generators cannot be copied, so a play is repeated from its
beginning to branch off, and a state that was reached before is not gone on from.
A driver is a function of what it has been told: its state is how many hooks it has passed and a digest of every
answer of store and tables. That and what both share, log and tables, is the state of a play.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_engine import FakeEngine, OnPublish, Witness, World, ledger_of, make_driver, plain_job, run_to_end
from faulty_store import FaultyStore, Plan
from oracle import judge

from penstock.checkpoint.log.log import Log
from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import Fenced, PenstockError, SinkError
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.driver.stages import Hook

GRAPH = plain_job()

ALONE = {
    ("FixOffsets", "after"),
    ("Compute", "before"),
    ("Compute", "after"),
    ("CommitBatch", "after"),
    ("PublishSinks", f"published {GRAPH.sinks[-1].name}"),
    ("PublishSinks", "after"),
    ("AckSources", "before"),
    ("AckSources", "after"),
    ("Purge", "after"),
    ("Release", "after"),
}
"""Hooks after which a driver touches nothing that the other sees before its next hook.

Such a step commutes with every step of the other, so a play in which it is taken at once stands for all in which it
is taken later. `Actor.step` asserts that it really touches nothing.
"""


class Watched:
    """A store that keeps a digest of all that it answered."""

    def __init__(self, inner: CheckpointStore) -> None:
        self.inner = inner
        self.told = 0
        self.calls = 0

    @property
    def root(self) -> str:
        """Name the root of the store inside."""
        return self.inner.root

    def note(self, *what: Any) -> None:
        """Add to the digest."""
        self.told = hash((self.told, *what))
        self.calls += 1

    def create(self, path: str, data: bytes) -> None:
        """Create, and note whether it was answered well."""
        self._ask("create", path, lambda: self.inner.create(path, data))

    def read(self, path: str) -> bytes:
        """Read, and note what."""
        return bytes(self._ask("read", path, lambda: self.inner.read(path)))

    def exists(self, path: str) -> bool:
        """Ask, and note the answer."""
        return bool(self._ask("exists", path, lambda: self.inner.exists(path)))

    def janitor(self, grace_seconds: float, now: float) -> int:
        """Sweep, which tells the caller nothing that it acts by."""
        return self.inner.janitor(grace_seconds, now)

    def list(self, prefix: str) -> list[str]:
        """List, and note what."""
        return list(self._ask("list", prefix, lambda: tuple(self.inner.list(prefix))))

    def delete(self, path: str) -> None:
        """Delete, and note that it was asked for."""
        self._ask("delete", path, lambda: self.inner.delete(path))

    def _ask(self, call: str, path: str, do: Callable[[], Any]) -> Any:
        try:
            answer = do()
        except PenstockError as error:
            self.note(call, path, type(error).__name__)
            raise
        self.note(call, path, answer)
        return answer


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Say what a play is about.

    `before` are batches that ran before it, whole but for what `cut` leaves out: the hook that the driver died at.
    `batches` says how many batches each of the two runs, `plans` whose store breaks how, `failing` whose tables.
    """

    before: int = 0
    cut: tuple[str, str] | None = None
    rows: int = 4
    stride: int = 4_096
    keep: int = 20
    batches: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 1})
    plans: dict[str, Plan] = field(default_factory=dict)
    failing: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Whose publication fails once: the sink, and `before` or `after` it took effect."""


class Actor:
    """One driver, its store, and how it ended."""

    def __init__(self, scene: Scene, world: World, store: CheckpointStore, name: str) -> None:
        plan = scene.plans.get(name)
        self.name = name
        self.store = Watched(store if plan is None else FaultyStore(store, plan))
        engine = FakeEngine(world, GRAPH, name, on_publish=self._published(scene.failing.get(name)))
        self.driver = make_driver(
            world,
            self.store,
            name,
            graph=GRAPH,
            engine=engine,
            log=Log(self.store, stride=scene.stride),
            settings=DriverSettings(keep=scene.keep),
        )
        self.left = scene.batches.get(name, 1)
        self.hook: Hook | None = None
        self.hooks = 0
        self.ended = False
        self.error: PenstockError | None = None
        self._points = self.driver.run()

    @property
    def key(self) -> tuple[int, int, bool]:
        """Return what the driver's future depends on."""
        return self.store.told, self.hooks, self.ended

    def step(self) -> None:
        """Go on to the next hook, and from there as long as nothing is touched that the other sees."""
        self._next()
        while not self.ended and self.hook is not None and (self.hook.stage, self.hook.when) in ALONE:
            calls, was = self.store.calls, self.hook
            self._next()
            assert self.store.calls == calls, f"something is touched after {was}"

    def _next(self) -> None:
        try:
            self.hook = next(self._points)
        except StopIteration:
            self.ended = True
            return
        except PenstockError as error:
            self.error, self.ended = error, True
            return
        self.hooks += 1
        if (self.hook.stage, self.hook.when) == ("Purge", "after"):
            self.left -= 1
            if self.left == 0:
                self.driver.stop()

    def _published(self, failing: tuple[str, str] | None) -> OnPublish:
        waiting = [failing] if failing else []

        def on_publish(sink: str, batch: int) -> Exception | None:
            self.store.note("publish", sink, batch)
            if not waiting or waiting[0][0] != sink:
                return None
            when = waiting.pop()[1]
            error = SinkError(f"{sink} fails {when} it took effect")
            if when == "before":
                raise error
            return error

        return on_publish


class Play:
    """Two drivers `a` and `b` over one world, after the turns in `path`."""

    def __init__(self, scene: Scene, path: str = "") -> None:
        self.scene = scene
        self.world = World(times=list(range(scene.rows)))
        self.store = Witness()
        self.path = ""
        self._history()
        self.actors = {name: Actor(scene, self.world, self.store, name) for name in "ab"}
        self.turns(path)

    def turns(self, path: str) -> None:
        """Take turns; one of a driver that has ended changes nothing."""
        for name in path:
            if not self.actors[name].ended:
                self.actors[name].step()
        self.path += path

    def finish(self, name: str) -> None:
        """Let one driver run to its end."""
        while not self.actors[name].ended:
            self.turns(name)

    @property
    def alive(self) -> str:
        """Return who can still take a turn."""
        return "".join(name for name, actor in self.actors.items() if not actor.ended)

    @property
    def shared(self) -> Any:
        """Return what a third driver would find."""
        tables = tuple((name, tuple(t.versions.items()), len(t.shown)) for name, t in sorted(self.world.tables.items()))
        return hash(tuple(self.store._files.items())), len(self.store.ever), tables

    @property
    def key(self) -> Any:
        """Return what the future of the play depends on."""
        return self.actors["a"].key, self.actors["b"].key, self.shared

    @property
    def strays(self) -> list[str]:
        """Return the writers of entries that stand in holes: before one that had been written by then."""
        slots = [int(path[4:]) for path, _ in self.store.ever]
        written = zip(slots, self.store.entries(), strict=True)
        return [entry.writer for i, (slot, entry) in enumerate(written) if slot < max(slots[: i + 1])]

    def check_errors(self) -> None:
        """Hold how the drivers ended against the protocol."""
        for name, actor in self.actors.items():
            if actor.error is not None:
                self._check_error(name, actor.error)

    def check_shared(self) -> None:
        """Hold what is visible now against the oracle, and again after a third driver has finished.

        It finds what it would if the two were asleep for ever.
        """
        wrongs = judge(ledger_of(self.world, self.store, GRAPH, finished=False))
        assert wrongs == [], f"{self.path}: {wrongs}"
        world, store = _copy(self.world, self.store)
        driver = make_driver(world, store, "c", graph=GRAPH, log=Log(store, stride=self.scene.stride))
        try:
            run_to_end(driver)
        except PenstockError as error:
            raise AssertionError(f"{self.path}, then c: {error}") from error
        wrongs = judge(ledger_of(world, store, GRAPH, finished=True))
        assert wrongs == [], f"{self.path}, then c: {wrongs}"

    def _check_error(self, name: str, error: PenstockError) -> None:
        if isinstance(error, Fenced):
            fields = error.fields
            # A claim that got into a hole carries an epoch that the log, at its real end, may not have reached.
            lower = int(str(fields["epoch_mine"])) < int(str(fields["epoch_seen"]))
            assert lower or name in self.strays, f"{self.path}: {error}"
            other = "b" if name == "a" else "a"
            assert fields["holder"] in {f"host-{other}", "nobody any more: it was released"}, f"{self.path}: {error}"
        else:
            assert name in self.scene.failing, f"{self.path}: {error}"
            assert isinstance(error, SinkError), f"{self.path}: {error}"

    def _history(self) -> None:
        if not self.scene.before:
            return
        stop = (*(self.scene.cut or ("Purge", "after")), self.scene.before - 1)
        driver = make_driver(
            self.world,
            self.store,
            "w",
            graph=GRAPH,
            log=Log(self.store, stride=self.scene.stride),
            settings=DriverSettings(keep=self.scene.keep),
        )
        for hook in driver.run():
            if (hook.stage, hook.when, hook.batch) == stop:
                return
        raise AssertionError(f"the history never comes to {stop}")


def _copy(world: World, store: Witness) -> tuple[World, Witness]:
    twin = World(times=list(world.times), closed=world.closed, batch_rows=world.batch_rows, files=dict(world.files))
    for name, table in world.tables.items():
        twin.table(name).versions = dict(table.versions)
        twin.table(name).shown = list(table.shown)
    copied = Witness()
    copied._files, copied.ever = dict(store._files), list(store.ever)
    return twin, copied


def explore(scene: Scene) -> Iterator[Play]:
    """Yield a play in each state that any order of turns leads to, once."""
    seen: set[Any] = set()
    branches = [""]
    while branches:
        play = Play(scene, branches.pop())
        while play.key not in seen:
            seen.add(play.key)
            yield play
            alive = play.alive
            if not alive:
                break
            branches += [play.path + name for name in alive[1:]]
            play.turns(alive[0])
