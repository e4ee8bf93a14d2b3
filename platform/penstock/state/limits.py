"""Know the size of a step's state from its manifests alone, and which files no manifest names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import StateTooLarge
from penstock.state.manifest import Manifest
from penstock.state.refs import batch_of, is_file_name

__all__ = ["StateSize", "check_size", "size_of", "unreferenced"]


@dataclass(frozen=True, slots=True)
class StateSize:
    """Hold the size of a step's state over its partitions.

    `rows` counts old versions and tombstones too, until compaction has removed them; `files` are those on disk.
    """

    rows: int
    size: int
    files: int
    longest_chain: int


def size_of(manifests: Iterable[Manifest]) -> StateSize:
    """Return the size of the state that the manifests of a step's partitions name."""
    found = list(manifests)
    return StateSize(
        rows=sum(manifest.rows for manifest in found),
        size=sum(manifest.size for manifest in found),
        files=sum(len(manifest.sizes) for manifest in found),
        longest_chain=max((len(chain) for manifest in found for chain in manifest.chains.values()), default=0),
    )


def check_size(
    manifests: Iterable[Manifest], *, step: str, max_bytes: int | None = None, max_rows: int | None = None
) -> StateSize:
    """Return the size of a step's state, or raise `StateTooLarge` where it is above a cap (F60)."""
    found = size_of(manifests)
    for name, has, cap in (("bytes", found.size, max_bytes), ("rows", found.rows, max_rows)):
        if cap is not None and has > cap:
            what = f"the state of step {step!r} has {has:,} {name}, above its cap of {cap:,}"
            raise StateTooLarge(what, where=step, step=step, size=found.size, rows=found.rows, cap=cap)
    return found


def unreferenced(names: Iterable[str], kept: Iterable[Manifest], *, before: int) -> list[str]:
    """Return which segment files of a folder may be deleted: of batches earlier than `before`, in no kept manifest.

    `names` may be a stale listing (F29). Names that no segment has are never returned, nor are manifests.
    What a running batch or a zombie writes is of batch `before` or later, or is in no manifest for ever (F04, F30).
    """
    needed = {name for manifest in kept for name in manifest.sizes}
    candidates = (name for name in set(names) - needed if is_file_name(name))
    return sorted(name for name in candidates if (batch_of(name) or 0) < before)
