"""Operators that look after what streams have made: quality reports, and checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from penstock.airflow.cli_process import PenstockOperator
from penstock.airflow.command_context import command_id

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["CheckpointUpkeep", "QualityReport"]

_MOST_REPORTS = 100
"""Reports that one try makes: the next run makes the rest of a longer backlog."""


class QualityReport(PenstockOperator):
    """Judge the windows that a job has published since its last report, or the newest few, and write the pages.

    `check` names one check; without it each on windows. `newest` is a number of windows, or text of one; nothing means
    what is new. With `fail` the task fails where a window failed; else it succeeds when the report is made.
    Returns a list with a dict for each report: check, verdict, windows, failed, noted, page.
    """

    template_fields: Sequence[str] = ("job", "project", "check", "newest")

    def __init__(
        self, *, check: str | None = None, newest: int | str | None = None, fail: bool = False, **rest: Any
    ) -> None:
        super().__init__(**rest)
        self.check = check
        self.newest = newest
        self.fail = fail

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Make reports until nothing waits; a try again counts what earlier ones have made."""
        reports: list[dict[str, Any]] = []
        base = hashlib.sha256(command_id(context).encode()).hexdigest()[:16]
        for number in range(_MOST_REPORTS):
            words = ["report", self.job, "--if-any", "--run", f"{base}-{number}"]
            words += ["--check", self.check] if self.check else []
            words += ["--newest", str(self.newest)] if self.newest else []
            made = self._penstock(*words)
            for report in made:
                self.log.info("%(check)s: %(verdict)s, %(windows)s windows, %(failed)s failed; %(page)s", report)
            reports += [report for report in made if report["windows"] or not number]
            if not any(report["more"] for report in made):
                break
        failed = {report["check"] for report in reports if report["verdict"] == "failed"}
        if self.fail and failed:
            raise AirflowFailException(f"windows failed: {', '.join(sorted(failed))}")
        return reports


class CheckpointUpkeep(PenstockOperator):
    """Read all that a job can restore, sweep what drivers and reports have left, and maintain the tables of its sinks.

    Fails where it finds damage. Returns a dict with the counts of what it read: batches, files, bytes, problems. Its
    `sinks` have for each table the small files `joined`, and the files `deleted`.
    """

    template_fields: Sequence[str] = ("job", "project")

    def execute(self, context: Context) -> dict[str, Any]:
        """Verify and maintain."""
        facts, *sinks = self._penstock("upkeep", self.job)
        self.log.info("%(job)s: %(batches)s batches, %(files)s files, %(bytes)s bytes, all read", facts)
        for sink in sinks:
            self.log.info("%(sink)s: %(joined)s files joined, %(deleted)s deleted, %(size)s bytes", sink)
        return {**facts, "sinks": sinks}
