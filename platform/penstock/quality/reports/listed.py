"""Note what the newest reports of a job found, for lists of jobs that are not to read the results. Pure."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from penstock.quality.reports.summary import history, runs

__all__ = ["noted"]

_RUNS = 40


def noted(rows: pa.Table) -> str:
    """Return as JSON the newest runs, oldest first, and by check how its windows stand; times are microseconds."""
    listed: dict[str, Any] = {"runs": [], "checks": []}
    if rows.num_rows:
        newest = runs(rows)[:_RUNS][::-1]
        listed["runs"] = [
            {"at": run.at, "check": run.check, "verdict": run.verdict, "windows": run.windows, "failed": run.failed}
            for run in newest
        ]
        listed["checks"] = [
            {"check": check.check, "windows": check.windows, "failed": check.failed, "noted": check.noted}
            for check in history(rows)
        ]
    return json.dumps(listed)
