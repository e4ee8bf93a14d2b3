"""Give a checkpoint its identity: `metadata.json`, created once and never rewritten.

The uuid names the checkpoint to every sink, so a new one would let batches be published a second time (F17).
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from penstock.checkpoint.log.entries import Record
from penstock.checkpoint.storage import format as fileformat
from penstock.checkpoint.storage.numbered_files import Sequence
from penstock.checkpoint.storage.store import CheckpointStore, create_or_read
from penstock.errors import CheckpointCorrupt, CheckpointPartial, MetadataDamaged, MetadataMissing, NotFound

PATH = "metadata.json"
_KIND = "metadata"
_PARTS = ("state", "staged", "snapshots")
"""What a driver writes only behind its first entry in the log."""


class Metadata(Record):
    """The identity of a checkpoint; `created` is in microseconds since 1970, `format` that of its maker.

    `parent` is the uuid of the imported checkpoint, None for one that began empty.
    """

    uuid: str
    format: int
    created: int
    parent: str | None = None


def open_or_create(store: CheckpointStore, *, now: int, parent: str | None = None) -> Metadata:
    """Return the checkpoint's metadata, made now (in microseconds) if the store holds no log yet.

    Of several drivers that make it at once all return the same.
    `parent` is given for a copy, whose state comes before its log. Raises `MetadataMissing` when there is a log (F17),
    `CheckpointPartial` when there is none and a part of a checkpoint, `MetadataDamaged` and `FormatTooNew`.
    """
    if parent is None:
        refuse_part(store)
    with suppress(NotFound):
        return read_metadata(store)
    if _has_log(store):
        return metadata_of_log(store)  # looked for again, because another driver may have made both since
    fresh = Metadata(uuid=str(uuid.uuid4()), format=fileformat.FORMAT_VERSION, created=now, parent=parent)
    data = fileformat.encode(_KIND, fresh.model_dump(mode="json"))
    return _parse(create_or_read(store, PATH, data), f"{store.root}/{PATH}")


def refuse_part(store: CheckpointStore) -> None:
    """Raise `CheckpointPartial` where state or output of a checkpoint is there and its log is gone."""
    if _has_log(store):
        return
    left = [name for name in _PARTS if store.list(name)]
    if left and not _has_log(store):  # another driver may have begun since
        listed = ", ".join(left)
        raise CheckpointPartial(f"the log is gone, and there is {listed}", where=store.root, left=left)


def _has_log(store: CheckpointStore) -> bool:
    log = Sequence(store, "log", (1,))
    return log.exists(0) or bool(log.listed())


def read_metadata(store: CheckpointStore) -> Metadata:
    """Return the metadata; raises `NotFound`, `MetadataDamaged` or `FormatTooNew`."""
    return _parse(store.read(PATH), f"{store.root}/{PATH}")


def metadata_of_log(store: CheckpointStore) -> Metadata:
    """Return the metadata of a store that holds a log.

    Raises `MetadataMissing` where there is none (F17), `MetadataDamaged` and `FormatTooNew`.
    """
    try:
        return read_metadata(store)
    except NotFound as why:
        raise MetadataMissing("a log without its metadata", where=f"{store.root}/{PATH}", path=PATH) from why


def uuid_in(store: CheckpointStore) -> str | None:
    """Return the uuid of a checkpoint, None where it has none; raises `MetadataDamaged` and `FormatTooNew`."""
    try:
        return read_metadata(store).uuid
    except NotFound:
        return None


def refuse_other(known: str | None, uuid: str | None) -> None:
    """Raise MetadataDamaged where the metadata is that of another checkpoint than the one that a log is `known` by.

    None is what nobody knows: a log that was written before its Takeovers said it.
    """
    if known is not None and uuid is not None and known != uuid:
        raise _damaged(PATH, f"it is that of checkpoint {uuid}, and the log is that of {known}")


def uuid_of(root: CheckpointStore, job: str) -> str | None:
    """Return the uuid of a job's checkpoint, None where it has none; `root` is the store of the folder of all jobs.

    Raises `MetadataDamaged` and `FormatTooNew`.
    """
    try:
        return _parse(root.read(f"{job}/{PATH}"), f"{root.root}/{job}/{PATH}").uuid
    except NotFound:
        return None


def _parse(data: bytes, path: str) -> Metadata:
    try:
        _, body = fileformat.decode(data, kind=_KIND, path=path)
    except CheckpointCorrupt as error:
        raise _damaged(path, error.what) from error
    try:
        return Metadata.model_validate(body)
    except ValueError as error:
        raise _damaged(path, "not the fields of metadata") from error


def _damaged(path: str, reason: str) -> MetadataDamaged:
    return MetadataDamaged(reason, where=path, path=path, reason=reason)
