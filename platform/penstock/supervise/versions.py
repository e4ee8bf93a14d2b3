"""Keep the code of streams: a copy of `jobs/` and `conf/` for each content that has run.

A stream runs the code of its start, whatever is edited meanwhile; a restart takes the code of that time. So the
supervisor restarts a dead driver with the same code, and can roll back to code that ran well (DESIGN 11).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

__all__ = ["Versions"]

_PARTS = ("jobs", "conf")
_PASSING = shutil.ignore_patterns("__pycache__", ".*")
_KEPT = 10
_LENGTH = 12


class Versions:
    """The versions of one project in one folder."""

    def __init__(self, folder: Path, project: Path) -> None:
        self._folder = folder
        self._project = project

    def take(self) -> str:
        """Copy what is there now, unless it was copied before; return its name, the start of its sha256.

        A file that changes while it is copied gives the name of what was copied.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._folder / f".new-{secrets.token_hex(8)}"
        try:
            for part in _PARTS:
                if (self._project / part).is_dir():
                    shutil.copytree(self._project / part, fresh / part, ignore=_PASSING)
            name = _digest(fresh)
            target = self.folder(name)
            if target.is_dir():
                os.utime(target)
                return name
            try:
                fresh.rename(target)
            except OSError:
                if not target.is_dir():  # else another supervisor was faster with the same
                    raise
            return name
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def folder(self, name: str) -> Path:
        """Return where a version is."""
        return self._folder / name

    def prune(self, used: Collection[str]) -> None:
        """Delete all but the newest few and those in use."""
        versions = sorted((p for p in self._folder.glob("[!.]*") if p.is_dir()), key=lambda p: p.stat().st_mtime)
        for old in versions[:-_KEPT]:
            if old.name not in used:
                shutil.rmtree(old, ignore_errors=True)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:_LENGTH]
