"""Read and write the entries of a Delta table's log, and make durable what others have written into a table.

The formats are those of the Delta protocol ("Delta Log Entries" and "Actions").
Neither delta-rs nor delta-spark calls fsync (F73). After a later Commit the driver never repeats a publication or a
truncation. So it must be durable before that Commit: a power cut must not undo it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from penstock.checkpoint.storage.local import make_durable
from penstock.sinks.base import Publication

__all__ = [
    "LOG",
    "Actions",
    "actions_of",
    "appended",
    "entry_name",
    "find_commit",
    "fingerprint_of",
    "former_writer",
    "lacks_files",
    "make_entries_durable",
    "make_table_durable",
    "merged",
    "merged_by",
    "optimized",
    "user_metadata",
]

Actions = list[dict[str, Any]]
"""What a commit did to a table, as its entry in the log says it."""
LOG = "_delta_log"
"""The folder of a table's log."""
_ENGINE = "penstock"
_METRICS = {
    "add": {"WRITE": "numFiles", "MERGE": "numTargetFilesAdded", "OPTIMIZE": "numAddedFiles"},
    "remove": {"MERGE": "numTargetFilesRemoved", "OPTIMIZE": "numRemovedFiles"},
}
"""How Delta calls the number of actions of a kind, by operation."""
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def entry_name(version: int) -> str:
    """Return the name of a version's entry in `_delta_log`."""
    return f"{version:020}.json"


def appended(publication: Publication, now: int) -> bytes:
    """Return the entry that adds a publication's files, and notes app and batch; `now` in milliseconds since 1970.

    For tables whose writer protocol asks no more of an append (versions 1 and 2, nothing partitioned, no invariants).
    """
    operation: dict[str, Any] = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now, **operation, "engineInfo": _ENGINE, **_note(publication)}},
        # Without `lastUpdated`, by which a reader may take an app for forgotten: its batch would be published again.
        {"txn": {"appId": publication.app, "version": publication.batch}},
    ]
    for file in publication.files:
        add = {"path": quote(file.path), "partitionValues": {}, "size": file.size, "modificationTime": now}
        actions.append({"add": {**add, "dataChange": True, "stats": json.dumps({"numRecords": file.rows})}})
    return _lines(actions)


def merged(publication: Publication, files: Actions, *, keys: Sequence[str], read: int, now: int) -> bytes:
    """Return the entry that a merge commits directly after version `read`; `now` in milliseconds since 1970.

    `files` are its removals and additions. `keys` are those of which the table is known to have one row each.
    """
    info = _info("MERGE", {"keys": json.dumps(list(keys))}, read=read, now=now)
    info["commitInfo"] |= _note(publication)
    txn = {"txn": {"appId": publication.app, "version": publication.batch}}
    return _lines([info, txn, *files])


def user_metadata(publication: Publication) -> str | None:
    """Return what the history of a table shows beside a batch, None for nothing: the fingerprint of its files."""
    return None if publication.fingerprint is None else f"files {publication.fingerprint}"


def _note(publication: Publication) -> dict[str, str]:
    said = user_metadata(publication)
    return {} if said is None else {"userMetadata": said}


def fingerprint_of(path: Path, version: int | None) -> int | None:
    """Return the fingerprint that the entry of a version notes, None where it notes none or is gone."""
    for action in (None if version is None else actions_of(path, version)) or ():
        first, _, number = str(action.get("commitInfo", {}).get("userMetadata")).partition(" ")
        if first == "files" and number.isdecimal():
            return int(number)
    return None


def optimized(files: Actions, *, read: int, now: int) -> bytes:
    """Return the entry that puts files in the places of others with the same rows, of version `read`."""
    return _lines([_info("OPTIMIZE", {}, read=read, now=now), *files])


def merged_by(actions: Actions) -> list[str]:
    """Return the keys that an entry of ours leaves with one row each, none for other entries."""
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    if info.get("engineInfo") != _ENGINE or info.get("operation") != "MERGE":
        return []
    return list(json.loads(info["operationParameters"]["keys"]))


def _info(operation: str, parameters: Mapping[str, str], *, read: int, now: int) -> dict[str, Any]:
    facts = {"operation": operation, "operationParameters": parameters, "readVersion": read, "isBlindAppend": False}
    return {"commitInfo": {"timestamp": now, **facts, "engineInfo": _ENGINE}}


