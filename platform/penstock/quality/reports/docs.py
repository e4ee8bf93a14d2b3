"""Build the Data Docs of Great Expectations for the newest windows that were judged.

Each build writes the whole index, in time that grows with the windows it lists (FACTS 7), so older windows are dropped.
"""

from __future__ import annotations

import json
import secrets
import shutil
import warnings
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

from penstock.quality.reports.judge import Judged, great_expectations
from penstock.quality.reports.pages import write_page

__all__ = ["KEPT", "are_old", "build_docs", "keep"]

KEPT = 50
"""Windows in the Data Docs."""
_BUILT = ".built.json"
"""Of which results the pages are."""


def keep(folder: Path, run: str, check: str, at: int, judged: Iterable[Judged]) -> list[Path]:
    """Keep the newest results of a run as JSON files in a folder, and return them.

    `at` is when the run was made, in microseconds since 1970. What an earlier try of the run has left goes.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in folder.glob(f"{'?' * 20}-{escape(run)}-{'?' * 5}.json"):
        old.unlink(missing_ok=True)
    kept = []
    for number, result in enumerate(list(judged)[-KEPT:]):
        path = folder / f"{at:020d}-{run}-{number:05d}.json"
        facts = {"run": run, "check": check, "at": at, "start": result.window.start, "end": result.window.end}
        write_page(path, json.dumps({**facts, "document": result.document}))
        kept.append(path)
    return kept


def are_old(results: Path, site: Path) -> bool:
    """Return whether the pages are not those of the newest results."""
    try:
        built = json.loads((site / _BUILT).read_text())
    except FileNotFoundError:
        built = []
    return bool(built != [path.name for path in _newest(results)])


def _newest(results: Path) -> list[Path]:
    return sorted(results.glob("*.json"))[-KEPT:]


def build_docs(results: Path, site: Path) -> Path:
    """Build the pages of the newest kept results, and delete the older ones.

    They are built in a new folder, which is then put where the old one was; returns their index.
    """
    newest = _newest(results)
    for old in set(results.glob("*.json")) - set(newest):
        old.unlink(missing_ok=True)
    fresh = site.with_name(f".{site.name}-{secrets.token_hex(4)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = great_expectations().get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        for name in list(context.get_site_names()):
            context.delete_data_docs_site(name)
        context.add_data_docs_site("penstock", _site(fresh))
        for path in newest:
            _store(context, json.loads(path.read_text()))
        context.build_data_docs()
    (fresh / _BUILT).write_text(json.dumps([path.name for path in newest]))
    before = site.with_name(f".{site.name}-old-{secrets.token_hex(4)}")
    if site.exists():
        site.rename(before)
    fresh.rename(site)
    shutil.rmtree(before, ignore_errors=True)
    return site / "index.html"


def _site(folder: Path) -> dict[str, Any]:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }


def _store(context: Any, kept: Mapping[str, Any]) -> None:
    from great_expectations.core.expectation_validation_result import expectationSuiteValidationResultSchema
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    result = expectationSuiteValidationResultSchema.load(kept["document"])
    # Its title would read a name of digits as a moment, and fail.
    named = RunIdentifier(
        run_name=f"report {kept['run']}", run_time=datetime.fromtimestamp(kept["at"] / 1_000_000, UTC)
    )
    result.meta["run_id"] = named
    start, end = (datetime.fromtimestamp(kept[name] / 1_000_000, UTC) for name in ("start", "end"))
    key = ValidationResultIdentifier(
        expectation_suite_identifier=ExpectationSuiteIdentifier(kept["check"]),
        run_id=named,
        batch_identifier=f"{kept['check']} {start:%Y-%m-%d %H.%M.%S.%f} to {end:%Y-%m-%d %H.%M.%S.%f}",
    )
    context.validation_results_store.set(key, result)
