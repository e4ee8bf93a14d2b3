"""Write entries of a Delta table's log (Delta protocol, "Delta Log Entries" and "Actions"); pure."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from penstock.sinks.base import Publication

__all__ = ["appended", "entry_name"]


def entry_name(version: int) -> str:
    """Return the name of a version's entry in `_delta_log`."""
    return f"{version:020}.json"


def appended(publication: Publication, now: int) -> bytes:
    """Return the entry that adds a publication's files, and notes app and batch; `now` in milliseconds since 1970.

    For tables whose writer protocol asks no more of an append (versions 1 and 2, nothing partitioned, no invariants).
    """
    operation: dict[str, Any] = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now, **operation, "engineInfo": "penstock"}},
        # Without `lastUpdated`, by which a reader may take an app for forgotten: its batch would be published again.
        {"txn": {"appId": publication.app, "version": publication.batch}},
    ]
    for file in publication.files:
        add = {"path": quote(file.path), "partitionValues": {}, "size": file.size, "modificationTime": now}
        actions.append({"add": {**add, "dataChange": True, "stats": json.dumps({"numRecords": file.rows})}})
    return "".join(json.dumps(action) + "\n" for action in actions).encode()
