"""Keep a checkpoint on HDFS: a temporary file, a rename that refuses a taken name, and a look at the result.

FACTS 4: of racing renames exactly one wins. What an answer says is never trusted alone, for answers get lost, and HDFS
has answered a rename well while the file was missing (SPARK-40826).
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.storage.store import READ_CAP, corrupt, elements, folder_elements
from penstock.errors import (
    AlreadyExists,
    CheckpointError,
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
        self._check_root(self._web.calls(self.root), make=make)

    def create(self, path: str, data: bytes | memoryview) -> None:
        """Write a new file whole, or raise `AlreadyExists`; no failure leaves a part under the name.

        Raises `CommitUnknown` when the file may have been published and neither it nor its temporary file is there.
        """
        *parents, name = elements(path)
        folder = "/".join((self._folder, *parents))
        calls = self._web.calls(path, size=len(data))
        publication = _Create(calls, folder, name, data, path)
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
        """Return whether a plain file is there."""
        return self.size(path) is not None

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


class _Create:
    """One create: a temporary file that gets its name, however many tries it takes.

    The file is known by its id, which a rename keeps: after a lost answer nothing else tells whose file has the name.
    To try the rename of the same file again is always safe, since at most one of the tries can succeed.
    """

    def __init__(self, calls: Calls, folder: str, name: str, data: bytes | memoryview, path: str) -> None:
        self.unknown = False
        """Whether the file may have been published, and neither it nor what it was made from is there (F24)."""
        self._calls = calls
        self._folder = folder
        self._target = f"{folder}/{name}"
        self._data = data
        self._path = path
        self._temp: str | None = None
        self._file_id = -1
        self._left: set[str] = set()
        self._in_doubt = False  # whether a try to publish may have worked, or may still

    def attempt(self) -> None:
        """Write if that is not done, and publish; `NotFound` when the folder is not there."""
        if self._temp is None:
            self._temp = self._write()
        self._publish(self._temp)

    def tidy(self) -> None:
        """Remove what tries left behind, as far as HDFS lets us; the rest is the janitor's (F15)."""
        for temp in tuple(self._left):
            with suppress(CheckpointError):
                self._calls.delete(temp)
            self._left.discard(temp)

    def _write(self) -> str:
        # Another name each time: a write that failed half way may hold the old one until its lease ends.
        temp = f"{self._folder}/.tmp-{secrets.token_hex(16)}"
        self._left.add(temp)
        try:
            self._calls.write(temp, self._data)
        except NotFound:
            self._left.discard(temp)
            raise
        status = self._calls.status(temp)
        if status is None or status.length != len(self._data):
            arrived = "nothing" if status is None else f"{status.length}"
            raise self._unavailable(f"{arrived} of {len(self._data)} bytes arrived")
        self._file_id = status.file_id
        return temp

    def _publish(self, temp: str) -> None:
        answer: CheckpointError | None = None
        was_in_doubt, self._in_doubt = self._in_doubt, True
        try:
            self._calls.rename(temp, self._target)
        except StorageUnavailable:
            raise
        except CheckpointError as error:
            answer = error
            self._in_doubt = was_in_doubt or self._calls.may_repeat  # this try at least has done nothing
        # Whatever the answer is: an earlier try may have worked.
        try:
            status = self._calls.status(self._target)
        except StorageUnavailable:
            raise
        except CheckpointError as error:  # as of a token that has run out meanwhile: nothing is known by it
            self.unknown = self.unknown or self._in_doubt
            raise self._unavailable(f"HDFS does not say whether the file is there: {error.what}") from error
        if status is None or status.file_id != self._file_id:
            raise self._meaning(temp, answer, status)
        self._left.discard(temp)

    def _meaning(self, temp: str, answer: CheckpointError | None, status: Status | None) -> CheckpointError:
        """Return what it means that after an answer the name has another file, or none."""
        if answer is None:
            self.unknown = True
            return self._unavailable("HDFS has published a file that is not there")
        if isinstance(answer, NotFound):
            if self._in_doubt:
                self.unknown = True
                return self._unavailable("neither the file nor what it was made from is there")
            if status is None:
                self._temp = None  # nothing was published for certain, so another may be written
                return self._unavailable("the temporary file was taken away")
        elif self._in_doubt:
            # A try that was never answered may still be on its way, and find the name free one day. Only without the
            # temporary file is it certain that this call changes nothing.
            self._calls.delete(temp)
            self._left.discard(temp)
        if status is None and not isinstance(answer, AlreadyExists):
            return answer
        return AlreadyExists("the name is taken", where=self._path, path=self._path)

    def _unavailable(self, problem: str) -> StorageUnavailable:
        return StorageUnavailable(problem, where=self._path, path=self._path)
