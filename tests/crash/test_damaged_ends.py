"""The last entry of a log is damaged, whatever kind it was: no row is lost, and no job is stuck (F13, F68).

One byte flipped, the file cut short or filled with zeros, or gone. Either the next start goes on, or it stops with a
named error, and then the remedy works: go back to the newest batch that can be gone back to, and run on. The oracle
judges what the tables show.
"""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from fake_engine import SECOND, Witness, World, ledger_of, make_driver, quick_folder, run_to_end, windowed_job
from oracle import judge
from test_damage import flips

from penstock.checkpoint.log import compaction
from penstock.checkpoint.log.entries import Unsave, Void, from_bytes
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.log.takeover import survey
from penstock.errors import CannotRestore, CheckpointCorrupt, LogGap, PenstockError, SinkAhead
from penstock.runtime.driver.loop import Driver
from penstock.runtime.restore import execute
from penstock.runtime.restore.target import RestoreTarget

TIMES: list[float] = [0, 3, 1, 6, 9, 2, 12, 30, 31, 33]


@dataclass
class Left:
    """A world and a log as drivers have left them."""

    world: World
    store: Witness
    tries: Iterator[int] = field(default_factory=count)

    def again(self, path: str, data: bytes | None) -> Left:
        """Return a copy of both, in which one file is another, or gone.

        The oracle still knows what stood there, but for a Commit: no row of it can be told any more.
        """
        assert self.world.root is not None
        root = self.world.root.with_name(f"{self.world.root.name}-{next(self.tries)}")
        shutil.copytree(self.world.root, root)
        world = World(root=root, times=list(self.world.times), tables=copy.deepcopy(self.world.tables))
        store = Witness()
        store._files, store.ever = dict(self.store._files), list(self.store.ever)
        del store._files[path]
        if data is not None:
            store._files[path] = data
        if path == self.last and (data is None or from_bytes(self.store._files[path], path).kind == "commit"):
            store.ever.remove((path, self.store._files[path]))
        return Left(world, store, self.tries)

    def driver(self, name: str) -> Driver:
        """Return a driver over both."""
        uuid = open_or_create(self.store, now=SECOND).uuid
        return make_driver(self.world, self.store, name, graph=windowed_job(world=self.world), uuid=uuid)

    def until(self, points: Iterator[object], *stop: object) -> None:
        """Step through hooks up to the one with this stage, time and batch."""
        for hook in points:
            if (hook.stage, hook.when, hook.batch)[: len(stop)] == stop:
                return
        raise AssertionError(f"never came to {stop}")

    def kinds(self) -> list[str]:
        """Return the kind of every entry, in the order of writing."""
        return [entry.kind for entry in self.store.entries()]

    @property
    def last(self) -> str:
        """Return the path of the last slot."""
        return Log(self.store).path(survey(Log(self.store)).tail)


def made_folder(folder: Path) -> Path:
    """Return a job's folder in another, which takes the copies as well."""
    made = folder / "job"
    made.mkdir()
    return made


def stopped(left: Left) -> None:
    """Run three batches, and leave."""
    driver = left.driver("a")
    for hook in driver.run():
        if (hook.stage, hook.when, hook.batch) == ("Purge", "after", 2):
            driver.stop()


def takeover(left: Left) -> None:
    """Die right behind the Takeover."""
    stopped(left)
    left.until(left.driver("b").run(), "TakeOver", "claimed")


def offsets(left: Left) -> None:
    """Die behind Offsets, of a driver that has done a batch."""
    left.until(left.driver("a").run(), "FixOffsets", "after", 2)


def first_offsets(left: Left) -> None:
    """Die behind Offsets, the first entry of a driver."""
    stopped(left)
    left.until(left.driver("b").run(), "FixOffsets", "after", 3)


def commit(left: Left) -> None:
    """Die behind a Commit, before anything of it is published."""
    left.until(left.driver("a").run(), "CommitBatch", "after", 2)


def published(left: Left) -> None:
    """Die behind a Commit that is published."""
    left.until(left.driver("a").run(), "PublishSinks", "after", 2)


def restore(left: Left) -> None:
    """Die behind a Restore."""
    stopped(left)
    left.until(execute.restore(left.driver("b"), RestoreTarget(restore=True, batch=0)), "Restore", "after")


def truncated(left: Left) -> None:
    """Die when a Restore with a truncation was carried out, before a batch."""
    stopped(left)
    left.until(
        execute.restore(left.driver("b"), RestoreTarget(restore=True, batch=0, truncate=True)), "Restore", "after"
    )
    left.until(left.driver("c").run(), "Truncate", "after")


def restored(left: Left) -> None:
    """Leave behind a Restore."""
    stopped(left)
    list(execute.restore(left.driver("b"), RestoreTarget(restore=True, batch=1)))


