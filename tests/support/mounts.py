"""Let one process see another disk at a folder than all others do, in tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mounts import ANOTHER, APART, READ_ONLY, SMALL, words_to_mount

__all__ = ["ANOTHER", "APART", "READ_ONLY", "SMALL", "mounted"]


def mounted(mount: str, folder: Path) -> list[str]:
    """Return the words before a command that is to see the mount; skips where the system lets nobody mount one."""
    words = words_to_mount(mount, folder)
    if words is None:
        pytest.skip("a disk of its own for a process cannot be mounted here: unshare(1) does not work")
    return words
