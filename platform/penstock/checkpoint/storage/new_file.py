"""Write a file of a checkpoint under a name of its own.

It is written under a temporary name, synced, and linked to its own: `link` refuses a name that is taken.
Temporary names are those of `LocalStore`, whose janitor removes what a crash leaves (F15).
"""

from __future__ import annotations

import os
import secrets
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from penstock.checkpoint.storage.local import NEW, named_errors
from penstock.errors import SegmentExists, StateMissing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NewFile", "state_errors", "state_missing"]


class NewFile:
    """A file that is being written and that nobody can see before `publish`.

    Leaving the context without `publish` removes what was written. `where` names the file in errors.
    """

    def __init__(self, place: Path, where: str) -> None:
        self.name = place.name
        self.size = 0
        self.where = where
        self._place = place
        self._temp = place.with_name(f".tmp-{secrets.token_hex(16)}")
        with state_errors(where):
            self._descriptor = os.open(self._temp, NEW, 0o600)
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append bytes; raises `StorageFull`, `StorageDenied` or `StorageUnavailable`, each naming the file."""
        rest = memoryview(data)
        self.size += len(rest)
        with state_errors(self.where):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def sync(self) -> None:
        """Make what was written durable, and close the file."""
        if self._open:
            self._open = False
            with state_errors(self.where):
                try:
                    self._make_durable(self._descriptor)
                finally:
                    os.close(self._descriptor)

    def publish(self) -> None:
        """Give the file its name, after `sync`; durable after the folder's `sync`. Raises `SegmentExists`."""
        self.sync()
        with state_errors(self.where):
            try:
                os.link(self._temp, self._place, follow_symlinks=False)
            except FileExistsError as error:
                raise SegmentExists("the name is taken", where=self.where, path=self.where) from error
        self._remove()

    def discard(self) -> None:
        """Remove the temporary file, if it is still there."""
        if self._open:
            self._open = False
            with suppress(OSError):
                os.close(self._descriptor)
        self._remove()

    def _make_durable(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def _remove(self) -> None:
        with suppress(OSError):  # a left-over is the janitor's (F15)
            self._temp.unlink()


def state_missing(where: str) -> StateMissing:
    """Make the error for a file that is not there."""
    return StateMissing("no such state file", where=where, path=where)


def state_errors(where: str) -> AbstractContextManager[None]:
    """Turn what the operating system says into the errors of a store; what is not there is `StateMissing`."""
    return named_errors(where, lambda _: state_missing(where))