def save(left: Left) -> None:
    """Die behind a Save."""
    driver = left.driver("a")
    left.until(driver.run(), "Purge", "after", 2)
    driver.save("name")


def first_save(left: Left) -> None:
    """Die behind a Save that is a driver's first entry."""
    stopped(left)
    driver = left.driver("b")
    left.until(driver.run(), "TakeOver", "done")
    driver.save("name")


def unsaved(left: Left) -> None:
    """Die when a name was let go."""
    driver = left.driver("a")
    left.until(driver.run(), "Purge", "after", 2)
    driver.save("name")
    owned = driver.owned
    assert owned is not None
    owned.append(Unsave(epoch=owned.epoch, writer=owned.writer, name="name"))


def compacted(left: Left) -> None:
    """Die behind a Compaction, the second of two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "EVERY", 3)
        for hook in left.driver("a").run():
            if (hook.stage, hook.when) == ("Purge", "after") and left.kinds().count("compaction") == 2:
                return


def void(left: Left) -> None:
    """Die behind the Void for torn Offsets."""
    offsets(left)
    left.store._files[left.last] = left.store._files[left.last][:-1]
    left.until(left.driver("b").run(), "FixOffsets", "before")


KINDS = {
    takeover: "takeover",
    offsets: "offsets",
    first_offsets: "offsets",
    commit: "commit",
    published: "commit",
    stopped: "release",
    restore: "restore",
    truncated: "takeover",
    restored: "release",
    save: "save",
    first_save: "save",
    void: "void",
    unsaved: "unsave",
    compacted: "compaction",
}


@pytest.fixture(params=KINDS, ids=lambda made: made.__name__)
def left(request: pytest.FixtureRequest) -> Iterator[Left]:
    """Return a log that ends with one of the kinds."""
    with quick_folder() as folder:
        filled = Left(World(root=made_folder(folder), times=TIMES), Witness())
        made: Callable[[Left], None] = request.param
        made(filled)
        assert from_bytes(filled.store._files[filled.last], filled.last).kind == KINDS[made]
        yield filled


def cuts(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Yield what a file may be after a power cut: short, zeros, in part or in whole, or not there."""
    header = data.find(b"\n")
    for length in (0, 1, header, header + 1, header + 30, len(data) // 2, len(data) - 1):
        yield f"cut to {length}", data[:length]
        yield f"zeros from {length}", data[:length].ljust(len(data), b"\0")
    yield "zeros up to the body", data[header:].rjust(len(data), b"\0")
    yield "gone", None


def ends(left: Left, path: str, data: bytes | None, what: str) -> str:
    """Start over the damage, follow the remedy where it stops, and return what was needed; the oracle has judged."""
    damaged = left.again(path, data)
    try:
        run_to_end(damaged.driver("next"))
        way = "went on"
    except SinkAhead:
        # A Commit that was published is gone without a trace: to the log it is an old copy, and a person's case (F31).
        assert data is None, what
        return "was refused"
    except CheckpointCorrupt:
        assert data is not None, what
        back_to_the_newest(damaged)
        way = "was restored"
    except PenstockError as why:
        raise AssertionError(f"{what}: {why!r}") from why
    wrongs = judge(ledger_of(damaged.world, damaged.store, windowed_job(), finished=True))
    assert wrongs == [], f"{what}: {wrongs}"
    return way


def back_to_the_newest(damaged: Left) -> None:
    """Do what the error says."""
    kept = recover(Log(damaged.store), Damage.LIST).kept
    # A batch whose rows were taken back is gone back to only so that they come again.
    start = RestoreTarget(restore=True, batch=kept[-1].batch if kept else None, truncate=True)
    list(execute.restore(damaged.driver("person"), start))
    run_to_end(damaged.driver("after"))


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.fault("F13", "F68")
@pytest.mark.parametrize("every", [pytest.param(29, id="some"), pytest.param(1, id="each", marks=pytest.mark.soak)])
def test_a_flipped_byte_of_the_last_entry_loses_nothing(left: Left, every: int) -> None:
    """Header or body tells the kind, whichever byte it was: what decided nothing is given up, all else stops."""
    data = left.store._files[left.last]
    kind = from_bytes(data, left.last).kind
    ways = Counter(ends(left, left.last, changed, f"byte {at} of a {kind}") for at, changed in flips(data, every))
    assert {*ways} == ({"was restored"} if kind in {"commit", "restore"} else {"went on"})


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.fault("F13", "F68")
def test_a_last_entry_that_was_cut_short_loses_nothing(left: Left) -> None:
    """Where neither header nor body is whole, what may have stood there decides."""
    data = left.store._files[left.last]
    kind = from_bytes(data, left.last).kind
    ways = Counter(ends(left, left.last, changed, f"{kind} {what}") for what, changed in cuts(data))
    assert ways["went on"] > 0 or kind == "commit"


@pytest.mark.fault("F68")
def test_a_restore_of_which_nothing_can_be_read_is_not_undone(tmp_path: Path) -> None:
    """The truncation was carried out: to go on from before the Restore would lose what was taken back."""
    with quick_folder() as folder:
        whole = Left(World(root=made_folder(folder), times=TIMES), Witness())
        truncated(whole)
        log = Log(whole.store)
        slot = survey(log).tail - 1
        assert log.read(slot).kind == "restore"
        before = {sink: len(table.shown) for sink, table in whole.world.tables.items()}
        damaged = whole.again(log.path(slot), b"")
        with pytest.raises(CheckpointCorrupt, match="it may be a Restore"):
            run_to_end(damaged.driver("next"))
        assert {sink: len(table.shown) for sink, table in damaged.world.tables.items()} == before
        assert not any(isinstance(entry, Void) for entry in damaged.store.entries())


@pytest.mark.fault("F68")
def test_a_refused_start_leaves_nothing_behind() -> None:
    """A job that is tried again and again does not fill its log with Takeovers."""
    with quick_folder() as folder:
        whole = Left(World(root=made_folder(folder), times=TIMES), Witness())
        restore(whole)
        damaged = whole.again(whole.last, b"")
        files = dict(damaged.store._files)
        for name in ("once", "twice"):
            with pytest.raises(CheckpointCorrupt, match="it may be a Restore"):
                run_to_end(damaged.driver(name))
        assert damaged.store._files == files


# --- a gap -------------------------------------------------------------------------------------


def held_all() -> Iterator[Left]:
    """Yield a log with every kind of entry in its middle, and one of which slots were purged as well."""
    with quick_folder() as folder:
        filled = Left(World(root=made_folder(folder), times=TIMES), Witness())
        first_save(filled)
        driver = filled.driver("c")
        filled.until(driver.run(), "FixOffsets", "after", 3)
        filled.store._files[filled.last] = filled.store._files[filled.last][:-1]
        filled.until(filled.driver("d").run(), "Purge", "after", 4)
        list(execute.restore(filled.driver("e"), RestoreTarget(restore=True, batch=2, truncate=True)))
        filled.until(filled.driver("f").run(), "Purge", "after", 5)
        kinds = {entry.kind for entry in filled.store.entries()}
        assert kinds >= {"takeover", "offsets", "commit", "release", "save", "void", "restore"}
        yield filled


NEVER = 10**6


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.remedy("PEN-CKP-003")
@pytest.mark.fault("F16")
@pytest.mark.parametrize("every", [NEVER, 4], ids=["as it grew", "compacted"])
def test_a_gap_stops_the_job_and_is_made_up_for_by_going_back(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Each entry but the last, alone and with the next one, is gone: no start does a batch, and the remedy works."""
    monkeypatch.setattr(compaction, "EVERY", every)
    for whole in held_all():
        slots = sorted(path for path in whole.store._files if path.startswith("log/"))
        given_up = {Log(whole.store).path(e.slot) for e in whole.store.entries() if isinstance(e, Void)}
        for many in (1, 2):
            for at in range(len(slots) - many):
                if {*slots[at : at + many]} <= given_up:
                    continue  # nobody misses it
                left = whole.again(slots[at], b"")
                for path in slots[at : at + many]:
                    left.store.delete(path)
                files, what = dict(left.store._files), f"without {slots[at : at + many]}"
                if every == NEVER:
                    with pytest.raises(LogGap):
                        run_to_end(left.driver("next"))
                else:  # what a Compaction has made superfluous is missed by nobody, what it names is
                    with suppress(LogGap, CheckpointCorrupt):
                        run_to_end(left.driver("next"))
                        wrongs = judge(ledger_of(left.world, left.store, windowed_job(), finished=True))
                        assert wrongs == [], f"{what}: {wrongs}"
                        continue
                added = [from_bytes(data, path) for path, data in left.store._files.items() if path not in files]
                assert {entry.kind for entry in added} <= {"takeover"}, what
                back_to_the_newest(left)
                wrongs = judge(ledger_of(left.world, left.store, windowed_job(), finished=True))
                assert wrongs == [], f"{what}: {wrongs}"
                assert recover(Log(left.store)).problems == ()


@pytest.mark.fault("F16")
def test_a_gap_stays_where_there_is_nothing_to_go_back_to() -> None:
    """Who asks for what is not kept has written nothing."""
    for whole in held_all():
        left = whole.again(Log(whole.store).path(3), b"")
        left.store.delete(Log(whole.store).path(3))
        files = dict(left.store._files)
        with pytest.raises(CannotRestore, match="batch 99 is not kept"):
            list(execute.restore(left.driver("person"), RestoreTarget(restore=True, batch=99)))
        assert left.store._files == files
