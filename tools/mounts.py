"""Let one process see another disk at a folder than all others do."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

__all__ = ["ANOTHER", "APART", "READ_ONLY", "SMALL", "words_to_mount"]

ANOTHER = 'mount -t tmpfs none "$0"'
"""A disk of its own, empty."""
APART = 'mount --bind "$(mktemp -d "$0.XXXXXX")" "$0"'
"""A folder of its own on the same disk, beside the folder, empty; a new one for each process."""
SMALL = 'cp -a "$0" "$0.copy" && mount -t tmpfs -o size=%d none "$0" && cp -a "$0.copy/." "$0" && rm -r "$0.copy"'
"""A disk of its own of so many bytes, with what the folder holds."""
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"'
"""The same disk, which cannot be written."""


def words_to_mount(mount: str, folder: Path) -> list[str] | None:
    """Return the words before a command that is to see the mount; None where the system lets nobody mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    for namespace in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        words = ["unshare", *namespace, "sh", "-c", f'{mount} && exec "$@"', str(folder)]
        with suppress(FileNotFoundError):
            if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
                return words
    return None
