"""The parser of suites takes what GX writes and refuses everything else by name and place (SEMANTICS 11.7)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SuiteError, SuiteMalformed, SuiteNotFound
from penstock.quality.json_text import MAX_CHARACTERS, Node, parse_json
from penstock.quality.suite import EXPECTATIONS, Kind, Severity, load_suite

ROOT = Path(__file__).resolve().parents[3]

NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "v"}}
BETWEEN = "expect_column_values_to_be_between"


def only_rule(expectation: dict):
    """Return the only rule of a suite of one expectation."""
    return load_suite({"name": "s", "expectations": [expectation]}, where="jobs/j.py:7").rules[0]


def plain(node: Node) -> object:
    if isinstance(node.value, dict):
        return {key: plain(member) for key, member in node.value.items()}
    return [plain(item) for item in node.value] if isinstance(node.value, list) else node.value


# --- what is read ----------------------------------------------------------------------------


def test_the_suite_of_the_demo_is_read_with_its_severities():
    """The suite in conf/quality is one that the gate compiles, with six row rules and one for the table."""
    suite = load_suite(ROOT / "conf" / "quality" / "hourly_quality.json", where="test")
    assert suite.name == "hourly_quality"
    assert [rule.kind for rule in suite.rules] == [Kind.ROW] * 6 + [Kind.TABLE]
    assert [rule.position for rule in suite.rules if rule.severity is Severity.WARNING] == [6]
    assert [rule.mostly for rule in suite.rules if rule.column == "mean_delay"] == [0.95]


def test_what_gx_carries_along_changes_nothing():
    """Keys of GX that change no verdict are taken and ignored, and null stands for absent where GX writes it so."""
    dressed = {
        "name": "s", "id": "3f0e", "meta": {"great_expectations_version": "1.24.1"}, "notes": None,
        "suite_parameters": {},
        "expectations": [{
            "type": BETWEEN, "severity": "info", "id": "a", "notes": ["n"], "description": None, "rendered_content": [],
            "expectation_context": {"description": "d"}, "meta": {"anything": [1, {"x": None}]},
            "kwargs": {"column": "v", "min_value": 1, "max_value": None, "row_condition": None,
                       "condition_parser": None, "batch_id": None, "windows": None,
                       "result_format": "BASIC", "catch_exceptions": False},
        }],
    }  # fmt: skip
    bare = {
        "name": "s",
        "expectations": [{"type": BETWEEN, "severity": "info", "kwargs": {"column": "v", "min_value": 1}}],
    }
    read, expected = (load_suite(suite, where="w").rules[0] for suite in (dressed, bare))
    assert read == expected
    assert read.severity is Severity.INFO


def test_numbers_become_doubles_as_in_gx_but_row_counts_stay_whole():
    """GX compares with the double nearest to a bound, except for row counts."""
    between = only_rule({"type": BETWEEN, "kwargs": {"column": "v", "min_value": 2**53 + 1}})
    rows = only_rule(
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 2**53 + 1, "max_value": 1e300}}
    )
    assert (between.min_value, type(between.min_value)) == (float(2**53), float)
    assert (rows.min_value, rows.max_value) == (2**53 + 1, int(1e300))


def test_all_expectations_of_the_issue_are_known():
    """Issue 3 item 7 lists what must be compiled."""
    assert set(EXPECTATIONS) >= {
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_be_unique",
        "expect_table_row_count_to_be_between",
        "expect_column_mean_to_be_between",
        "expect_column_min_to_be_between",
        "expect_column_max_to_be_between",
        "expect_column_sum_to_be_between",
    }


# --- what is refused -------------------------------------------------------------------------


def kwargs(type_: str = BETWEEN, **arguments: object) -> dict:
    return {"type": type_, "kwargs": {"column": "v", "min_value": 1, **arguments}}


REFUSED = {
    "unknown type": ({"type": "expect_column_stdev_to_be_between", "kwargs": {}}, "expect_column_stdev_to_be_between"),
    "type of old GX": ({"expectation_type": BETWEEN, "kwargs": {}}, "'expectation_type'.*did you mean 'type'"),
    "no type": ({"kwargs": {}}, "'type'"),
    "type a number": ({"type": 3, "kwargs": {}}, "type is a number"),
    "no kwargs": ({"type": BETWEEN}, "'kwargs'"),
    "kwargs a list": ({"type": BETWEEN, "kwargs": []}, "kwargs is a list"),
    "row condition": (kwargs(row_condition="v > 1"), "'row_condition' is not compiled"),
    "condition parser": (kwargs(condition_parser="spark"), "'condition_parser' is not compiled"),
    "windows": (kwargs(windows=[{}]), "'windows' is not compiled"),
    "old argument": (kwargs(parse_strings_as_datetimes=True), "'parse_strings_as_datetimes'"),
    "argument of another": (kwargs("expect_column_min_to_be_between", mostly=0.5), "'mostly'"),
    "severity in kwargs": (kwargs(severity="info"), "'severity'"),
    "suite parameter": (kwargs(max_value={"$PARAMETER": "x"}), "suite parameter in 'max_value'"),
    "severity unknown": (kwargs() | {"severity": "Critical"}, "'Critical'"),
    "severity null": (kwargs() | {"severity": None}, "severity"),
    "unknown key": (kwargs() | {"mostly": 0.5}, "'mostly'"),
    "no column": ({"type": BETWEEN, "kwargs": {"min_value": 1}}, "'column'"),
    "column empty": (kwargs(column=""), "column"),
    "column a number": (kwargs(column=1), "column is a number"),
    "mostly above 1": (kwargs(mostly=1.5), "mostly is 1.5"),
    "mostly true": (kwargs(mostly=True), "mostly is True"),
    "mostly text": (kwargs(mostly="0.5"), "mostly is '0.5'"),
    "mostly null": (kwargs(mostly=None), "mostly is None"),
    "mostly NaN": (kwargs(mostly=math.nan), "mostly is nan"),
    "flag a number": (kwargs(strict_min=1), "strict_min is a number"),
    "flag null": (kwargs(strict_max=None), "strict_max is null"),
    "no bound": ({"type": BETWEEN, "kwargs": {"column": "v"}}, "both missing"),
    "bound true": (kwargs(min_value=True), "min_value is true or false"),
    "bound text": (kwargs(min_value="five"), "'five'"),
    "bound number as text": (kwargs(min_value="5"), "'5'"),
    "bound empty": (kwargs(min_value=""), "min_value is text"),
    "bound no date": (kwargs(min_value="2013-02-30"), "2013-02-30"),
    "bound NaN": (kwargs(min_value=math.nan), "NaN"),
    "bound too large": (kwargs(min_value=10**400), "double"),
    "bounds crossed": (kwargs(max_value=0), "min_value 1.0 is above max_value 0.0"),
    "bounds of two kinds": (kwargs(max_value="2013-01-01"), "a date and the other a number"),
    "date and timestamp": (kwargs(min_value="2013-01-01", max_value="2013-01-02T00:00:00"), "timestamp without a zone"),
    "zone and none": (kwargs(min_value="2013-01-01T00:00", max_value="2013-01-02T00:00:00Z"), "with a zone"),
    "minimum with a zone": (
        kwargs("expect_column_min_to_be_between", min_value="2013-01-01T00:00:00Z"), "without a zone, in UTC"),
    "mean of dates": (kwargs("expect_column_mean_to_be_between", min_value="2013-01-01"), "must be a number"),
    "row count of a column": (kwargs("expect_table_row_count_to_be_between"), "'column'"),
    "row count a fraction": (
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1.5}}, "whole number"),
    "row count infinite": (
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": math.inf}}, "whole number"),
    "row counts crossed": (
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 2, "max_value": 1}}, "above"),
    "no set": ({"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "v"}}, "'value_set'"),
    "set null": (
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "v", "value_set": None}}, "set is null"),
    "set of lists": (
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "v", "value_set": [[1]]}}, "holds a list"),
    "no regex": ({"type": "expect_column_values_to_match_regex", "kwargs": {"column": "v"}}, "'regex'"),
    "result format": (kwargs(result_format=3), "result_format is a number"),
    "catch exceptions": (kwargs(catch_exceptions="no"), "catch_exceptions is text"),
    "meta a list": (kwargs() | {"meta": []}, "meta is a list"),
    "not an object": ([], "expectation 1 is a list"),
}  # fmt: skip


@pytest.mark.parametrize(("expectation", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_compiled_is_refused_by_name(expectation, named):
    """11.7: a type, an argument, a key or a value that would be passed over is named instead, with its place."""
    with pytest.raises(SuiteError, match=named) as refusal:
        only_rule(expectation)
    assert "jobs/j.py:7: suite.expectations[0]" in str(refusal.value)


SUITES_REFUSED = {
    "no name": ({"expectations": [NOT_NULL]}, "'name'"),
    "name empty": ({"name": " ", "expectations": [NOT_NULL]}, "name is text and must be"),
    "name a number": ({"name": 1, "expectations": [NOT_NULL]}, "name is a number"),
    "no expectations": ({"name": "s"}, "'expectations'"),
    "expectations null": ({"name": "s", "expectations": None}, "expectations is null"),
    "old name": ({"expectation_suite_name": "s", "expectations": [NOT_NULL]}, "did you mean 'name'"),
    "parameters": ({"name": "s", "suite_parameters": {"x": 1}, "expectations": [NOT_NULL]}, "suite_parameters"),
    "python object": ({"name": "s", "expectations": [kwargs(min_value=object())]}, "type object"),
    "key not text": ({"name": "s", "expectations": [kwargs() | {1: 2}]}, "key 1 is not text"),
    "half a character": ({"name": "s", "expectations": [kwargs(column="\ud800")]}, "surrogate"),
}


@pytest.mark.parametrize(("suite", "named"), SUITES_REFUSED.values(), ids=SUITES_REFUSED.keys())
def test_a_suite_that_is_none_is_refused_by_name(suite, named):
    """11.7: the suite as a whole is as strict as its expectations."""
    with pytest.raises(SuiteError, match=named):
        load_suite(suite, where="jobs/j.py:7")


@pytest.mark.fault("F53")
def test_a_suite_without_expectations_is_refused():
    """F53: a gate that would guard nothing is an error when the job is built, not a gate that always passes."""
    with pytest.raises(SuiteMalformed, match="no expectations"):
        load_suite({"name": "s", "expectations": []}, where="jobs/j.py:7")


# --- files -----------------------------------------------------------------------------------


def test_a_missing_file_points_at_the_users_line(tmp_path):
    """A suite that is not there has no line of its own, so the error has the job's."""
    with pytest.raises(SuiteNotFound, match=r"absent\.json.*jobs/j\.py:7"):
        load_suite(tmp_path / "absent.json", where="jobs/j.py:7")


