"""Create a file and find out whose it is, when answers get lost on the way (F23, F24)."""

from __future__ import annotations

from contextlib import suppress

from penstock.checkpoint.storage.store import CheckpointStore
from penstock.errors import (
    AlreadyExists,
    CheckpointError,
    CommitUnknown,
    NotFound,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

_TRIES = 3


def create_or_read(store: CheckpointStore, path: str, data: bytes) -> bytes:
    """Create the file and return its certain content: `data`, or the bytes of another writer that was first.

    To create the same bytes again is always safe, so a lost acknowledgement is settled by trying again and reading.
    Callers put a random id into the bytes, or else they could not tell their own from another's.
    Raises `CommitUnknown` when the content is unknown, and whatever the store raises that means "nothing was changed".
    """
    cause: CheckpointError | None = None
    for _ in range(_TRIES):
        try:
            store.create(path, data)
            return data
        except AlreadyExists:
            pass
        except StorageUnavailable as error:
            cause = error
            continue
        except (StorageFull, StorageDenied) as error:
            if cause is None:
                raise
            cause = error  # this try changed nothing, but an earlier one may still arrive
            break
        try:
            return store.read(path)
        except (NotFound, StorageUnavailable) as error:
            cause = error
    with suppress(NotFound, StorageUnavailable):
        return store.read(path)
    why = "" if cause is None else f": {cause.what}"
    raise CommitUnknown(f"whether the file was written is unknown{why}", where=path, path=path) from cause
