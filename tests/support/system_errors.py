"""What the operating system may say of a write, and the error that it becomes."""

from __future__ import annotations

import errno

from penstock.errors import StorageDenied, StorageFull, StorageUnavailable

OF_WRITES = [
    (errno.ENOSPC, StorageFull),
    (errno.EDQUOT, StorageFull),
    (errno.EFBIG, StorageFull),
    (errno.EACCES, StorageDenied),
    (errno.EPERM, StorageDenied),
    (errno.EROFS, StorageDenied),
    (errno.EIO, StorageUnavailable),
]


def name_of(value: object) -> str | None:
    """Return how a test's id says it."""
    return errno.errorcode.get(value) if isinstance(value, int) else None
