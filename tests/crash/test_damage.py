"""Every byte of a small checkpoint is flipped, every file cut short or taken away: never a wrong row, never a guess.

The real driver loop starts over each damaged checkpoint. Either it ends with an error that has a name, or the tables
show in the end exactly what they would have shown; whichever it is, no file of the checkpoint is overwritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_engine import (
    PARTITIONS,
    SECOND,
    FakeEngine,
    Witness,
    World,
    make_driver,
    quick_folder,
    run_to_end,
    windowed_job,
)

from penstock.checkpoint.log.entries import Commit, Offsets, from_bytes
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import open_or_create
from penstock.checkpoint.log.recovery import recover
from penstock.checkpoint.log.takeover import survey
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.locate import folder_at
from penstock.errors import (
    CannotRestore,
    CheckpointCorrupt,
    FormatTooNew,
    LogGap,
    MetadataDamaged,
    MetadataMissing,
    PenstockError,
    SinkAhead,
    StateMissing,
)
from penstock.runtime.driver.loop import DriverSettings
from penstock.runtime.inspect.fsck import verify
from penstock.runtime.restore.execute import restore
from penstock.runtime.restore.target import RestoreTarget
from penstock.runtime.tasks.batch_context import BatchContext
from penstock.state.manifest import Manifest, ManifestRef
from penstock.state.reader import StateReader
from penstock.state.references import segment_name
from penstock.state.row_layout import GROUP, HASH, sort_rows
from penstock.state.writer import Change, write_changes

GRAPH = windowed_job()
TIMES = [0, 3, 1, 6, 9, 2, 12, 30]
NAMED = (CheckpointCorrupt, LogGap, MetadataMissing, SinkAhead, StateMissing)


class SegmentEngine(FakeEngine):
    """The fake engine with its state in real segments: a row for each id that waits in an open window."""

    def _reader(self, facts: BatchContext, partition: int) -> StateReader:
        folder = folder_at(facts.state_folder) / "sums" / str(partition)
        known = facts.manifests.get("sums", {}).get(str(partition))
        if known is None:
            return StateReader(folder, Manifest(step="sums", partition=partition, keys=("id",)))
        return StateReader(folder, Manifest.read(folder / known["path"], ManifestRef(**known)))

    def _state(self, facts: BatchContext, partition: int) -> dict[str, list[int]]:
        ids: dict[str, list[int]] = {}
        for table in self._reader(facts, partition).scan("open"):
            for end, i in zip(table[GROUP].to_pylist(), table["id"].to_pylist(), strict=True):
                ids.setdefault(str(end), []).append(i)
        return {end: sorted(ids) for end, ids in ids.items()}

    def _state_receipt(
        self, facts: BatchContext, partition: int, open_windows: Mapping[str, list[int]], *, merged: int
    ) -> Mapping[str, Any]:
        known = {i for ids in self._state(facts, partition).values() for i in ids}
        fresh = [(int(end), i) for end, ids in open_windows.items() for i in ids if i not in known]
        columns = {GROUP: [end for end, _ in fresh], HASH: [i for _, i in fresh], "id": [i for _, i in fresh]}
        rows = sort_rows(pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}))
        least = min(map(int, open_windows), default=2**62)
        name = segment_name(facts.batch, epoch=facts.epoch, attempt=partition, run=facts.run)
        change = Change(append={"open": rows}, floors={"open": least} if known else {})
        written = write_changes(self._reader(facts, partition), name, change, batch=facts.batch, parts={})
        ref = written.ref
        return {
            "kind": "state",
            "counted_as": "window:sums",
            "due_time": None,
            "step": "sums",
            "partition": partition,
            "manifest": None if ref is None else {"path": ref.path, "size": ref.size, "checksum": ref.checksum},
            "due": min(map(int, open_windows), default=None),
            "counts": {"merged": merged},
            "size": written.manifest.size,
            "written": written.written,
            "rewritten": written.rewritten,
            "fetched": 0,
        }


@dataclass
class Site:
    """A checkpoint and its tables as a driver left them."""

    world: World
    store: Witness

    @property
    def files(self) -> dict[str, bytes]:
        """Return the files of the store by path."""
        return self.store._files

    def slot(self, number: int) -> str:
        """Return the path of a slot of the log; negative ones count from the end."""
        return sorted(path for path in self.files if path.startswith("log/"))[number]

    def kind(self, number: int) -> str:
        """Return what stands in a slot."""
        return kind_of(self.files, self.slot(number))

    def again(self, name: str, files: Mapping[str, bytes]) -> Outcome:
        """Start a driver over other files than these, and let it finish."""
        world = World(root=self.world.root, times=list(self.world.times))
        for sink, table in self.world.tables.items():
            world.table(sink).versions, world.table(sink).shown = dict(table.versions), list(table.shown)
        store = Witness()
        store._files = dict(files)
        error: PenstockError | None = None
        try:
            start(world, store, name)
        except PenstockError as raised:
            error = raised
        kept = all(store._files[path] == data for path, data in files.items())
        return Outcome(error, {sink: Counter(map(repr, world.rows(sink))) for sink in world.tables}, kept, store)


@dataclass
class Outcome:
    """How a driver ended: its error, the rows of each table, and whether all files are as they were."""

    error: PenstockError | None
    rows: dict[str, Counter[str]]
    kept: bool
    store: Witness


def kind_of(files: Mapping[str, bytes], path: str) -> str:
    """Return what entry a file is."""
    return from_bytes(files[path], path).kind


def start(world: World, store: Witness, name: str, stop: tuple[str, str, int] | None = None) -> None:
    """Start a job as the command does, and run it to its end or to a hook."""
    metadata = open_or_create(store, now=SECOND)
    engine = SegmentEngine(world, GRAPH, name)
    driver = make_driver(world, store, name, graph=GRAPH, engine=engine, uuid=metadata.uuid)
    # Several drivers of a test start from one log, each as the first that does, and share the folder.
    driver.janitor._sweep_staged = lambda _: 0  # type: ignore[method-assign]
    if stop is None:
        run_to_end(driver)
        return
    for hook in driver.run():
        if (hook.stage, hook.when, hook.batch) == stop:
            if stop[:2] != ("Purge", "after"):
                return
            driver.stop()


CUTS = {
    "Offsets at the end": ("FixOffsets", "after", 2),
    "Commit at the end": ("CommitBatch", "after", 2),
    "Release at the end": ("Purge", "after", 2),
}


@pytest.fixture(params=CUTS.values(), ids=CUTS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Return a checkpoint that a driver left behind at one of the cuts."""
    with quick_folder() as folder:
        made = Site(World(root=folder, times=TIMES), Witness())
        start(made.world, made.store, "first", request.param)
        yield made