def test_an_error_in_a_file_has_the_line_of_the_expectation(tmp_path):
    """11.7: file and line of the expectation that is refused, and of the key inside it where one is wrong."""
    path = tmp_path / "s.json"
    suite = {"name": "s", "expectations": [NOT_NULL, kwargs(), kwargs(row_condition="x"), {"type": "no", "kwargs": {}}]}
    text = json.dumps(suite, indent=1)
    path.write_text(text)
    line = 1 + next(number for number, words in enumerate(text.splitlines()) if "row_condition" in words)
    with pytest.raises(SuiteError, match=f"s.json:{line}"):
        load_suite(path, where="jobs/j.py:7")
    del suite["expectations"][2]
    text = json.dumps(suite, indent=1)
    path.write_text(text)
    line = next(number for number, words in enumerate(text.splitlines()) if '"no"' in words)
    with pytest.raises(SuiteError, match=f"'no'.*s.json:{line}"):
        load_suite(str(path), where="jobs/j.py:7")


BROKEN = {
    "key twice": ('{"name": "a",\n "name": "b"}', "'name' stands twice", 2),
    "key twice inside": ('{"name": "a", "meta": {"x": 1,\n\n"x": 2}}', "'x' stands twice", 3),
    "NaN": ('{"name":\n NaN}', "'NaN' is no JSON value", 2),
    "infinity": ('{"name": -Infinity}', "is no JSON value", 1),
    "comma too many": ('{"name": "a",}', "key in double quotes", 1),
    "comma missing": ('{"name": "a"\n "expectations": []}', "comma or a closing brace", 2),
    "list open": ('{"name": [1 2]}', "comma or a closing bracket", 1),
    "colon missing": ('{"name" 1}', "colon", 1),
    "cut off": ('{"name": ', "ends too early", 1),
    "text open": ('{"name": "a', "not closed", 1),
    "line break in text": ('{"name": "a\nb"}', "not closed", 1),
    "bad escape": (r'{"name": "\x41"}', "escape", 1),
    "half a character": (r'{"name": "\ud800"}', "surrogate", 1),
    "more after the end": ('{"name": "a"}\n\n{}', "more text", 3),
    "nothing": ("", "ends too early", 1),
    "comment": ('{"name": "a"} // x', "more text", 1),
    "zero in front": ('{"name": 01}', "comma", 1),
    "deep": ("[" * 60, "deeper", 1),
    "long number": ('{"name": ' + "1" * 500 + "}", "400 characters", 1),
}


