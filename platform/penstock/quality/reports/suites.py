"""Read the suite of a report: any expectations that Great Expectations has, and which of them a gate could compile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import SuiteError, SuiteMalformed, SuiteNotFound
from penstock.quality.json_text import node_of, parse_json
from penstock.quality.suite import Rule, load_suite

__all__ = ["Expectation", "ReportSuite", "read_suite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One expectation as it was written; `rule` is how a gate reads it, None where a gate would refuse it."""

    name: str
    severity: str
    written: Mapping[str, Any]
    rule: Rule | None


@dataclass(frozen=True, slots=True)
class ReportSuite:
    """A suite: its name and its expectations in the order of the file."""

    name: str
    expectations: tuple[Expectation, ...]


def read_suite(path_or_dict: Path | Mapping[str, Any], *, where: str) -> ReportSuite:
    """Return the suite of a file or a dict; names of rules are those of the gate, `suite:position:type(column)`.

    Raises SuiteNotFound, and SuiteMalformed for what is no suite.
    """
    if isinstance(path_or_dict, Mapping):
        raw, place = dict(path_or_dict), where
        node_of(raw, where)
    else:
        place = str(path_or_dict)
        try:
            text = path_or_dict.read_text(encoding="utf-8")
        except OSError as why:
            raise SuiteNotFound(f"suite {path_or_dict} cannot be read: {why.strerror}", where=where) from why
        except UnicodeDecodeError as why:
            raise SuiteMalformed("the suite is not UTF-8", where=place) from why
        parse_json(text, place)  # refuses two equal keys and NaN, which the standard parser takes
        raw = json.loads(text)
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"].strip():
        raise SuiteMalformed("a suite is an object with a name and a list of expectations", where=place)
    listed = raw.get("expectations")
    if not isinstance(listed, list) or not listed:
        raise SuiteMalformed("the suite has no expectations: it would find nothing", where=place)
    return ReportSuite(
        raw["name"], tuple(_expectation(raw["name"], n, expectation, place) for n, expectation in enumerate(listed, 1))
    )


def _expectation(suite: str, position: int, written: object, where: str) -> Expectation:
    at = f"{where}: expectation {position}"
    if not isinstance(written, dict) or not isinstance(written.get("type"), str):
        raise SuiteMalformed("an expectation is an object with a type and kwargs", where=at)
    kwargs = written.get("kwargs", {})
    if not isinstance(kwargs, dict):
        raise SuiteMalformed("kwargs must be an object", where=at)
    severity = written.get("severity", "critical")
    if severity not in ("critical", "warning", "info"):
        raise SuiteMalformed(f"severity is {severity!r} and must be critical, warning or info", where=at)
    try:
        rule = load_suite({"name": suite, "expectations": [written]}, where=where).rules[0]
    except SuiteMalformed:
        raise
    except SuiteError:
        rule = None
    column = kwargs.get("column")
    name = f"{suite}:{position}:{written['type']}" + (f"({column})" if isinstance(column, str) else "")
    return Expectation(name=name, severity=severity, written=written, rule=rule)
