"""A cluster whose worker can have a disk of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mounts import ANOTHER, mounted

from tools.spark_cluster import Cluster as _Cluster

__all__ = ["Cluster"]


class Cluster(_Cluster):
    """A master and a worker."""

    @contextmanager
    def worker_apart(self, folder: Path) -> Iterator[None]:
        """Let the worker have another disk at a folder; skips where the system lets nobody mount one."""
        words = mounted(ANOTHER, folder)
        self.renew_worker(*words)
        yield
        self.renew_worker()
