"""Keep a checkpoint in memory, for tests and for jobs that live only as long as their process."""

from __future__ import annotations

import threading

from penstock.checkpoint.storage.store import elements, folder_elements
from penstock.errors import AlreadyExists, CheckpointCorrupt, NotFound


class MemoryStore:
    """A `CheckpointStore` in a dict; it is as durable as the object."""

    root = "memory:"

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, path: str, data: bytes) -> None:
        """Add the file, or raise `AlreadyExists`."""
        elements(path)
        with self._lock:
            if path in self._files or self._is_folder(path):
                raise AlreadyExists("the name is taken", where=path, path=path)
            self._files[path] = bytes(data)

    def read(self, path: str) -> bytes:
        """Return the file's bytes, or raise `NotFound`."""
        elements(path)
        try:
            return self._files[path]
        except KeyError:
            if self._is_folder(path):
                raise CheckpointCorrupt("not a plain file", where=path) from None
            raise NotFound("no such file", where=path, path=path) from None

    def exists(self, path: str) -> bool:
        """Return whether the name is taken, by a folder with files too."""
        elements(path)
        return path in self._files or self._is_folder(path)

    def _is_folder(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in list(self._files))

    def list(self, prefix: str) -> list[str]:
        """List the files below a folder, sorted."""
        below = "".join(f"{part}/" for part in folder_elements(prefix))
        with self._lock:
            return sorted(path for path in self._files if path.startswith(below))

    def delete(self, path: str) -> None:
        """Remove the file if it is there."""
        elements(path)
        with self._lock:
            self._files.pop(path, None)

    def janitor(self, grace_seconds: float, now: float) -> int:
        """Return 0: no write leaves anything behind."""
        return 0
