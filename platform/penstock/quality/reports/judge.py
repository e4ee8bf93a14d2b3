"""Let Great Expectations judge windows, one at a time: on pandas where that finds what Spark finds, else on Spark."""

from __future__ import annotations

import json
import logging
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from penstock.errors import EnvironmentUnfit, SuiteError
from penstock.quality.reports.agreement import for_pandas, pandas_agrees
from penstock.quality.reports.published import Published, Window
from penstock.quality.reports.suites import ReportSuite

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Finding", "Judge", "Judged", "great_expectations"]

_FRESH_AFTER = 500
"""Windows after which what Great Expectations remembers of them is thrown away with its context."""
_PLACE = "penstock_place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one rule on one window.

    `unexpected` of the `considered` rows failed, for rules on rows. `observed` is a number that was compared, and
    `shown` what was compared where it is no number. `error` says why Great Expectations could not judge.
    """

    rule: str
    severity: str
    success: bool
    unexpected: int | None = None
    considered: int | None = None
    observed: float | None = None
    shown: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One window with what was found; `document` is Great Expectations' own result, as JSON."""

    window: Window
    engine: str
    findings: tuple[Finding, ...]
    document: Mapping[str, Any]


def great_expectations() -> Any:
    """Return the module, which is slow to load, loaded so that it sends and prints nothing.

    Raises EnvironmentUnfit where it is not installed.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import great_expectations as module
        except ImportError as why:
            raise EnvironmentUnfit(f"reports need the extra `quality` of penstock: {why}") from None
    return module


class Judge:
    """Judge windows by one suite.

    Windows of more than `pandas_rows` rows go to Spark; `spark` may be one that is opened when it is first used.
    """

    def __init__(self, suite: ReportSuite, *, pandas_rows: int, spark: Any) -> None:
        self._suite = suite
        self._pandas_rows = pandas_rows
        self._spark = spark
        self._gx = great_expectations()
        self._definition()  # refuses what Great Expectations does not know before anything is read

    def judge(self, published: Published) -> Iterator[Judged]:
        """Yield each window's result, in the order of the windows."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number, (window, rows) in enumerate(published.rows(self._pandas_rows)):
                if number % _FRESH_AFTER == 0:
                    engines = _Engines(self._gx)
                if rows is not None and all(
                    pandas_agrees(expectation.rule, rows) for expectation in self._suite.expectations
                ):
                    engine, frame = "pandas", for_pandas(rows).to_pandas(date_as_object=True)
                else:
                    engine, frame = "spark", self._frame(published, window, rows)
                batch = engines.batch(engine, frame)
                result = batch.validate(self._definition(), result_format=dict(_FORMAT))
                yield self._judged(window, engine, result)

    def _frame(self, published: Published, window: Window, rows: pa.Table | None) -> Any:
        if rows is None:
            return published.frame(self._spark, window)
        from pyspark.sql.types import StructType

        # Of a table with an empty chunk in front of others, createDataFrame loses rows (pyspark 4.2.0).
        return self._spark.createDataFrame(
            rows.combine_chunks(), StructType.fromJson(json.loads(published.schema_json))
        )

    def _definition(self) -> Any:
        """Return the suite as Great Expectations reads it, which drops what it does not know."""
        listed = [
            {**expectation.written, "meta": {**(expectation.written.get("meta") or {}), _PLACE: place}}
            for place, expectation in enumerate(self._suite.expectations)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                suite = self._gx.ExpectationSuite(name=self._suite.name, expectations=listed)
            except Exception as why:  # noqa: BLE001 - its validators raise errors of several libraries
                raise SuiteError(f"Great Expectations does not take the suite {self._suite.name!r}: {why}") from None
        known = {expectation.meta[_PLACE] for expectation in suite.expectations}
        missing = [expectation.name for place, expectation in enumerate(self._suite.expectations) if place not in known]
        if missing:
            raise SuiteError(f"Great Expectations does not know, or does not take, {', '.join(missing)}")
        return suite

    def _judged(self, window: Window, engine: str, validation: Any) -> Judged:
        ordered = sorted(validation.results, key=lambda result: result.expectation_config.meta[_PLACE])
        findings = tuple(
            _finding(expectation.name, expectation.severity, result)
            for expectation, result in zip(self._suite.expectations, ordered, strict=True)
        )
        document = validation.to_json_dict()
        for result in document["results"]:
            result["expectation_config"]["meta"].pop(_PLACE, None)
        return Judged(window=window, engine=engine, findings=findings, document=document)


_FORMAT = {"result_format": "SUMMARY", "partial_unexpected_count": 5}


class _Engines:
    """A context of Great Expectations in memory, and its two ways to a batch."""

    def __init__(self, gx: Any) -> None:
        self._context = gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = {"globally": False}
        self._definitions: dict[str, Any] = {}

    def batch(self, engine: str, frame: Any) -> Any:
        """Return a batch of a frame in memory, pandas', or of one of Spark."""
        if engine not in self._definitions:
            add = getattr(self._context.data_sources, f"add_{engine}")
            asset = add(engine).add_dataframe_asset("window")
            self._definitions[engine] = asset.add_batch_definition_whole_dataframe("window")
        return self._definitions[engine].get_batch({"dataframe": frame})


def _finding(rule: str, severity: str, result: Any) -> Finding:
    numbers = result.result or {}
    error = _error(result.exception_info)
    if error is None and not numbers:
        error = "it gave no result"
    unexpected = numbers.get("unexpected_count")
    considered = None if unexpected is None else numbers.get("element_count", 0) - numbers.get("missing_count", 0)
    observed = numbers.get("observed_value")
    number = float(observed) if isinstance(observed, Real) and not isinstance(observed, bool) else None
    return Finding(
        rule=rule,
        severity=severity,
        success=bool(result.success) and error is None,
        unexpected=unexpected,
        considered=considered,
        observed=None if number is None or math.isnan(number) else number,
        shown=None if observed is None or number is not None else str(observed),
        error=error,
    )


def _error(info: Mapping[str, Any] | None) -> str | None:
    """Return what Great Expectations raised; it tells one error, or one for each number that it computed."""
    if not info:
        return None
    errors = [info] if "raised_exception" in info else [error for error in info.values() if isinstance(error, dict)]
    raised = [str(error.get("exception_message")) for error in errors if error.get("raised_exception")]
    return raised[0] if raised else None