def only(cut: str) -> pytest.MarkDecorator:
    """Let a test see one of the cuts."""
    return pytest.mark.parametrize("site", [pytest.param(CUTS[cut], id=cut)], indirect=True)


class Judge:
    """Starts drivers over damaged checkpoints and holds the outcomes against that of the sound one."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.starts = 0
        sound = site.again("sound", site.files)
        assert sound.error is None
        self.sound = sound.rows

    def of(self, files: Mapping[str, bytes], what: str) -> type[PenstockError] | None:
        """Return the error over these files, None where all is as it should be; `what` was done to them."""
        self.starts += 1
        left = self.site.again(f"r{self.starts}", files)
        assert left.kept, f"{what}: a file was overwritten"
        for sink, rows in left.rows.items():
            assert rows <= self.sound[sink], f"{what}: {sink} shows {rows - self.sound[sink]}"
        if left.error is None:
            assert left.rows == self.sound, what
            return None
        assert isinstance(left.error, NAMED), f"{what}: {left.error!r}"
        return type(left.error)


def flips(data: bytes, every: int) -> Iterator[tuple[int, bytes]]:
    """Yield the data with one bit of one byte changed, another bit from byte to byte."""
    for at in range(0, len(data), every):
        yield at, data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


EVERY_BYTE = pytest.mark.parametrize(
    "every", [pytest.param(29, id="some"), pytest.param(1, id="each", marks=pytest.mark.soak)]
)


def flip_the_log(site: Site, every: int) -> int:
    """Flip one byte in `every`, and each of the newest entry; returns how many drivers were started."""
    judge = Judge(site)
    last = site.slot(-1)
    may_go = site.kind(-1) in {"offsets", "release"}
    for path in [path for path in site.files if path.startswith("log/")]:
        for at, data in flips(site.files[path], 1 if path == last else every):
            expected = None if path == last and may_go else CheckpointCorrupt
            assert judge.of(site.files | {path: data}, f"byte {at} of {path}") is expected, f"byte {at} of {path}"
    return judge.starts


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.fault("F13", "F14")
def test_a_flipped_byte_of_the_log_is_never_believed(site: Site) -> None:
    """Offsets or a Release at the end are given up with the same rows in the end; all else stops the job."""
    assert flip_the_log(site, 29) > 200


@pytest.mark.soak
@only("Offsets at the end")
@pytest.mark.fault("F13", "F14")
def test_no_flipped_byte_of_the_log_is_believed(site: Site) -> None:
    """Every byte of a small checkpoint, one after another."""
    assert flip_the_log(site, 1) > 2_000


@EVERY_BYTE
@only("Offsets at the end")
@pytest.mark.fault("F13", "F17")
def test_a_flipped_byte_of_the_metadata_is_never_believed(site: Site, every: int) -> None:
    """Another uuid would let every sink take every batch a second time."""
    judge = Judge(site)
    for at, data in flips(site.files["metadata.json"], every):
        assert judge.of(site.files | {"metadata.json": data}, f"byte {at}") is MetadataDamaged


@pytest.mark.fault("F17")
def test_the_metadata_of_another_checkpoint_is_never_believed(site: Site) -> None:
    """F13: a whole file with another uuid had sinks take the last batch once more; fsck names it, and a copy helps."""
    other = Witness()
    theirs = open_or_create(other, now=SECOND).uuid
    ours = open_or_create(site.store, now=SECOND).uuid
    damaged = site.files | {"metadata.json": other._files["metadata.json"]}
    left = site.again("theirs", damaged)
    assert isinstance(left.error, CheckpointCorrupt)
    assert str(left.error).startswith(f"PEN-CKP-040 it is that of checkpoint {theirs}, and the log is that of {ours}")
    assert Judge(site).of(damaged, "metadata of another") is MetadataDamaged
    store = Witness()
    store._files = damaged
    assert site.world.root is not None
    assert any(theirs in finding.what for finding in verify(Log(store), site.world.root).findings)
    assert site.again("ours", site.files).error is None


@pytest.mark.slow
@EVERY_BYTE
@only("Offsets at the end")
@pytest.mark.fault("F13", "F14")
def test_a_flipped_byte_of_the_state_is_never_believed(site: Site, every: int) -> None:
    """Manifests and segments: what is read is checked, and what is not read does not matter."""
    judge = Judge(site)
    ends: Counter[str] = Counter()
    for path in state_files(site):
        data = path.read_bytes()
        for at, changed in flips(data, every):
            path.write_bytes(changed)
            ends[f"{path.suffix} {judge.of(site.files, f'byte {at} of {path}')}"] += 1
        path.write_bytes(data)
    assert ends[f".arrow {CheckpointCorrupt}"] > 10 * ends[".arrow None"]
    assert ends[f".json {CheckpointCorrupt}"] > ends[".json None"] >= 0


def state_files(site: Site) -> list[Path]:
    """Return the state files that the Commit in force names."""
    assert site.world.root is not None
    newest = recover(Log(site.store)).commit
    assert isinstance(newest, Commit)
    files = []
    for partition, ref in newest.state["sums"].items():
        folder = site.world.root / "state" / "sums" / partition
        manifest = Manifest.read(folder / ref.path)
        files += [folder / ref.path, *(folder / name for name in manifest.files())]
    assert len(files) >= 2 * PARTITIONS
    return files


@pytest.mark.fault("F13")
def test_a_file_of_the_log_that_was_cut_short_is_never_believed(site: Site) -> None:
    """Empty, one byte, half, all but the last byte; the same answers as for a flipped byte."""
    judge = Judge(site)
    may_go = site.kind(-1) in {"offsets", "release"}
    for path, data in site.files.items():
        for length in (0, 1, data.find(b"\n"), data.find(b"\n") + 1, len(data) // 2, len(data) - 1):
            damaged = MetadataDamaged if path == "metadata.json" else CheckpointCorrupt
            expected = None if path == site.slot(-1) and may_go else damaged
            assert judge.of(site.files | {path: data[:length]}, f"{length} bytes of {path}") is expected


@pytest.mark.fault("F16", "F17", "F20")
def test_a_missing_file_is_named(site: Site) -> None:
    """A slot in the middle is a gap with its number; the newest one was never written, as far as anyone can tell."""
    judge = Judge(site)
    for path in site.files:
        files = {name: data for name, data in site.files.items() if name != path}
        expected = None if path == site.slot(-1) else MetadataMissing if path == "metadata.json" else LogGap
        assert judge.of(files, f"without {path}") is expected, path


@only("Release at the end")
@pytest.mark.fault("F16")
def test_a_gap_lists_what_is_missing(site: Site) -> None:
    """By their numbers; a Takeover may have been written by then, and nothing else is."""
    files = {name: data for name, data in site.files.items() if name not in {site.slot(2), site.slot(3)}}
    left = site.again("gap", files)
    assert isinstance(left.error, LogGap)
    assert left.error.fields["missing"] == [2, 3]
    assert {entry.kind for entry in left.store.entries()} <= {"takeover"}


@pytest.mark.fault("F13", "F20")
def test_an_entry_in_place_of_another_is_never_believed(site: Site) -> None:
    """Each entry under the name of each other: whole files, and none of them where it belongs."""
    judge = Judge(site)
    slots = [path for path in site.files if path.startswith("log/")]
    ends = Counter(
        judge.of(site.files | {path: site.files[other]}, f"{other} as {path}")
        for path in slots
        for other in slots
        if other != path
    )
    assert ends[CheckpointCorrupt] > 0.7 * ends.total()


@only("Offsets at the end")
@pytest.mark.fault("F18")
@pytest.mark.parametrize("what", ["folder", "manifest", "segment"])
def test_missing_state_is_named(site: Site, what: str) -> None:
    """It is not taken for an empty state, and nothing is committed or shown."""
    assert site.world.root is not None
    judge = Judge(site)
    for path in state_files(site):
        if what == "folder" or path.suffix == {"manifest": ".json", "segment": ".arrow"}[what]:
            moved = path.rename(path.with_name("away"))
            error = judge.of(site.files, f"without {path}")
            moved.rename(path)
            assert error is StateMissing or what == "segment", path
    if what == "folder":
        (site.world.root / "state").rename(site.world.root / "elsewhere")
        assert judge.of(site.files, "without state") is StateMissing


@only("Release at the end")
@pytest.mark.fault("F13")
def test_offsets_that_a_table_has_seen_committed_are_not_given_up(site: Site) -> None:
    """Their Commit is gone and they cannot be read: new ranges under the old id would lose rows or show them twice."""
    without = {path: data for path, data in site.files.items() if path not in {site.slot(-1), site.slot(-2)}}
    path = max(path for path in without if path.startswith("log/"))
    assert kind_of(without, path) == "offsets"
    left = site.again("torn", without | {path: without[path][:100]})
    assert isinstance(left.error, CheckpointCorrupt)
    assert "shows batch 2" in str(left.error)
    assert {entry.kind for entry in left.store.entries()} == {"takeover", "release"}


@pytest.mark.fault("F21")
def test_a_later_format_is_refused_before_anything_is_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both versions are named; the newest entry tells, and metadata.json."""
    for path in (site.slot(-1), "metadata.json"):
        kind, body = fileformat.decode(site.files[path], path=path)
        with monkeypatch.context() as patch:
            known = fileformat.LATER_KINDS.get(kind, fileformat.FORMAT_VERSION)
            patch.setattr(fileformat, "LATER_KINDS", {kind: known + 1})
            later = fileformat.encode(kind, body)
        left = site.again("older", site.files | {path: later})
        assert isinstance(left.error, FormatTooNew)
        assert (left.error.fields["found"], left.error.fields["known"]) == (known + 1, known)
        assert left.store._files == site.files | {path: later}


