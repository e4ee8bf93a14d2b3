"""Read a Great Expectations suite with our own strict parser (SEMANTICS 11.7).

GX drops an expectation of unknown type with a log line and loads the rest: a gate would then be open without a word.
Here every key is known or refused by name, with the file and line of the expectation.

A suite, in the form that GX writes and reads::

    {"name": "hourly",
     "expectations": [
       {"type": "expect_column_values_to_be_between",
        "kwargs": {"column": "mean_delay", "min_value": -60, "max_value": 300, "mostly": 0.95},
        "severity": "critical"}]}

Keys that GX carries along and that change no verdict are accepted and ignored: `id`, `meta`, `notes`, `description`,
`rendered_content`, `expectation_context`, and among the kwargs `result_format` and `catch_exceptions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from penstock.errors import SuiteError, SuiteMalformed, SuiteNotFound
from penstock.graph.graph import JobGraph
from penstock.quality.arguments import (
    Bound,
    bound_of,
    check_ignored,
    flag_of,
    kind_of,
    mostly_of,
    nearest,
    object_of,
    refuse_unknown,
    required,
    text_of,
    value_set_of,
)
from penstock.quality.json_text import Node, node_of, parse_json

__all__ = ["EXPECTATIONS", "Kind", "Rule", "Severity", "Suite", "find_suites", "load_suite"]


class Severity(Enum):
    """The weight of a failed rule: critical decides, warning and info are recorded (SEMANTICS 11.4)."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Kind(Enum):
    """Whether a rule judges each row by itself, or needs the whole unit."""

    ROW = "row"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One expectation as it was written; `position` counts from 1 and `where` is its place in the file."""

    position: int
    type: str
    kind: Kind
    severity: Severity
    where: str
    column: str | None = None
    mostly: float = 1.0
    min_value: Bound | None = None
    max_value: Bound | None = None
    strict_min: bool = False
    strict_max: bool = False
    value_set: tuple[Any, ...] = ()
    regex: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite: its name and its rules in the order of the file."""

    name: str
    rules: tuple[Rule, ...]


_COLUMN = frozenset({"column"})
_MAP = frozenset({"column", "mostly"})
_RANGE = frozenset({"min_value", "max_value", "strict_min", "strict_max"})

EXPECTATIONS: Mapping[str, tuple[Kind, frozenset[str]]] = {
    "expect_column_values_to_not_be_null": (Kind.ROW, _MAP),
    "expect_column_values_to_be_between": (Kind.ROW, _MAP | _RANGE),
    "expect_column_values_to_be_in_set": (Kind.ROW, _MAP | {"value_set"}),
    "expect_column_values_to_match_regex": (Kind.ROW, _MAP | {"regex"}),
    "expect_column_values_to_be_unique": (Kind.TABLE, _MAP),
    "expect_table_row_count_to_be_between": (Kind.TABLE, _RANGE),
    "expect_column_mean_to_be_between": (Kind.TABLE, _COLUMN | _RANGE),
    "expect_column_min_to_be_between": (Kind.TABLE, _COLUMN | _RANGE),
    "expect_column_max_to_be_between": (Kind.TABLE, _COLUMN | _RANGE),
    "expect_column_sum_to_be_between": (Kind.TABLE, _COLUMN | _RANGE),
}

_SUITE_KEYS = ("name", "expectations", "id", "meta", "notes", "suite_parameters")
_RULE_KEYS = (
    "type", "kwargs", "severity",
    "id", "meta", "notes", "description", "expectation_context", "rendered_content",
)  # fmt: skip
# GX lets these name or bound the rows that a rule sees; null is how it writes that they do not.
_ROW_CHOOSING = ("row_condition", "condition_parser", "batch_id", "windows")


def load_suite(path_or_dict: str | Path | Mapping[str, Any] | Suite, *, where: str) -> Suite:
    """Return the suite of a JSON file or a dict; one that was loaded before is returned as it is.

    `where` is the user's line, for what has no line of its own: a file that is not there, a suite given as a dict.
    Raises SuiteNotFound, SuiteMalformed (not a suite) or SuiteError (a suite that is not compiled).
    """
    if isinstance(path_or_dict, Suite):
        return path_or_dict
    if isinstance(path_or_dict, Mapping):
        return _suite(node_of(path_or_dict, f"{where}: suite"))
    path = Path(path_or_dict)
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise SuiteNotFound(f"suite {path} cannot be read: {problem.strerror}", where=where) from problem
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise SuiteMalformed("the suite is not UTF-8", where=f"{path}:{line}") from problem
    return _suite(parse_json(text, str(path)))


def find_suites(graph: JobGraph, folder: Path | None) -> Mapping[str, Any]:
    """Return for each check its dict or the path of its file; `folder` is the project's conf/quality."""
    suites: dict[str, Any] = {}
    for check in graph.checks:
        if not isinstance(check.suite, str):
            suites[check.name] = check.suite
            continue
        path = None if folder is None else folder / f"{check.suite}.json"
        if path is None or not path.is_file():
            place = "no folder for suites was given" if path is None else f"there is no {path}"
            raise SuiteError(
                f"check {check.name!r} needs the suite {check.suite!r}, and {place}", where=str(check.site)
            )
        suites[check.name] = path
    return suites


