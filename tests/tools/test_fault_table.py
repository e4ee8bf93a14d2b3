"""`tools/check_fault_table.py`: a fault that is due has a test."""

from __future__ import annotations

import pytest

from tools.check_fault_table import TABLE, Mark, judge, marks_of, read_table, render

FAULTS = """
required = ["F01"]
[faults]
F01 = { owed = "issue 3", title = "first" }
F02 = { owed = "later", title = "second" }
"""
MARKED = """
import pytest

@pytest.mark.fault("F01", "F02")
@pytest.mark.slow
def test_a():
    pass

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.fault("F03")), 2])
async def test_b(x):
    pass

@pytest.mark.fault("F04")
class TestC:
    @pytest.mark.fault("F05")
    def test_d(self):
        pass

class StoreContract:
    @pytest.mark.fault("F06")
    def test_e(self):
        pass
"""


def test_marks_are_found_on_functions_cases_classes_and_methods():
    """Each number counts for what pytest collects; a contract suite's class is collected by way of its subclasses."""
    assert [(mark.number, mark.test) for mark in marks_of(MARKED, "t.py")] == [
        ("F01", "t.py::test_a"),
        ("F02", "t.py::test_a"),
        ("F03", "t.py::test_b"),
        ("F04", "t.py::TestC"),
        ("F05", "t.py::TestC::test_d"),
        ("F06", "t.py::StoreContract::test_e"),
    ]


def test_a_mark_on_the_whole_file_counts_for_the_file():
    """`pytestmark` may be one mark or a list."""
    for text in ('pytestmark = pytest.mark.fault("F01")', 'pytestmark = [pytest.mark.slow, pytest.mark.fault("F01")]'):
        assert marks_of(text, "t.py") == [Mark("F01", 1, "t.py")]


@pytest.mark.parametrize(
    "text",
    [
        '@pytest.mark.fault("F01")\ndef helper(): pass',
        'def test_a():\n    @pytest.mark.fault("F01")\n    def test_inner(): pass',
        'survives = pytest.mark.fault("F01")',
        'def test_a():\n    request.applymarker(pytest.mark.fault("F01"))',
    ],
    ids=["on a helper", "inside a test", "in a variable", "at run time"],
)
def test_a_mark_that_hangs_on_no_test_is_a_problem(text):
    """It would make a fault look tested."""
    marks = marks_of(text, "t.py")
    assert [(mark.number, mark.test) for mark in marks] == [("F01", None)]
    _, problems = judge(read_table(FAULTS), {"t.py": marks})
    assert "hangs on nothing that is a test" in problems[0]


def test_a_number_that_does_not_exist_is_a_problem():
    """A slip of the pen, or an expression that nobody can look up."""
    marks = marks_of('@pytest.mark.fault("F99", NUMBER)\ndef test_a(): pass', "t.py")
    _, problems = judge(read_table(FAULTS.replace('["F01"]', "[]")), {"t.py": marks})
    assert problems == ["t.py:1: F99 is not in tools/faults.toml", "t.py:1: NUMBER is not in tools/faults.toml"]


def test_a_required_fault_without_a_test_is_a_problem():
    """Others may wait; with a test there is none."""
    table = read_table(FAULTS)
    assert judge(table, {}) == ({}, ["F01 has no test: first"])
    assert judge(table, {"t.py": [Mark("F01", 3, "t.py::test_a")]}) == ({"F01": ["t.py::test_a"]}, [])


def test_the_list_shows_the_tests_of_each_fault_or_who_owes_them():
    """One look tells what is covered."""
    assert render(read_table(FAULTS), {"F01": ["t.py::test_a", "t.py::test_b"]}).splitlines() == [
        "F01 first",
        "      t.py::test_a",
        "      t.py::test_b",
        "F02 second",
        "      owed (later)",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [('["F01"]', '["F77"]'), ('"later"', '"never"'), ("F02 =", "G02 =")],
    ids=["required", "owed", "name"],
)
def test_a_table_with_a_mistake_in_it_is_refused(old, new):
    """What is required must be listed, owed by someone, and have a number."""
    with pytest.raises(ValueError, match="required but not listed"):
        read_table(FAULTS.replace(old, new))


def test_the_table_holds_every_fault():
    """F01 to F79, none left out."""
    assert sorted(read_table(TABLE.read_text()).faults) == [f"F{number:02}" for number in range(1, 80)]


def test_a_required_fault_is_shown_each_day():
    """Not by a test alone that CI does not run; a case of `parametrize` leaves the others."""
    marked = '@pytest.mark.soak\n@pytest.mark.fault("F01")\ndef test_a(): pass\n'
    table = read_table(FAULTS)
    tests, problems = judge(table, {"t.py": marks_of(marked, "t.py")})
    assert (tests["F01"], problems) == (["t.py::test_a"], ["F01 has no test but in make soak: first"])
    cases = marked.replace("soak", "parametrize('x', [pytest.param(1, marks=pytest.mark.soak), 2])")
    assert judge(table, {"t.py": marks_of(cases, "t.py")})[1] == []