@only("Release at the end")
@pytest.mark.fault("F13")
def test_damage_below_the_floor_does_not_matter(site: Site) -> None:
    """What no restart and no restore can need is not read any more; here all batches before the last two."""
    world = World(root=site.world.root, times=list(range(40)))
    store = Witness()
    metadata = open_or_create(store, now=SECOND)
    for name, stop in (("long", 8), ("longer", None)):
        driver = make_driver(
            world,
            store,
            name,
            graph=GRAPH,
            uuid=metadata.uuid,
            settings=DriverSettings(keep=2),
            log=Log(store, stride=4),
        )
        if stop is None:
            run_to_end(driver)
            break
        for hook in driver.run():
            if (hook.stage, hook.when, hook.batch) == ("CommitBatch", "before", stop):
                break
        floor = recover(Log(store, stride=4)).floor
        below = [path for path in store._files if path.startswith("log/") and _batch(store, path) < floor]
        assert len(below) >= 3
        for path in below:
            store._files[path] = b"damaged"
    assert world.rows("raw") == list(range(40))


def _batch(store: Witness, path: str) -> int:
    entry = from_bytes(store._files[path], path)
    return entry.batch if isinstance(entry, Offsets | Commit) else 2**31


@pytest.mark.remedy("PEN-CKP-001", "PEN-CKP-005")
@pytest.mark.parametrize(
    "site", [CUTS["Commit at the end"], CUTS["Release at the end"]], ids=["kill", "stop"], indirect=True
)
@pytest.mark.fault("F13", "F14", "F18")
@pytest.mark.parametrize("harm", ["commit", "takeover", "state", "manifest", "gone"])
def test_what_stops_the_job_can_be_restored_from(site: Site, harm: str) -> None:
    """The remedy that the error names: an earlier kept batch, from which the source is read again.

    The batch that is damaged had been published, or its driver was killed before.
    """
    files = dict(site.files)
    if harm in {"commit", "takeover"}:
        path = max(path for path in files if path.startswith("log/") and kind_of(files, path) == harm)
        files[path] = files[path][:-1]
    else:
        suffix = {"state": ".arrow", "manifest": ".json", "gone": ".json"}[harm]
        path = next(
            path for path in state_files(site) if path.suffix == suffix and path.name.startswith("000000000002")
        )
        whole = path.read_bytes()
        path.unlink() if harm == "gone" else path.write_bytes(whole[:-1])
    error = StateMissing if harm == "gone" else CheckpointCorrupt
    assert isinstance(site.again("broken", files).error, error)

    store = Witness()
    store._files = files
    uuid = open_or_create(store, now=0).uuid
    engine = SegmentEngine(site.world, GRAPH, "person")
    person = make_driver(site.world, store, "person", graph=GRAPH, engine=engine, uuid=uuid)
    list(restore(person, RestoreTarget(restore=True, batch=1)))
    before = {sink: len(table.shown) for sink, table in site.world.tables.items()}
    start(site.world, store, "after")
    fresh = site.world.table("raw").shown[before.get("raw", 0) :]
    published = [2] if harm != "commit" and before["raw"] == 4 else []
    assert [shown.row for shown in fresh] == [4, 5] * len(published) + list(range(4, len(TIMES)))
    assert min(shown.batch for shown in fresh) == min([3, *published])


@only("Release at the end")
def test_a_restore_that_cannot_be_leaves_the_log_free(site: Site) -> None:
    """Who asked for a batch that is not kept has changed nothing, and nobody waits for a holder that is gone."""
    uuid = open_or_create(site.store, now=SECOND).uuid
    driver = make_driver(site.world, site.store, "person", graph=GRAPH, uuid=uuid)
    with pytest.raises(CannotRestore, match="batches 0 to 2"):
        list(restore(driver, RestoreTarget(restore=True, batch=7)))
    view = survey(Log(site.store))
    assert (view.released, view.holder) == (True, None)
    start(site.world, site.store, "after")
    assert sorted(site.world.rows("raw")) == list(range(len(TIMES)))
