"""Name a folder of a checkpoint, or a file in one, on any file system, and say what every kind of place can do.

Code above this package holds a `CheckpointFolder` and does not ask which kind it is. `LocalFolder` is one that this
machine sees, `HdfsFolder` one on HDFS, with copies of its files here. Both are frozen, and can be sent to tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from penstock.errors import CheckpointCorrupt

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.checkpoint.storage.new_file import NewFile
    from penstock.checkpoint.storage.store import CheckpointStore

__all__ = ["CheckpointFolder", "Mapped", "Signature", "corrupt"]

Checked = TypeVar("Checked")

Signature = tuple[int, int, int]
"""Inode, time of change in nanoseconds, size in bytes: what tells a file from one put in its place."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """Hold a file that is mapped into memory; its pages are read when they are touched.

    `bring(offset, size)` brings these bytes of the file that this is a copy of, and returns False where it is none.
    Bytes that were never brought are zeros, and damage of a copy need not be damage of the file.
    """

    data: pa.Buffer
    signature: Signature
    bring: Callable[[int, int], bool]


class CheckpointFolder(Protocol):
    """A folder of a checkpoint, or a file in one; `str` of it is how people are shown the place.

    `folder / "name"` is the place below it. Two of the same place are equal, and sort by it.
    Methods raise `StorageDenied`, `StorageFull`, `RootUnsafe` or `StorageUnavailable`, each naming the place.
    A file "whose name is used once" has the run's random id in its name: a copy of it is right or absent.
    """

    @property
    def name(self) -> str:
        """The last part of the place."""

    @property
    def parent(self) -> Self:
        """The folder that has it."""

    @property
    def here(self) -> Path:
        """The place on this machine: its own, or that of its copy, and of what is on this machine alone."""

    @property
    def address(self) -> str:
        """The text from which `locate.folder_at` makes this folder again, on another machine too."""

    @property
    def fetched(self) -> int:
        """Bytes that this process has brought here from the root of this place."""

    def __truediv__(self, name: str, /) -> Self:
        """Return the place of that name below this folder."""

    def __lt__(self, other: Any, /) -> bool:
        """Sort by the place."""

    def relative_to(self, other: Any, /) -> PurePath:
        """Return the path from another folder to this place."""

    def store(self, *, make: bool = True) -> CheckpointStore:
        """Open the store whose root is this folder; raises `RootMissing` where it is missing and not to be made."""

    def hurried(self, seconds: float) -> Self:
        """Return the same place, whose calls wait at most so many seconds for another machine."""

    def uncached(self) -> AbstractContextManager[Self]:
        """Yield the same place without the copies of its files, for a check of the files themselves."""

    def size(self) -> int | None:
        """Return the size of the file in bytes, None where there is none; never that of a copy."""

    def is_taken(self) -> bool:
        """Return whether anything has this name."""

    def is_missing(self) -> bool:
        """Return whether there is no folder, as far as this machine knows by itself."""

    def files(self) -> list[Self]:
        """Return all files below the folder but temporary ones, sorted; none where there is no folder."""

    def folders(self) -> Sequence[str]:
        """Return the names of the folders right in the folder, sorted; raises `RootMissing` where there is none."""

    def presence(self) -> Callable[[Any], bool]:
        """Return what tells whether a file below the folder is there, for who asks after many."""

    def read(self) -> bytes:
        """Return the file as it is there, never a copy; raises `StateMissing`."""

    def read_checked(self, check: Callable[[bytes], Checked]) -> Checked:
        """Return what a check makes of a small file whose name is used once; raises `StateMissing`.

        Where the check raises `CheckpointCorrupt` for a copy, it is asked again about the file itself.
        """

    def map(self, size: int) -> Mapped:
        """Map a file that must have this size in bytes, and whose name is used once.

        Raises `StateMissing` where there is none and `CheckpointCorrupt` for another size.
        """

    def signature(self) -> Signature | None:
        """Return what tells this file from another of its name; None where there is none, or no copy."""

    def fetch(self) -> Path:
        """Return where a file whose name is used once can be read on this machine; raises `StateMissing`."""

    def fetch_anew(self) -> bool:
        """Bring the copy of a file again, and return whether it is one; raises `StateMissing` where there is none."""

    def make(self) -> None:
        """Make the folder, and those above it, durably and for this user alone.

        A folder that is there is synced too, once a process: the process that made it may have died before that.
        """

    def make_shared(self) -> None:
        """Make a folder that executors must see, as any process makes one; its errors name the folder above it."""

    def new_file(self, name: str) -> NewFile:
        """Begin a file in this folder, whose name is used once."""

    def sync(self) -> None:
        """Make the names in the folder durable: raises what has failed of files published since the last call."""

    def create(self, data: bytes) -> None:
        """Write a file whose name may be used again, durably, into a folder that is there; no copy of it is kept.

        Raises `SegmentExists` or `AlreadyExists` where the name is taken.
        """

    def create_fleeting(self, data: bytes) -> None:
        """Write a file that nobody needs once this process is gone, so not durably; its name is used once."""

    def stage(self, data: memoryview) -> None:
        """Write an output file durably, into a folder that others read as well; a file that has the name is left."""

    def adopt(self, file: Path, *, link: bool) -> None:
        """Have a file of this machine under this name too: by a link where that is wanted and possible, or a copy.

        Whatever has the name already is such a copy.
        """

    def move_to(self, target: Self, /) -> None:
        """Give a folder that is whole another name, durably; raises OSError or `AlreadyExists` where it is taken."""

    def remove(self) -> None:
        """Remove the file; to remove what is not there changes nothing."""

    def remove_files(self, files: Sequence[Any]) -> None:
        """Remove files below this folder, oldest first."""

    def remove_all(self) -> None:
        """Remove the folder with all that is in it, as far as that is possible."""

    def let_go(self, names: Collection[str]) -> None:
        """Remove copies in this folder that are older than all of these names: nobody reads them soon."""


def corrupt(file: CheckpointFolder, reason: str) -> CheckpointCorrupt:
    """Make the error for a damaged file; it names the batch that wrote it, which is in the file's name."""
    where, batch = str(file), file.name.split("-", 1)[0]
    if not batch.isdecimal():
        return CheckpointCorrupt(reason, where=where, path=where, reason=reason, batch=None)
    what = f"{reason}, in a file of batch {int(batch)}"
    return CheckpointCorrupt(what, where=where, path=where, reason=reason, batch=int(batch))
