"""Find what is damaged in the log of a Delta table, and say how to mend it."""

from __future__ import annotations

import json
import re
import stat
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from penstock.errors import SinkRefused
from penstock.sinks.delta.log_entry import LOG, entry_name, lacks_files

__all__ = ["refuse_shortened", "refuse_unreadable"]

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint(\.\d{10}\.(?P<parts>\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)"
)
_HINT = "_last_checkpoint"


class _Names:
    """The files of a log by what their names say they are."""

    def __init__(self, path: Path) -> None:
        self.entries: dict[int, Path] = {}
        parts: dict[tuple[int, int], list[Path]] = defaultdict(list)
        for file in sorted((path / LOG).iterdir()):
            if entry := _ENTRY.fullmatch(file.name):
                self.entries[int(entry[1])] = file
            elif summary := _CHECKPOINT.fullmatch(file.name):
                parts[int(summary["version"]), int(summary["parts"] or 1)].append(file)
        # Readers pass over one in parts of which some are missing: its writer may have died between two of them.
        self.checkpoints = {version: files for (version, wanted), files in parts.items() if len(files) >= wanted}

    def since(self, before: int | None = None) -> int:
        """Return the version of the newest checkpoint, or of the newest one before a version; -1 for none."""
        return max((version for version in self.checkpoints if before is None or version < before), default=-1)

    def lacking(self, since: int) -> int | None:
        """Return the first version after `since` that has no entry though a later one has; None where all have."""
        wanted = range(since + 1, max(self.entries, default=since) + 1)
        return next((version for version in wanted if version not in self.entries), None)


def refuse_shortened(path: Path) -> None:
    """Raise SinkRefused for an emptied entry that readers of the newest version need, or one of ours without its end.

    To delta-rs it is a version with fewer changes, so the rows of its batch would be missing in silence.
    """
    _refuse_entries(_Names(path), _is_short)


def refuse_unreadable(path: Path) -> None:
    """Raise SinkRefused for what keeps delta-rs from reading a table, if no later start would find it mended."""
    hinted = _hinted(path)  # before the listing: a writer names a checkpoint when it is there
    names = _Names(path)
    _refuse_entries(names, _is_torn)
    newest = names.since()
    for file in names.checkpoints.get(newest, ()):
        if not _can_be_read(file):
            others = names.lacking(names.since(before=newest)) is None
            raise SinkRefused(
                f"{file.name} of the table's log cannot be read. Put it back from a copy. "
                + (
                    f"Or move it and {_HINT} out of the log: older files say the same"
                    if others
                    else "No other file says the same"
                ),
                where=str(path),
            )
    if hinted > newest:
        raise SinkRefused(
            f"{_HINT} of the table's log names a checkpoint of version {hinted}, and there is none. Put that back from "
            f"a copy. Without one, move {_HINT} out of the log",
            where=str(path),
        )
    lacking = names.lacking(newest)
    if lacking is not None and not (path / LOG / entry_name(lacking)).exists():  # a listing may miss the newest
        raise SinkRefused(
            f"{entry_name(lacking)} is missing in the table's log. Put it back from a copy. {_without(lacking)}",
            where=str(path),
        )


def _refuse_entries(names: _Names, is_damaged: Callable[[Path], bool]) -> None:
    for version in sorted(version for version in names.entries if version > names.since()):
        with suppress(FileNotFoundError):  # cleaned since it was listed
            if is_damaged(names.entries[version]):
                raise SinkRefused(
                    f"{names.entries[version].name} of the table's log is torn or empty. Put it back from a copy. "
                    f"{_without(version)}",
                    where=str(names.entries[version].parent.parent),
                )


def _without(version: int) -> str:
    """Return what to do without a copy of a version's entry."""
    if not version:
        return "Without one, move the table away: the next start makes a new one, and finds what it lacks"
    return (
        "Without one, move all files of the same and later versions out of the log: the next start then finds what the "
        "table lacks"
    )


def _is_empty(entry: Path) -> bool:
    status = entry.stat()
    return not stat.S_ISREG(status.st_mode) or not status.st_size


def _is_short(entry: Path) -> bool:
    status = entry.stat()
    return _is_empty(entry) or _lacks_files(entry, status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1_000)  # an upsert loads the table for each batch
def _lacks_files(entry: Path, *_: int) -> bool:
    return lacks_files(entry.read_bytes())


def _is_torn(entry: Path) -> bool:
    if _is_empty(entry):
        return True
    try:
        lines = [json.loads(line) for line in entry.read_bytes().splitlines() if line]
    except ValueError:
        return True
    return not lines or not all(isinstance(line, dict) for line in lines)


def _can_be_read(checkpoint: Path) -> bool:
    import pyarrow.parquet as pq

    try:
        if _is_empty(checkpoint) or checkpoint.suffix == ".json":
            return not _is_torn(checkpoint)
        deque(pq.ParquetFile(checkpoint).iter_batches(), maxlen=0)
    except FileNotFoundError:
        return True  # cleaned since it was listed
    except pa.ArrowException:
        return False
    except OSError as why:
        if why.errno is not None:  # of the system, and not of Arrow
            raise
        return False
    return True


def _hinted(path: Path) -> int:
    """Return the version of the checkpoint that a log names as its last, -1 where it names none."""
    try:
        return int(json.loads((path / LOG / _HINT).read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1
