"""Store the findings of reports in a Delta table: one row for each window, rule and run.

A run is committed once. The same commit holds how far the run has read the published table. So a run that is repeated,
or meets another, neither loses a window nor judges one twice.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import ReportImpossible
from penstock.quality.reports.judge import Judged

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["Results", "Run"]

_UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("at", _UTC),
        ("check", pa.string()),
        ("table_version", pa.int64()),
        ("window_start", _UTC),
        ("window_end", _UTC),
        ("rows", pa.int64()),
        ("engine", pa.string()),
        ("rule", pa.string()),
        ("severity", pa.string()),
        ("success", pa.bool_()),
        ("unexpected", pa.int64()),
        ("considered", pa.int64()),
        ("observed", pa.float64()),
        ("shown", pa.string()),
        ("error", pa.string()),
    ]
)
_TRIES = 10  # of a commit that another report's commit overtakes
_MANY_FILES = 50
"""Files from which on they are made one: each costs a millisecond whenever a page is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A report: its id, its check, when it ran (`at`, microseconds since 1970), and the table's version that it read.

    `cursor` is the version of the published table up to which its new windows have been judged, and `after` the cursor
    before the run. Both are None for a report on selected windows, which does not move the cursor. `source` is the id
    of the published table: a table that replaces it has a cursor of its own.
    """

    id: str
    check: str
    at: int
    version: int
    cursor: int | None = None
    after: int | None = None
    source: str | None = None


class Results:
    """The results of one job's reports; `path` is the folder of their table, which is made with the first of them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cursor(self, check: str, source: str | None = None) -> int | None:
        """Return the version up to which reports have judged the table `source`, its id; None before the first."""
        table = self._load()
        return None if table is None else table.transaction_version(_cursor(check, source))

    def has(self, run: str) -> bool:
        """Return whether a run was committed."""
        table = self._load()
        return table is not None and table.transaction_version(f"run/{run}") is not None

    def append(self, run: Run, judged: Iterable[Judged]) -> bool:
        """Commit a run; return False, and change nothing, where it was committed before or another was faster."""
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        rows = pa.Table.from_pylist([row for result in judged for row in _rows(run, result)], schema=SCHEMA)
        transactions = [Transaction(f"run/{run.id}", 1)]
        if run.cursor is not None:
            transactions.append(Transaction(_cursor(run.check, run.source), run.cursor))
        for _ in range(_TRIES):
            table = self._made()
            if table.transaction_version(f"run/{run.id}") is not None:
                return False
            seen = table.transaction_version(_cursor(run.check, run.source))
            if run.cursor is not None and (seen != run.after or (seen == run.cursor and not rows.num_rows)):
                return False
            try:
                write_deltalake(
                    table, rows, mode="append", commit_properties=CommitProperties(app_transactions=transactions)
                )
            except CommitFailedError:
                continue
            self._tidy()
            return True
        raise ReportImpossible(f"the results lost {_TRIES} races", where=str(self.path))

    def read(self, columns: Sequence[str] | None = None, *, run: str | None = None) -> pa.Table:
        """Return rows, all of them or those of a run."""
        table = self._load()
        if table is None:
            return SCHEMA.empty_table()
        import pyarrow.dataset as ds

        chosen = None if run is None else ds.field("run") == run
        return table.to_pyarrow_dataset().to_table(columns=list(columns) if columns else None, filter=chosen)

    def newest(self, days: int) -> pa.Table:
        """Return the rows of windows that begin within so many days of the newest, whatever their check."""
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        table = self._load()
        if table is None:
            return SCHEMA.empty_table()
        dataset = table.to_pyarrow_dataset()
        newest = pc.max(dataset.to_table(columns=["window_start"])["window_start"]).as_py()
        if newest is None:
            return SCHEMA.empty_table()
        return dataset.to_table(filter=ds.field("window_start") > pa.scalar(newest - timedelta(days=days), _UTC))

    def sweep(self) -> int:
        """Delete files that no version of the last week needs; return how many."""
        table = self._load()
        return 0 if table is None else len(table.vacuum(dry_run=False))

    def _tidy(self) -> None:
        """Make few files of many; one at a time, because two rewrites of the same files would both count."""
        from deltalake.exceptions import CommitFailedError

        with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another report is at it
            table = self._load()
            if table is None or len(table.file_uris()) < _MANY_FILES:
                return
            try:
                table.optimize.compact()
                table.create_checkpoint()
            except CommitFailedError:
                return  # the next report tidies

    def _load(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        return DeltaTable(str(self.path)) if DeltaTable.is_deltatable(str(self.path)) else None

    def _made(self) -> DeltaTable:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import CommitFailedError

        table = self._load()
        if table is not None:
            return table
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return DeltaTable.create(str(self.path), Schema.from_arrow(SCHEMA), mode="ignore")
        except CommitFailedError:
            return DeltaTable(str(self.path))  # another report has made it meanwhile


def _cursor(check: str, source: str | None) -> str:
    return f"cursor/{check}" if source is None else f"cursor/{check}/{source}"


def _rows(run: Run, judged: Judged) -> list[dict[str, object]]:
    window = judged.window
    common = {
        "run": run.id,
        "at": run.at,
        "check": run.check,
        "table_version": run.version,
        "window_start": window.start,
        "window_end": window.end,
        "rows": window.rows,
        "engine": judged.engine,
    }
    return [{**common, **asdict(finding)} for finding in judged.findings]
