"""Define what every checkpoint store must do, and check that one really does it.

The whole protocol of DESIGN 4 is based on one promise: of all who create a name, exactly one succeeds.
"""

from __future__ import annotations

import re
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

from penstock.errors import (
    AlreadyExists,
    CheckpointCorrupt,
    CheckpointError,
    CommitUnknown,
    NotExclusive,
    NotFound,
    PathEscapes,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

MAX_PATH = 1_000
MAX_ELEMENT = 200
READ_CAP = 256 * 2**20
"""Largest file, in bytes, that `read` returns; a bigger one under a metadata name is an attack (F49)."""

_ELEMENT = re.compile(r"[a-z0-9_][a-z0-9_=-]*(?:\.[a-z0-9_=-]+)*")
_ROUNDS = 4
_TRIES = 3


class CheckpointStore(Protocol):
    """A flat space of small files below one root, each written once and whole.

    Paths are relative posix strings such as `log/000000000123`; `elements` says which are allowed.
    There is no append, no rename and no overwrite, so a reader sees a whole file or none.
    Every method may be called from several threads and processes at once.
    Besides the errors named below each method may raise `StorageDenied`, `RootUnsafe`, `PathEscapes`,
    or `StorageUnavailable` when the store does not answer.
    """

    @property
    def root(self) -> str:
        """Return the root's name for people, which errors and logs show."""

    def create(self, path: str, data: bytes) -> None:
        """Write a new file whole; it is durable when this returns.

        Raises `AlreadyExists` when the name is taken, which may be by this very call's earlier, unacknowledged try.
        `AlreadyExists`, `StorageFull` and `StorageDenied` mean that this call changed nothing.
        `StorageUnavailable` and `CommitUnknown` mean that the file may or may not be there, or may still appear.
        """

    def read(self, path: str) -> bytes:
        """Return the whole file; raises `NotFound`, and `CheckpointCorrupt` above `READ_CAP` bytes."""

    def exists(self, path: str) -> bool:
        """Return whether the name is taken now, so that `create` fails; the protocol trusts this answer, unlike `list`.

        By anything: what is no file is damage to `read`.
        """

    def list(self, prefix: str) -> list[str]:
        """List the files below the folder `prefix` ("" is the root), sorted, as paths from the root.

        Only a hint: it may be stale, miss files and name deleted ones. Left-over temporary files are never listed.
        """

    def delete(self, path: str) -> None:
        """Remove the file; to remove what is not there changes nothing and is no error."""

    def janitor(self, grace_seconds: float, now: float) -> int:
        """Remove temporary files that writers left and that are older than the grace; return how many (F15).

        `now` is the wall clock in seconds since 1970. A store that writes without temporary files has none.
        """


@lru_cache(maxsize=4_096)  # a driver asks after the same few names again and again
def elements(path: str) -> tuple[str, ...]:
    """Split a path into its elements, or raise `PathEscapes` (F61).

    Each element is lower-case letters, digits, `_`, `-`, `=` and single dots inside. So no element can be hidden, be
    `..`, or hold what Hadoop forbids, and two names never differ by case only.
    """
    parts = tuple(path.split("/"))
    if len(path) > MAX_PATH or not all(len(part) <= MAX_ELEMENT and _ELEMENT.fullmatch(part) for part in parts):
        raise PathEscapes(f"{path[:MAX_PATH]!r} is not a path that a checkpoint may use", path=path)
    return parts


def folder_elements(prefix: str) -> tuple[str, ...]:
    """Split the path of a folder; the empty path is the root."""
    return elements(prefix) if prefix else ()


def corrupt(path: str, reason: str) -> CheckpointCorrupt:
    """Make the error for a file that is not what its writer wrote; it carries `path` and `reason`."""
    return CheckpointCorrupt(reason, where=path, path=path, reason=reason)


def prove_exclusive(store: CheckpointStore) -> None:
    """Create the same names twice, one after the other and at once, and raise `NotExclusive` unless one wins (F32).

    Called once at start, before anything of the job is written.
    A store on NFS, or a gateway that drops the precondition, looks healthy until two drivers meet.
    """
    for prove in (_prove_in_turn, *[_prove_at_once] * _ROUNDS):
        path = f"_probe/{secrets.token_hex(16)}"
        try:
            prove(store, path)
        finally:
            store.delete(path)


def _prove_in_turn(store: CheckpointStore, path: str) -> None:
    store.create(path, b"first")
    try:
        store.create(path, b"second")
    except AlreadyExists:
        if store.read(path) == b"first":
            return
        raise NotExclusive("the store refused a second create but kept its bytes", where=store.root) from None
    raise NotExclusive("the store let the same name be created twice", where=store.root)


def _prove_at_once(store: CheckpointStore, path: str) -> None:
    start = threading.Barrier(2)

    def contend(data: bytes) -> bytes | None:
        start.wait()
        try:
            store.create(path, data)
        except AlreadyExists:
            return None
        return data

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(contend, (b"left", b"right")))
    winners = [outcome for outcome in outcomes if outcome is not None]
    if len(winners) != 1 or store.read(path) != winners[0]:
        raise NotExclusive(f"of two creates at once {len(winners)} won", where=store.root)


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
