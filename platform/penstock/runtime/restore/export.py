"""Copy what a job needs to resume: to a folder of its own, and from there into a new checkpoint (SEMANTICS 10.2).

    <export>/export.json                   the Commit, whose checkpoint it was, and the partitions of its steps
    <export>/state/<step>/<partition>/…    every file of state that the Commit names

An import has a new uuid, so no sink takes its batches for those of the checkpoint it came from; it names that as its
parent. The old checkpoint keeps its output: an export has none, published or not.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from penstock.checkpoint.control_records import Records
from penstock.checkpoint.log.entries import Commit, ManifestRef, Place, Record, Release, Restore
from penstock.checkpoint.log.log import Log
from penstock.checkpoint.log.metadata import Metadata, open_or_create, read_metadata
from penstock.checkpoint.log.recovery import Damage, recover
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.folder import CheckpointFolder
from penstock.checkpoint.storage.store import CheckpointStore, corrupt
from penstock.errors import CannotCopy, StateMissing
from penstock.graph.names import is_name
from penstock.receivers.block_log import BlockLog
from penstock.receivers.hole_closing import close_holes
from penstock.receivers.inventory import places_in
from penstock.runtime.driver.ownership import hold_log
from penstock.runtime.driver.settings import Identity
from penstock.runtime.driver.table_versions import FILES, file_name
from penstock.runtime.restore.target import RestoreTarget
from penstock.runtime.restore.temporary_folders import clear_left, copy_plain, making, move_into_place, refuse_links
from penstock.state.manifest import Manifest
from penstock.state.manifest import ManifestRef as StateRef
from penstock.state.reader import StateReader
from penstock.state.section_reader import forget

__all__ = ["EXPORT", "Export", "export_checkpoint", "import_checkpoint"]

EXPORT = "export.json"
_KIND = "export"


class Export(Record):
    """What an export holds: the Commit, the uuid of its checkpoint, and the partitions of the steps."""

    job: str
    uuid: str
    exported: int
    partitions: dict[str, int]
    commit: Commit


def export_checkpoint(
    folder: CheckpointFolder, target: CheckpointFolder, start: RestoreTarget, *, job: str, now: int
) -> Export:
    """Copy what the job would resume from, as of a start, to a new folder; a driver may run meanwhile.

    It is made beside its place and moved there, so a folder of that name is whole. Raises CannotCopy, CannotRestore,
    and what reading damaged state raises.
    """
    if target.is_taken():
        raise CannotCopy("the folder is there already", where=str(target))
    log = Log(folder.store(make=False))
    recovered = recover(log, Damage.LIST)
    point = start.resolve(recovered, folder)
    commit = point.commit
    if commit is None:
        raise CannotCopy("no batch is committed, so there is nothing to export", where=str(folder))
    partitions = dict(point.partitions)
    if lost := commit.state.keys() - partitions.keys():
        raise CannotCopy(f"how many partitions step {min(lost)!r} has cannot be read any more", where=str(folder))
    uuid = read_metadata(log.store).uuid
    # What it staged is the old checkpoint's to publish.
    bare = commit.model_copy(update={"staged": {}, "held": {}, "published": {}, "snapshots": {}, "place": None})
    made = Export(job=job, uuid=uuid, exported=now, partitions=partitions, commit=bare)
    beside = f"_{target.name}.penstock-export"
    clear_left(target.parent.here.glob(f"{glob.escape(beside)}-*"))
    with making(target.parent, beside) as made_in:
        try:
            _copy_state(folder / "state", made_in / "state", commit.state)
            _copy_tables(folder, made_in, commit.tables)
        except StateMissing as why:
            what = f"{why.what}; the job has let it go meanwhile: save the checkpoint first, and export what was saved"
            raise CannotCopy(what, where=why.where) from why
        made_in.make()
        (made_in / EXPORT).create(fileformat.encode(_KIND, made.model_dump(mode="json")))
        move_into_place(made_in, target)
    return made


def import_checkpoint(
    source: CheckpointFolder, folder: CheckpointFolder, *, identity: Identity, now: int
) -> tuple[Export, Metadata]:
    """Make a checkpoint that continues from an export, whole or not at all.

    It is made beside its place and moved there: of one that was cut short no driver knows. Raises CannotCopy where
    there is a checkpoint already, or no export; and what damage raises.
    """
    refuse_links(source.here)
    export = read_export(source)
    control = folder.parent.store()
    if folder.is_taken():
        raise CannotCopy("there is a checkpoint already", where=str(folder))
    _refuse_old_decisions(control, folder.name, export.commit.batch)
    importing = folder.parent / "_importing"
    clear_left(importing.here.glob(f"{folder.name}-*"))
    with making(importing, folder.name) as made_in:
        _copy_state(source / "state", made_in / "state", export.commit.state)
        _copy_tables(source, made_in, export.commit.tables)
        metadata = _begin_log(made_in, export, identity, now=now)
        move_into_place(made_in, folder)
    return export, metadata


def _begin_log(made_in: CheckpointFolder, export: Export, identity: Identity, *, now: int) -> Metadata:
    """Write metadata and a log that begins with what was exported, and that nobody holds."""
    store = made_in.store()
    metadata = open_or_create(store, now=now, parent=export.uuid)
    positions = {source: progress.position for source, progress in export.commit.sources.items()}
    for receiver, reached in places_in(positions).items():  # an export has no blocks: theirs begin where they ended
        close_holes(BlockLog(store, receiver), reached)
    log = Log(store)
    owned = hold_log(log, lambda view: identity.takeover(view, export.partitions, {}, checkpoint=metadata.uuid))
    place = Place(slot=owned.takeover_slot, takeover=owned.takeover_slot)
    who = {"epoch": owned.epoch, "writer": owned.writer, "place": place}
    owned.append(
        Restore(
            epoch=owned.epoch,
            writer=owned.writer,
            batch=export.commit.batch,
            source="import",
            saved=None,
            partitions=export.partitions or None,
            commit=export.commit.model_copy(update=who),
        )
    )
    owned.append(Release(epoch=owned.epoch, writer=owned.writer, reason="imported"))
    return metadata


def _refuse_old_decisions(store: CheckpointStore, job: str, batch: int) -> None:
    """Raise CannotCopy where somebody has decided on batches of that name whose ids will be used a second time."""
    cursor = Records(store, "assets", job).newest()
    decided = -1 if cursor is None else int(cursor.body["batch"])
    parts = [part for path in store.list(f"_control/held/{job}") for part in path.split("/")[3:4]]
    ids = [int(part) for part in parts if part.isdecimal()]
    if max(decided, *ids, -1) > batch:
        raise CannotCopy(
            f"a former checkpoint of {job} reached batch {max(decided, *ids)}, and decisions on its batches would be "
            "taken for decisions on new ones; import it under another name",
            where=f"{store.root}/_control",
        )


def read_export(source: CheckpointFolder) -> Export:
    """Return what an export holds; raises CannotCopy where there is none, CheckpointCorrupt and FormatTooNew."""
    path = source / EXPORT
    try:
        data = path.read()
    except StateMissing:
        raise CannotCopy("no export: export.json is not there", where=str(source)) from None
    _, body = fileformat.decode(data, kind=_KIND, path=str(path))
    try:
        export = Export.model_validate(body)
    except ValidationError as why:
        raise corrupt(str(path), f"not the fields of an export: {why.errors()[0]['loc']}") from why
    for step, refs in export.commit.state.items():
        plain = is_name(step) and all(
            part.isdecimal() and ref.path == PurePath(ref.path).name for part, ref in refs.items()
        )
        if not plain or step not in export.partitions:
            raise corrupt(str(path), f"the state of {step!r} is none that Penstock exports")
    return export


def _copy_tables(source: CheckpointFolder, target: CheckpointFolder, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Copy the rows of joined tables; where a file is gone, the next driver reads the table again."""
    here, there = (folder / FILES[0] / FILES[1] for folder in (source, target))
    names = {file_name(step, version) for step, version in tables.items()}
    files = [file for file in here.files() if file.name in names] if names else []
    if files:
        there.make()
        for file in files:
            copy_plain(file.fetch(), there)
        there.sync()


def _copy_state(
    source: CheckpointFolder, target: CheckpointFolder, state: Mapping[str, Mapping[str, ManifestRef]]
) -> None:
    """Copy all files that manifests name, durably, and read the copies."""
    for step, refs in state.items():
        for partition, ref in refs.items():
            here, there = source / step / partition, target / step / partition
            named = StateRef(ref.path, ref.size, ref.checksum)
            manifest = Manifest.read(here / ref.path, named)
            there.make()
            for name in [*manifest.files(), ref.path]:
                copy_plain((here / name).fetch(), there)
            there.sync()
            try:
                StateReader(there, Manifest.read(there / ref.path, named)).verify()
            finally:
                forget()
