"""Find in a Delta table's log the checkpoint that has written to it, without knowing the checkpoint (F19)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["former_writer"]

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def former_writer(table: Path, sink: str) -> str | None:
    """Return the uuid of a checkpoint whose batches a table shows under a sink's name, None where there is none.

    Commits are looked at from the newest back, then the newest summary, which has all that were before it.
    """
    wanted = re.compile(rf"({_UUID})/{re.escape(sink)}(/.*)?")
    for app in _apps(table / "_delta_log"):
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
