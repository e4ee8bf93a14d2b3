"""`tools/check_test_twins.py`: modules without a test module of their own are listed, and the list only shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_test_twins import PACKAGE, TESTS, problems

TREE = {
    PACKAGE / "__init__.py",
    PACKAGE / "state" / "__init__.py",
    PACKAGE / "state" / "keys.py",
    PACKAGE / "state" / "limits.py",
    PACKAGE / "agg.py",
    TESTS / "state" / "test_keys.py",
    TESTS / "test_agg.py",
}


@pytest.mark.parametrize(
    ("listed", "starts"),
    [
        (["state/limits.py"], []),
        ([], ["platform/penstock/state/limits.py has no tests/unit/state/test_limits.py"]),
        (["state/keys.py", "state/limits.py"], ["tools/without_twin.txt lists state/keys.py"]),
        (["gone.py", "state/limits.py"], ["tools/without_twin.txt lists gone.py"]),
        (["state/limits.py", "state/limits.py"], ["tools/without_twin.txt is not sorted, or names one twice"]),
    ],
    ids=["as it is", "a new module", "one that has its own", "one that is gone", "twice"],
)
def test_the_list_is_what_lacks_and_no_more(listed: list[str], starts: list[str]) -> None:
    """Fronts of folders define nothing and need none."""
    lines = problems(TREE, listed)
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_its_name_may_begin_with_the_folder() -> None:
    """Where another folder has a module of that name."""
    assert problems(TREE | {TESTS / "state" / "test_state_limits.py"}, []) == []


def test_a_new_test_module_gets_a_name_that_is_free() -> None:
    """The message names no place that would end in two test modules of one name."""
    taken = {*TREE, PACKAGE / "sinks" / "keys.py"}
    assert problems(taken, ["state/limits.py"]) == [
        "platform/penstock/sinks/keys.py has no tests/unit/sinks/test_sinks_keys.py"
    ]


def test_an_operator_has_one_test_module_for_both_of_its_modules() -> None:
    """Its spec needs none of its own, and may have one (decision 90)."""
    operator = {*TREE, PACKAGE / "graph" / "specs" / "top.py", PACKAGE / "operators" / "top.py"}
    assert problems(operator | {TESTS / "operators" / "test_top.py"}, ["state/limits.py"]) == []
    assert problems(operator | {TESTS / "graph" / "specs" / "test_top.py"}, ["state/limits.py"]) == [
        "platform/penstock/operators/top.py has no tests/unit/operators/test_operators_top.py"
    ]


def test_a_test_module_elsewhere_is_none() -> None:
    """One looks for it at the same place."""
    moved = {*TREE} - {TESTS / "state" / "test_keys.py"} | {Path("tests", "jobs", "test_keys.py")}
    assert len(problems(moved, ["state/limits.py"])) == 1


def test_two_test_modules_have_two_names() -> None:
    """Pytest would stop at the second, in runs that have both."""
    both = TREE | {Path("tests", "jobs", "test_keys.py")}
    assert problems(both, ["state/limits.py"]) == [
        "tests/jobs/test_keys.py and tests/unit/state/test_keys.py have one name"
    ]