def _suite(node: Node) -> Suite:
    members = object_of(node, "the suite")
    refuse_unknown(members, _SUITE_KEYS, "key", "a suite", SuiteMalformed)
    check_ignored(members, meta=(dict,), id=(str,), notes=(str, list))
    parameters = members.get("suite_parameters")
    if parameters is not None and parameters.value:
        raise SuiteError("suite_parameters are not compiled: write the values themselves", where=parameters.where)
    name = required(members, "name", "the suite", node)
    if not isinstance(name.value, str) or not name.value.strip():
        raise SuiteMalformed(f"name is {name.kind} and must be text that is not empty", where=name.where)
    expectations = required(members, "expectations", "the suite", node)
    if not isinstance(expectations.value, list):
        raise SuiteMalformed(f"expectations is {expectations.kind} and must be a list", where=expectations.where)
    if not expectations.items:
        raise SuiteMalformed(f"suite {name.value!r} has no expectations: it would guard nothing", where=node.where)
    return Suite(name.value, tuple(_rule(item, place) for place, item in enumerate(expectations.items, start=1)))


def _rule(node: Node, position: int) -> Rule:
    members = object_of(node, f"expectation {position}")
    refuse_unknown(members, _RULE_KEYS, "key", f"expectation {position}", SuiteMalformed)
    check_ignored(
        members,
        id=(str,), description=(str,), notes=(str, list), meta=(dict,), expectation_context=(dict,),
        rendered_content=(list,),
    )  # fmt: skip
    kind_node = required(members, "type", f"expectation {position}", node)
    name = kind_node.value
    if not isinstance(name, str):
        raise SuiteMalformed(f"type is {kind_node.kind} and must be text", where=kind_node.where)
    if name not in EXPECTATIONS:
        raise SuiteError(f"expectation {position}: {name!r} is not compiled{nearest(name, EXPECTATIONS)}",
                         where=node.where)  # fmt: skip
    kind, arguments = EXPECTATIONS[name]
    kwargs_node = required(members, "kwargs", f"expectation {position}", node)
    kwargs = object_of(kwargs_node, "kwargs")
    label = f"expectation {position} ({name})"
    _check_arguments(kwargs, arguments, label)
    rule = Rule(
        position=position,
        type=name,
        kind=kind,
        severity=_severity(members.get("severity")),
        where=node.where,
        column=text_of(kwargs, "column", label, kwargs_node) if "column" in arguments else None,
        mostly=mostly_of(kwargs.get("mostly")),
        min_value=bound_of(kwargs, "min_value", name),
        max_value=bound_of(kwargs, "max_value", name),
        strict_min=flag_of(kwargs, "strict_min"),
        strict_max=flag_of(kwargs, "strict_max"),
        value_set=value_set_of(kwargs, label, kwargs_node) if "value_set" in arguments else (),
        regex=text_of(kwargs, "regex", label, kwargs_node) if "regex" in arguments else "",
    )
    _check_range(rule, label)
    return rule


def _check_arguments(kwargs: Mapping[str, Node], arguments: frozenset[str], label: str) -> None:
    for name, node in kwargs.items():
        if isinstance(node.value, dict) and "$PARAMETER" in node.value:
            raise SuiteError(f"{label}: suite parameter in {name!r} is not compiled", where=node.where)
        if name in _ROW_CHOOSING and node.value is not None:
            raise SuiteError(f"{label}: argument {name!r} is not compiled", where=node.where)
    allowed = (*sorted(arguments), "result_format", "catch_exceptions", *_ROW_CHOOSING)
    refuse_unknown(kwargs, allowed, "argument", label, SuiteError)
    for name, types in (("result_format", (str, dict)), ("catch_exceptions", (bool,))):
        node_or_none = kwargs.get(name)
        if node_or_none is not None and not isinstance(node_or_none.value, types):
            raise SuiteMalformed(f"{name} is {node_or_none.kind}", where=node_or_none.where)


def _check_range(rule: Rule, label: str) -> None:
    """Refuse what GX would answer with an exception whatever the rows are."""
    bounds = [b for b in (rule.min_value, rule.max_value) if b is not None]
    if rule.type == "expect_column_values_to_be_between" and not bounds:
        raise SuiteMalformed(f"{label}: min_value and max_value are both missing", where=rule.where)
    kinds = sorted({kind_of(b) for b in bounds})
    if len(kinds) > 1:
        raise SuiteMalformed(f"{label}: one bound is {kinds[0]} and the other {kinds[1]}", where=rule.where)
    if rule.type.startswith(("expect_column_mean", "expect_column_sum")) and kinds not in ([], ["a number"]):
        raise SuiteMalformed(f"{label}: a bound is {kinds[0]} and must be a number", where=rule.where)
    # GX compares an observed minimum or maximum as a timestamp without zone and raises beside one with a zone.
    if rule.type.startswith(("expect_column_min", "expect_column_max")) and "a timestamp with a zone" in kinds:
        raise SuiteMalformed(f"{label}: write the timestamp without a zone, in UTC", where=rule.where)
    ordered = rule.type in ("expect_column_values_to_be_between", "expect_table_row_count_to_be_between")
    if ordered and len(bounds) == 2 and bounds[0] > bounds[1]:  # type: ignore[operator]  # noqa: PLR2004 - a pair
        raise SuiteMalformed(f"{label}: min_value {bounds[0]} is above max_value {bounds[1]}", where=rule.where)


def _severity(node: Node | None) -> Severity:
    if node is None:
        return Severity.CRITICAL
    for severity in Severity:
        if node.value == severity.value:
            return severity
    raise SuiteMalformed(f"severity is {node.value!r} and must be critical, warning or info", where=node.where)
