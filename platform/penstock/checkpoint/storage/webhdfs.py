"""Talk WebHDFS to one or several NameNodes, through HdfsCLI, within a deadline and in the errors of a store.

It alone knows requests, HdfsCLI and tenacity, and is imported when a store is made: a command line needs none of them.
It calls HdfsCLI's handlers with an underscore, so HdfsCLI's version is pinned. The public `rename` lacks the option by
which HDFS refuses a taken name, and the public `write` the one by which it refuses a lost folder.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import requests
from hdfs import HdfsError, InsecureClient
from hdfs.client import _Request
from tenacity import Retrying, retry_if_exception_type, wait_random_exponential

from penstock.errors import (
    AlreadyExists,
    CheckpointError,
    NotExclusive,
    NotFound,
    PathEscapes,
    RootUnsafe,
    StorageDenied,
    StorageFull,
    StorageUnavailable,
)

Answer = TypeVar("Answer")

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""The longest silence of a server, where the deadline is not earlier; a pause of its JVM is seldom longer."""
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0
_IMPATIENT_SECONDS = 2.0
"""What a call may take once one has waited in vain, until HDFS answers again: who is about to give up asks often."""
_LEAST_SPEED = 2**20
"""Bytes a second, for which a call has time besides its patience."""
_LEAST_SECONDS = 0.5
"""With less time than this another try would only put "no time" in the place of what HDFS has said."""
_PIECE = 2**20
_NO_DATANODE = re.compile("Failed to find datanode|could only be written to 0 of")
"""What HDFS says when no DataNode takes a block: none is up, or none has room."""
_LITTLE = 0.01
"""The part of all disks that is left when every DataNode may be full: each refuses blocks before its last byte."""
_get_status = _Request("GET").to_method("GETSTATUS")  # HdfsCLI lacks it
_list_part = _Request("GET").to_method("LISTSTATUS_BATCH")
_get_blocks = _Request("GET").to_method("GET_BLOCK_LOCATIONS")
_QUERY = re.compile(r"\?[^\s'\")]*")
_PRIVATE_FOLDER, _PRIVATE_FILE = "700", "600"

# By the simple names that WebHDFS gives; whatever is not here may be another answer when asked again.
_MEANINGS: dict[str, tuple[type[CheckpointError], str]] = {
    "FileNotFoundException": (NotFound, "no such file"),
    "FileAlreadyExistsException": (AlreadyExists, "the name is taken"),
    "AccessControlException": (StorageDenied, "not permitted"),
    "AuthorizationException": (StorageDenied, "not permitted"),
    "AuthenticationException": (StorageDenied, "not permitted"),
    "SecurityException": (StorageDenied, "not permitted"),
    "InvalidToken": (StorageDenied, "not permitted"),
    "NSQuotaExceededException": (StorageFull, "no room"),
    "DSQuotaExceededException": (StorageFull, "no room"),
    "QuotaByStorageTypeExceededException": (StorageFull, "no room"),
    "QuotaExceededException": (StorageFull, "no room"),
    "DiskOutOfSpaceException": (StorageFull, "no room"),
    "ParentNotDirectoryException": (RootUnsafe, "a file is where a folder should be"),
    "PathIsNotEmptyDirectoryException": (PathEscapes, "a folder, not a file"),
}


@dataclass(frozen=True, slots=True)
class Status:
    """A NameNode's status of a file or folder; `name` is empty when the request had its path.

    `file_id` is the number of its inode, which a rename keeps and no other file is given.
    """

    name: str
    kind: str
    length: int
    file_id: int
    modified: float
    """Seconds since 1970, by the NameNode's clock."""
    owner: str
    mode: int

    @property
    def is_file(self) -> bool:
        """Return whether it is a plain file."""
        return self.kind == "FILE"


