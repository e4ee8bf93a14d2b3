"""Join small files of a Delta table, beside a job that writes to it.

The rows stay the same, so the entry comes after whatever others commit meanwhile, as long as the joined files are in
the table still. It says that no data changes: who reads the table as a stream gets no row a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.checkpoint.storage.local import make_durable
from penstock.sinks.delta.data_files import DataFile, FileWriter, TableFiles, target_size
from penstock.sinks.delta.log_end import LogEnd, create_entry, load_with_end
from penstock.sinks.delta.log_entry import actions_of, optimized
from penstock.sinks.delta.merge import Rewrite, by_partition
from penstock.sinks.delta.periodic_folding import PeriodicFolding, folding_interval

__all__ = ["bins", "compact"]

_YOUNG = 60.0
"""Seconds: a merge may be about to replace files that were written just now."""


def compact(path: Path, *, now: float) -> tuple[int, int]:
    """Join small files, and return how many became how many; `now` in seconds since 1970.

    Files that another program removes meanwhile stay as that has them.
    """
    found = load_with_end(path)
    if found is None:
        return 0, 0
    table, end = found
    files, target, joined, made = TableFiles(table, path), target_size(table), 0, 0
    folding = PeriodicFolding(path, str(path))
    old = [file for file in files.all if file.modified < (now - _YOUNG) * 1_000]
    for partition, group in by_partition(old):
        for small in bins(group, target):
            with FileWriter(path, "compacted", files.schema, partition=partition, target=target) as writer:
                for file in small:
                    for rows in files.batches(files.whole(file)):
                        writer.write(rows)
            rewrite = Rewrite(version=files.version, removed=tuple(small), added=tuple(writer.files))
            make_durable(path)  # the names of the new files, before an entry has them
            version = _commit(end, rewrite, int(now * 1_000))
            if version is None:
                rewrite.discard(path)
                continue
            joined, made = joined + len(rewrite.removed), made + len(rewrite.added)
            folding.after(version, folding_interval(table))
    folding.wait()
    return joined, made


def bins(files: Iterable[DataFile], target: int) -> Iterator[list[DataFile]]:
    """Yield files that together make one of about `target` bytes; pure. Files of half of that stay as they are."""
    together: list[DataFile] = []
    for file in sorted((file for file in files if file.size < target / 2), key=lambda file: (file.modified, file.path)):
        if together and sum(other.size for other in together) + file.size > target:
            yield from [together] if len(together) > 1 else []
            together = []
        together.append(file)
    yield from [together] if len(together) > 1 else []


def _commit(end: LogEnd, rewrite: Rewrite, now: int) -> int | None:
    """Commit after what others have committed since, and return the version; None where that forbids it."""
    entry = optimized(rewrite.actions(now, data_change=False), read=rewrite.version, now=now)
    ours = {file.path for file in rewrite.removed}
    version = rewrite.version + 1
    while not create_entry(end, version, entry):
        actions = actions_of(end.path, version) if end.stands() else None
        if actions is None or any("metaData" in action or "protocol" in action for action in actions):
            return None
        if any(action["remove"]["path"] in ours for action in actions if "remove" in action):
            return None
        version += 1
    return version
