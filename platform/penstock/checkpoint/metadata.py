"""Give a checkpoint its identity: `metadata.json`, created once and never rewritten.

The uuid names the checkpoint to every sink, so a new one would let batches be published a second time (F17).
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from penstock.checkpoint import format as fileformat
from penstock.checkpoint.entries import Record
from penstock.checkpoint.sequence import Sequence
from penstock.checkpoint.settle import ReadBack, settle
from penstock.checkpoint.store import CheckpointStore, corrupt
from penstock.errors import MetadataMissing, NotFound

PATH = "metadata.json"
_KIND = "metadata"


class Metadata(Record):
    """The identity of a checkpoint; `created` is in microseconds since 1970, `format` that of its maker.

    `parent` is the uuid of the checkpoint that it was imported from, None where it began with nothing.
    """

    uuid: str
    format: int
    created: int
    parent: str | None = None


def open_or_create(
    store: CheckpointStore, *, now: int, read_back: ReadBack = ReadBack.SKIP, parent: str | None = None
) -> Metadata:
    """Return the checkpoint's metadata, made now (in microseconds) if the store holds no log yet.

    Of several drivers that make it at once all return the same.
    Raises `MetadataMissing` when there is a log (F17), `CheckpointCorrupt` and `FormatTooNew`.
    """
    with suppress(NotFound):
        return read_metadata(store)
    log = Sequence(store, "log", (1,))
    if log.exists(0) or log.listed():
        # Looked for again, because another driver may have made both since.
        with suppress(NotFound):
            return read_metadata(store)
        raise MetadataMissing("a log without its metadata", where=f"{store.root}/{PATH}", path=PATH)
    fresh = Metadata(uuid=str(uuid.uuid4()), format=fileformat.FORMAT_VERSION, created=now, parent=parent)
    data = fileformat.encode(_KIND, fresh.model_dump(mode="json"))
    return _parse(settle(store, PATH, data, read_back))


def read_metadata(store: CheckpointStore) -> Metadata:
    """Return the metadata; raises `NotFound`, `CheckpointCorrupt` or `FormatTooNew`."""
    return _parse(store.read(PATH))


def _parse(data: bytes) -> Metadata:
    _, body = fileformat.decode(data, kind=_KIND, path=PATH)
    try:
        return Metadata.model_validate(body)
    except ValueError as error:
        raise corrupt(PATH, "not the fields of metadata") from error