def lacks_files(entry: bytes) -> bool:
    """Return whether an entry of ours has other numbers of files than it says in its first line.

    Its last lines are missing then, though each line is whole, or the first is damaged. Entries of others, and of
    former versions, tell nothing.
    """
    first, *others = entry.splitlines() or [b""]
    if f'"engineInfo": "{_ENGINE}"'.encode() not in first:
        return False
    try:
        info: Mapping[str, Any] = json.loads(first)["commitInfo"]
        operation, said = info["operation"], info.get("operationMetrics") or {}
        return any(
            said.get(names.get(operation)) not in (None, str(sum(_is(kind, line) for line in others)))
            for kind, names in _METRICS.items()
        )
    except (ValueError, LookupError, TypeError, AttributeError):  # readers of the table pass over its damage
        return True


def _is(kind: str, line: bytes) -> bool:
    return line.startswith(f'{{"{kind}"'.encode())


def _lines(actions: Actions) -> bytes:
    """Return the lines of an entry, of which the first gets the numbers of files in the others."""
    info = actions[0]["commitInfo"]
    counts = {kind: sum(kind in action for action in actions) for kind in _METRICS}
    names = {kind: names.get(info["operation"]) for kind, names in _METRICS.items()}
    info["operationMetrics"] = {name: str(counts[kind]) for kind, name in names.items() if name is not None}
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def actions_of(table: Path, version: int) -> Actions | None:
    """Return what the commit of a version did, None where a checkpoint of the log may have it: it is gone, or torn."""
    try:
        lines = (table / LOG / entry_name(version)).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (FileNotFoundError, ValueError):
        return None


def find_commit(path: Path, newest: int, app: str, batch: int) -> int | None:
    """Return the version that has a batch of an app, None where its entry is gone."""
    there = (int(entry.stem) for entry in (path / LOG).glob("*.json") if entry.stem.isdecimal())
    for version in sorted((number for number in there if number <= newest), reverse=True):
        for action in actions_of(path, version) or ():
            txn = action.get("txn")
            if txn is not None and txn["appId"] == app and txn["version"] == batch:
                return version
    return None


def make_table_durable(path: Path) -> None:
    """Have a table that was just made be there after a power cut, with the folders above it that may be new as well."""
    log = path / LOG
    for made in (log / entry_name(0), log, path, *path.parents[:2]):
        make_durable(made)


def make_entries_durable(path: Path, versions: Iterable[int]) -> None:
    """Sync the entries of versions, the files that they add, and the folders that have their names."""
    folders = {path / LOG, path}
    for version in versions:
        for action in actions_of(path, version) or ():
            if "add" in action:
                file = path / unquote(action["add"]["path"])
                _sync_with_sums(file)
                folders.update(folder for folder in file.parents if folder.is_relative_to(path))
        for made in (
            path / LOG / entry_name(version),
            path / LOG / f"{version:020}.crc",
            path / LOG / f"{version:020}.checkpoint.parquet",
        ):
            _sync_with_sums(made)
    _sync_with_sums(path / LOG / "_last_checkpoint")
    for folder in sorted(folders, reverse=True):
        make_durable(folder)


def _sync_with_sums(file: Path) -> None:
    """Sync a file, and the one beside it that Hadoop compares it with: torn, it makes the file unreadable for Spark."""
    make_durable(file)
    make_durable(file.with_name(f".{file.name}.crc"))


def former_writer(table: Path, sink: str) -> str | None:
    """Return the uuid of a checkpoint whose batches a table shows under a sink's name, None where there is none (F19).

    Commits are looked at from the newest back, then the newest summary, which has all that were before it.
    """
    wanted = re.compile(rf"({_UUID})/{re.escape(sink)}(/.*)?")
    for app in _apps(table / LOG):
        match = wanted.fullmatch(app)
        if match:
            return match[1]
    return None


def _apps(log: Path) -> Iterator[str]:
    for commit in sorted(log.glob("*.json"), reverse=True):
        for line in commit.read_text("utf-8").splitlines():
            if line.startswith('{"txn"'):
                yield str(json.loads(line)["txn"]["appId"])
    summaries = sorted(log.glob("*.checkpoint*.parquet"))
    newest = summaries[-1].name.partition(".")[0] if summaries else ""
    for summary in log.glob(f"{newest}.checkpoint*.parquet") if newest else ():
        import pyarrow.parquet as pq

        if "txn" in pq.read_schema(summary).names:
            rows = pq.read_table(summary, columns=["txn"]).column("txn").to_pylist()
            yield from (row["appId"] for row in rows if row is not None and row["appId"])
