"""Keep a checkpoint on HDFS, whose files are created as `hdfs_create` does it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from penstock.checkpoint.storage.hdfs_create import HdfsCreation
from penstock.checkpoint.storage.store import READ_CAP, corrupt, elements, folder_elements
from penstock.errors import (
    AlreadyExists,
    CommitUnknown,
    ConfigError,
    NotFound,
    PathEscapes,
    RootMissing,
    RootUnsafe,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

if TYPE_CHECKING:
    from penstock.checkpoint.storage.webhdfs import Calls, Status

PATIENCE = 30.0
"""Seconds; a failover takes less. A NameNode with many files may need minutes to start: for that the caller pauses."""

_ROOT = re.compile(
    r"(?P<scheme>s?webhdfs)://(?:(?P<user>[A-Za-z_][A-Za-z0-9._-]*)@)?"
    r"(?P<hosts>[A-Za-z0-9.-]+(?::\d{1,5})?(?:,[A-Za-z0-9.-]+(?::\d{1,5})?)*)"
    r"(?P<path>(?:/(?!\.)[A-Za-z0-9._=-]+)+)/?"
)
_SCHEMES = {"webhdfs": ("http", 9870), "swebhdfs": ("https", 9871)}
_WRITABLE_BY_OTHERS = 0o022
_TEMP = re.compile(r"\.tmp-[0-9a-f]{32}")
"""Names of temporary files, which no store lists; the same as those of `LocalStore`."""


class HdfsStore:
    """A `CheckpointStore` below a folder of HDFS, by the NameNodes' own WebHDFS.

    `root` is `webhdfs://[user@]host[:port][,host[:port]…]/path`, or `swebhdfs://` for TLS. Several hosts are the
    NameNodes of one name space; which of them is active is found out. Ports are those of WebHDFS (9870, 9871), not of
    `hdfs://`, which speaks another protocol and is refused. Without a user it is that of this process.

    `patience` is how many seconds a call may take. Within it the store retries, with jitter, a NameNode that restarts,
    is in safe mode or fails over. Then `StorageUnavailable` is raised and the caller waits; nothing is lost.
    `list` and `janitor` have it for each folder.

    `connect(urls, session=session)` makes the client of HdfsCLI: by itself an `InsecureClient`, for HDFS with Kerberos
    its `KerberosClient`, with the package it needs.

    The folder is made with mode 0700, or with `make` false `RootMissing` is raised where there is none. One that
    belongs to another user, or can be written by group or others, is refused with `RootUnsafe`. `monotonic` and `sleep`
    are for tests.
    """

    def __init__(
        self,
        root: str,
        *,
        make: bool = True,
        patience: float = PATIENCE,
        connect: Callable[..., Any] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        from penstock.checkpoint.storage.webhdfs import WebHdfs

        urls, user, self._folder = parse_root(root)
        self.root = root.rstrip("/")
        self._web = WebHdfs(urls, user, connect=connect, patience=patience, monotonic=monotonic, sleep=sleep)
        self._replication: int | None = None
        self._check_root(self._web.calls(self.root), make=make)

    def replicated(self, copies: int) -> Self:
        """Return the same store, of whose new files HDFS keeps so many copies, whatever it keeps of others."""
        other = copy(self)
        other._replication = copies  # noqa: SLF001 - of the same class
        return other

    def create(self, path: str, data: bytes | memoryview) -> None:
        """Write a new file whole, or raise `AlreadyExists`; no failure leaves a part under the name.

        Raises `CommitUnknown` when the file may have been published and neither it nor its temporary file is there.
        """
        *parents, name = elements(path)
        folder = "/".join((self._folder, *parents))
        calls = self._web.calls(path, size=len(data))
        publication = HdfsCreation(calls, folder, name, data, path, replication=self._replication)
        try:
            try:
                calls.again(publication.attempt)
            except NotFound:
                self._check_still_there(calls, path)
                calls.again(lambda: calls.make_folder(folder))
                calls.again(publication.attempt)
        except NotFound as error:
            raise StorageUnavailable("a folder was taken away", where=path, path=path) from error
        except StorageUnavailable as error:
            if publication.unknown:
                raise CommitUnknown(error.what, where=path, path=path) from error
            raise
        except (AlreadyExists, StorageFull, StorageDenied):
            publication.tidy()
            raise
        publication.tidy()

    def read(self, path: str) -> bytes:
        """Return the file's bytes; raises `NotFound`, or `CheckpointCorrupt` for anything but a plain file."""
        return self.read_range(path, 0, None, most=READ_CAP)

    def read_range(self, path: str, offset: int, size: int | None, *, most: int | None = None) -> bytes:
        """Return `size` bytes of a file from the offset, None for all; `most` is the largest size allowed.

        A file that ends before that raises `CheckpointCorrupt`.
        """
        full, status = self._full(elements(path)), self._status(path)
        if status is None:
            raise NotFound("no such file", where=path, path=path)
        if not status.is_file:
            raise corrupt(path, "not a plain file")
        wanted = status.length - offset if size is None else size
        if most is not None and wanted > most:
            raise corrupt(path, f"{wanted} bytes, more than any file of a checkpoint has")
        if offset + wanted > status.length:
            raise corrupt(path, f"{status.length} bytes, and those up to {offset + wanted} are wanted")
        reading = self._web.calls(path, size=wanted)
        return reading.again(lambda: reading.read(full, wanted, offset=offset))

    def exists(self, path: str) -> bool:
        """Return whether the name is taken, by a folder too, which `read` calls damage: no file can have that name."""
        return self._status(path) is not None

    def size(self, path: str) -> int | None:
        """Return how many bytes a plain file has, None where there is none."""
        status = self._status(path)
        return status.length if status is not None and status.is_file else None

    def list(self, prefix: str, *, before: float | None = None) -> list[str]:
        """List the files below a folder, sorted; names that no store writes are passed over.

        With `before`, seconds since 1970, only those that were written before that, by the NameNode's clock.
        """
        names = []
        for folder, files in self._walk(folder_elements(prefix)):
            for each in files if before is None else [file for file in files if file.modified < before]:
                with suppress(PathEscapes):
                    elements(each.name)
                    names.append("/".join((*folder, each.name)))
        return sorted(names)

    def folders(self, prefix: str) -> Sequence[str]:
        """Return the names of the folders right in a folder, sorted; "" is the root."""
        parts = folder_elements(prefix)
        calls = self._web.calls(prefix or self.root)
        children = calls.again(lambda: calls.children(self._full(parts)))
        return sorted(each.name for each in children if each.kind == "DIRECTORY")

    def delete(self, path: str) -> None:
        """Remove the file if it is there. Of a folder, one that holds nothing goes; others raise `PathEscapes`."""
        self._remove(elements(path))

    def is_taken(self, path: str) -> bool:
        """Return whether anything has a name, a folder as well."""
        full = self._full(elements(path))
        calls = self._web.calls(path)
        return calls.again(lambda: calls.status(full)) is not None

    def move_folder(self, source: str, target: str) -> None:
        """Give a folder that nobody writes to another name, whole; raises `AlreadyExists` where that is taken."""
        here, there = self._full(elements(source)), self._full(elements(target))
        calls = self._web.calls(target)
        moved = calls.again(lambda: calls.status(here))
        if moved is None:
            raise NotFound("no such folder", where=source, path=source)

        def attempt() -> bool:
            with suppress(AlreadyExists, NotFound):  # also by an earlier try whose answer was lost
                calls.rename(here, there)
            status = calls.status(there)
            return status is not None and status.file_id == moved.file_id

        if not calls.again(attempt):
            raise AlreadyExists("the name is taken", where=target, path=target)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it, or nothing."""
        self._remove(elements(path), recursive=True)

    def janitor(self, grace_seconds: float, now: float) -> int:
        """Remove temporary files older than the grace, and return how many (F15).

        `now` is the wall clock in seconds since 1970, which the NameNode's should be near to.
        The grace must be longer than any single write can take; a writer whose temporary file is taken away writes
        another, or does not know what became of it.
        """
        removed = 0
        for folder, files in self._walk(()):
            for each in files:
                if _TEMP.fullmatch(each.name) and each.modified < now - grace_seconds:
                    self._remove((*folder, each.name))
                    removed += 1
        return removed

    def _full(self, parts: Sequence[str]) -> str:
        return "/".join((self._folder, *parts))

    def _status(self, path: str) -> Status | None:
        """Ask after a file or folder; None where the root is there and has none."""
        full, calls = self._full(elements(path)), self._web.calls(path)
        status = calls.again(lambda: calls.status(full))
        if status is None:
            self._check_still_there(calls, path)
        return status

    def _remove(self, parts: Sequence[str], *, recursive: bool = False) -> None:
        calls, full = self._web.calls("/".join(parts)), self._full(parts)
        calls.again(lambda: calls.delete(full, recursive=recursive))

    def _walk(self, start: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Sequence[Status]]]:
        """Yield each folder from `start` down, with the plain files in it."""
        todo = [start]
        while todo:
            parts = todo.pop()
            calls, full = self._web.calls("/".join(parts) or self.root), self._full(parts)
            children = calls.again(lambda calls=calls, full=full: calls.children(full))  # type: ignore[misc]
            yield parts, [each for each in children if each.is_file]
            todo.extend((*parts, each.name) for each in children if each.kind == "DIRECTORY")

    def _check_root(self, calls: Calls, *, make: bool) -> None:
        status = calls.again(lambda: calls.status(self._folder))
        if status is None and not make:
            raise RootMissing("there is no such folder on HDFS", where=self.root)
        if status is None:
            above = self._folder.rpartition("/")[0]
            if above:  # those above are for others as well: not private
                calls.again(lambda: calls.make_folder(above, private=False))
            calls.again(lambda: calls.make_folder(self._folder))
            status = calls.again(lambda: calls.status(self._folder))
        user = calls.again(calls.user)
        if status is None:
            raise StorageUnavailable("the checkpoint root was taken away", where=self.root, path=self.root)
        if status.kind != "DIRECTORY":
            reason = "the checkpoint root is not a folder"
        elif status.owner != user:
            reason = f"the checkpoint root belongs to user {status.owner}, not to {user}"
        elif status.mode & _WRITABLE_BY_OTHERS:  # with an ACL, the bits of the group are the most that it gives anybody
            reason = "the checkpoint root can be written by group or others"
        else:
            return
        raise RootUnsafe(reason, where=self.root, path=self.root)

    def _check_still_there(self, calls: Calls, path: str) -> None:
        # Not the same as an empty checkpoint: a root that was removed, or another HDFS, must not look like a new job.
        if calls.again(lambda: calls.status(self._folder)) is None:
            raise StorageUnavailable("the checkpoint root is gone", where=self.root, path=path)


def parse_root(root: str) -> tuple[list[str], str | None, str]:
    """Split the URL of a root into the NameNodes' URLs, the user if one is named, and the folder.

    Raises `ConfigError` for anything else.
    """
    match = _ROOT.fullmatch(root)
    if match is None:
        problem = f"{root!r} is no root on HDFS: webhdfs://[user@]host[:port][,host[:port]...]/path is"
        if root.startswith("hdfs://"):
            problem = f"{problem}, with the port of WebHDFS (9870 by itself), which is not that of hdfs://"
        raise ConfigError(problem)
    scheme, port = _SCHEMES[match["scheme"]]
    hosts = [host if ":" in host else f"{host}:{port}" for host in match["hosts"].split(",")]
    return [f"{scheme}://{host}" for host in hosts], match["user"], match["path"]
