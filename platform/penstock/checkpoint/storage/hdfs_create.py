"""Create one file on HDFS: a temporary file, a rename that refuses a taken name, and a look at the result.

FACTS 4: of racing renames exactly one wins. What an answer says is never trusted alone, for answers get lost, and HDFS
has answered a rename well while the file was missing (SPARK-40826).
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import AlreadyExists, CheckpointError, NotFound, StorageUnavailable

if TYPE_CHECKING:
    from penstock.checkpoint.storage.webhdfs import Calls, Status

__all__ = ["HdfsCreation"]


class HdfsCreation:
    """One create: a temporary file that gets its name, however many tries it takes.

    The file is known by its id, which a rename keeps: after a lost answer nothing else tells whose file has the name.
    To try the rename of the same file again is always safe, since at most one of the tries can succeed.
    """

    def __init__(
        self,
        calls: Calls,
        folder: str,
        name: str,
        data: bytes | memoryview,
        path: str,
        *,
        private: bool = True,
        replication: int | None = None,
    ) -> None:
        self.unknown = False
        """Whether the file may have been published, and neither it nor what it was made from is there (F24)."""
        self._calls = calls
        self._folder = folder
        self._target = f"{folder}/{name}"
        self._data = data
        self._path = path
        self._private = private
        self._replication = replication
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
            self._calls.write(temp, self._data, private=self._private, replication=self._replication)
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