class WebHdfs:
    """NameNodes of one name space, of which one is active.

    `connect(urls, session=session)` makes a client of HdfsCLI, whose `urls` are separated by `;`.
    A session is not made for several threads: each thread has a client of its own, which finds the active one itself.
    """

    def __init__(
        self,
        urls: Sequence[str],
        user: str | None,
        *,
        connect: Callable[..., Any] | None = None,
        patience: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._urls = ";".join(urls)
        self._connect = connect or partial(InsecureClient, user=user)
        self._patience = patience
        self._monotonic = monotonic
        self._sleep = sleep
        self._threads = threading.local()
        self._silent = False

    def calls(self, path: str, *, size: int = 0) -> Calls:
        """Begin the requests of one call of the store, which has so many bytes to carry.

        `path` is how errors name what it is about.
        """
        ends = self._monotonic() + (min(self._patience, _IMPATIENT_SECONDS) if self._silent else self._patience)
        ends += size / _LEAST_SPEED
        if not hasattr(self._threads, "client"):
            self._threads.session = _Session(self._monotonic)
            self._threads.client = self._connect(self._urls, session=self._threads.session)
        self._threads.session.ends = ends
        return Calls(self._threads.client, path, partial(self._again, ends))

    def _again(self, ends: float, attempt: Callable[[], Answer]) -> Answer:
        retrying = Retrying(
            retry=retry_if_exception_type(StorageUnavailable),
            wait=wait_random_exponential(multiplier=_FIRST_WAIT, max=_LONGEST_WAIT),
            stop=lambda state: self._monotonic() + state.upcoming_sleep > ends - _LEAST_SECONDS,
            sleep=self._sleep,
            reraise=True,
        )
        try:
            result = retrying(attempt)
        except CheckpointError as error:
            self._silent = isinstance(error, StorageUnavailable)
            raise
        self._silent = False
        return result


class Calls:
    """The requests of one call of a store, in one thread. All end at one deadline.

    Each is one try, which raises `StorageUnavailable` where another may do better; `again` repeats tries.
    Paths are absolute ones of HDFS.
    """

    def __init__(self, client: Any, path: str, again: Callable[[Callable[[], Any]], Any]) -> None:
        self._client = client
        self._path = path
        self._again = again

    @property
    def may_repeat(self) -> bool:
        """Return whether one request may reach several NameNodes, of which an earlier one has carried it out."""
        return len(self._client.urls) > 1

    def again(self, attempt: Callable[[], Answer]) -> Answer:
        """Try until something else than `StorageUnavailable` comes, or the deadline."""
        answer: Answer = self._again(attempt)
        return answer

    def status(self, path: str) -> Status | None:
        """Ask after a file or folder; None when nothing is there."""
        with self._named():
            try:
                status = self._client._get_file_status(path)  # noqa: SLF001
            except HdfsError as error:
                if error.exception == "FileNotFoundException":
                    return None
                raise
            return _status(status.json()["FileStatus"])

    def children(self, folder: str) -> list[Status]:
        """List a folder; empty where there is none."""
        with self._named():
            try:
                statuses = self._client._list_status(folder)  # noqa: SLF001
            except HdfsError as error:
                if error.exception == "FileNotFoundException":
                    return []
                raise
            listed = [_status(each) for each in statuses.json()["FileStatuses"]["FileStatus"]]
            return [each for each in listed if each.name]  # without a name it is the path itself, a file

    def some_children(self, folder: str, after: str) -> tuple[list[Status], int]:
        """List the names in a folder behind `after`, "" for the first, as many as a NameNode lists at a time.

        Returns them with how many are left. Raises `NotFound` where there is no folder.
        """
        with self._named():
            answer = _list_part(self._client, folder, startAfter=after).json()["DirectoryListing"]
            listed = [_status(each) for each in answer["partialListing"]["FileStatuses"]["FileStatus"]]
            return listed, answer["remainingEntries"]

    def is_being_written(self, path: str) -> bool:
        """Return whether somebody has a file open for writing: until it is closed its length may rise."""
        with self._named():
            blocks = _get_blocks(self._client, path, offset=0, length=1).json()["LocatedBlocks"]
            return bool(blocks["isUnderConstruction"])

    def user(self) -> str:
        """Return the name by which HDFS knows us, as owner of what we make: the last part of our home."""
        with self._named():
            home: str = self._client._get_home_directory("/").json()["Path"]  # noqa: SLF001
            return home.rsplit("/", 1)[-1]

    def make_folder(self, folder: str, *, private: bool = True) -> None:
        """Make a folder and those above it, or leave it as it is."""
        permission = {"permission": _PRIVATE_FOLDER} if private else {}
        try:
            with self._named():
                self._client._mkdirs(folder, **permission)  # noqa: SLF001
        except AlreadyExists as error:
            raise RootUnsafe("a file is where a folder should be", where=self._path, path=self._path) from error

    def write(
        self, path: str, data: bytes | memoryview, *, private: bool = True, replication: int | None = None
    ) -> None:
        """Write a new file in a folder that is there, or raise `NotFound`; it is closed when this returns.

        `replication` are the copies that HDFS keeps of it, None for as many as of other files.
        """
        try:
            with self._named():
                options = {"overwrite": "false", "createparent": "false"} | (
                    {"permission": _PRIVATE_FILE} if private else {}
                )
                if replication is not None:
                    options["replication"] = str(replication)
                place = self._client._create(path, **options).headers["location"]  # noqa: SLF001
                answer = self._client._request(method="PUT", url=place, data=data)  # noqa: SLF001
                if not answer:
                    raise _said_by(answer)
        except StorageUnavailable as error:
            if _NO_DATANODE.search(error.what) and self._is_full():
                problem = f"no room: the disks of all DataNodes are full; {error.what}"
                raise StorageFull(problem, where=self._path, path=self._path) from error
            raise

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, or raise `AlreadyExists` or `NotFound` (of the source)."""
        with self._named():
            self._client._rename(source, destination=target, renameoptions="NONE")  # noqa: SLF001

    def read(self, path: str, length: int, *, offset: int = 0) -> bytes:
        """Return so many bytes of a file that has them, or raise `NotFound`."""
        if not length:
            return b""  # HDFS would take it for all there are
        with self._named():
            with closing(self._client._open(path, offset=offset, length=length)) as answer:  # noqa: SLF001
                data = b"".join(answer.iter_content(_PIECE))
            if len(data) != length:
                problem = f"{len(data)} bytes of {length} came"
                raise StorageUnavailable(problem, where=self._path, path=self._path)
            return data

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, or nothing; raises `PathEscapes` for a folder that is not empty, if not all of it is to go."""
        with self._named():
            self._client._delete(path, recursive=str(recursive).lower()).json()["boolean"]  # noqa: SLF001 - any other 200 is no answer

    def _is_full(self) -> bool:
        """Return whether DataNodes are up and have no room; False where HDFS does not report it, as before 3.4."""
        with suppress(CheckpointError), self._named():
            status = _get_status(self._client, "/").json()["FsStatus"]
            return bool(status["remaining"] < _LITTLE * status["capacity"])
        return False

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn what HDFS, HTTP and the network say into the errors of a store."""
        path = self._path
        try:
            yield
        except HdfsError as error:
            raise _meaning(error, path) from error
        except CheckpointError:  # some are OSErrors or ValueErrors too
            raise
        # Not `from error`: its text has the address asked, and that has the token where HDFS gives one (F62).
        except (KeyError, ValueError) as error:
            problem = f"an answer that WebHDFS does not give: {_public(error)}"
            raise StorageUnavailable(problem, where=path, path=path) from None
        except OSError as error:  # all that requests raises is one
            raise StorageUnavailable(f"HDFS does not answer: {_public(error)}", where=path, path=path) from None


class _Session(requests.Session):
    """A session whose requests end at the deadline of the call they belong to, also those to another NameNode."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self.ends = 0.0
        self._monotonic = monotonic

    def request(self, method: str, url: str, **named: Any) -> requests.Response:  # type: ignore[override]
        """Send, and wait no longer than the deadline allows; each silence has its own timeout, as in requests."""
        left = self.ends - self._monotonic()
        if left <= 0:
            raise requests.Timeout("no time is left for another request")
        named["timeout"] = (min(left, CONNECT_SECONDS), min(left, ANSWER_SECONDS))
        return super().request(method, url, **named)


def _public(error: Exception) -> str:
    """Return what an error says, without what follows the path of an address."""
    return _QUERY.sub("?…", f"{type(error).__name__}: {error}")


def _status(fields: Mapping[str, Any]) -> Status:
    if "fileId" not in fields:
        # HttpFS does not say it; without it a name after a lost answer could be anybody's.
        raise NotExclusive("this gateway does not say which file is which, as a NameNode's own WebHDFS does")
    return Status(
        name=fields["pathSuffix"],
        kind=fields["type"],
        length=fields["length"],
        file_id=fields["fileId"],
        modified=fields["modificationTime"] / 1_000,
        owner=fields["owner"],
        mode=int(fields["permission"], 8),
    )


def _said_by(answer: requests.Response) -> HdfsError:
    """Read what a DataNode has against a request; HdfsCLI does this for NameNodes only."""
    body = answer.json()["RemoteException"]
    return HdfsError(body["message"], exception=body["exception"])


def _meaning(error: HdfsError, path: str) -> CheckpointError:
    message = (str(error).strip().splitlines() or ["nothing"])[0]  # what follows is a trace of Java's
    if error.exception is None and message.startswith("Authentication failure"):
        return StorageDenied(f"not permitted: {message}", where=path, path=path)
    kind, problem = _MEANINGS.get(error.exception or "", (StorageUnavailable, ""))
    if "must both be directories" in message:  # a rename onto a folder; it has no exception of its own
        kind, problem = AlreadyExists, "the name is taken"
    if kind is not StorageUnavailable:
        return kind(f"{problem}: {message}", where=path, path=path)
    if (
        "could only be written to 0 of" in message
        and "no node(s) are excluded" in message
        and "are 0 datanode" not in message
    ):
        # DataNodes are there, answer, and take nothing: their disks are full.
        return StorageFull(f"no room: {message}", where=path, path=path)
    return StorageUnavailable(f"HDFS says {error.exception or 'no more than'}: {message}", where=path, path=path)