@pytest.mark.parametrize(("text", "named", "line"), BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_is_not_exactly_json_is_refused_with_its_line(tmp_path, text, named, line):
    """F66: a duplicate key, NaN or a slip of the pen is an error with file and line, never a guess."""
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(SuiteMalformed, match=named) as refusal:
        load_suite(path, where="jobs/j.py:7")
    assert refusal.value.where == f"{path}:{line}"


def test_bytes_that_are_no_text_and_files_beyond_measure_are_refused(tmp_path):
    """A file that is not UTF-8 is named with its line; one of megabytes is not parsed."""
    path = tmp_path / "s.json"
    path.write_bytes(b'{"name":\n "\xff"}')
    with pytest.raises(SuiteMalformed, match=r"not UTF-8 \(.*s\.json:2\)"):
        load_suite(path, where="w")
    path.write_text(" " * (MAX_CHARACTERS + 1))
    with pytest.raises(SuiteMalformed, match="characters"):
        load_suite(path, where="w")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=examples(80))
@given(JSON, st.sampled_from([None, 1, 3]), st.booleans())
def test_strict_reading_equals_the_standard_parser_on_all_json(value, indent, ascii_only):
    """Strictness costs nothing that JSON allows: every value reads as the standard library reads it."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert plain(parse_json(text, "f")) == json.loads(text)
