"""What an error says to do has been done by a test, which is marked with the error's code; or a reason says why not.

The list below may only shrink. Marks are read from the source of the tests, so a test that is deselected counts too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.error_page import leaves

TESTS = Path(__file__).resolve().parents[1]

NOT_BY_A_PROGRAM = {
    "PEN-CKP-000": "the root of others; none is raised with its remedy where a job runs",
    "PEN-CKP-002": "the newer release is not written yet",
    "PEN-CKP-011": "internal to the log, which settles it",
    "PEN-CKP-019": "a report to the maintainers",
    "PEN-CKP-022": "a report to the maintainers",
    "PEN-CKP-023": "a folder is mounted on the machines of a cluster",
    "PEN-ENV-002": "a person frees cores of a cluster, or starts its master",
    "PEN-SRC-000": "the root of others, never raised",
    "PEN-STA-000": "the root of others; what raises it is no fault of the job's",
    "PEN-STA-001": "a report to the maintainers",
    "PEN-STA-003": "a person writes the step anew",
    "PEN-STA-005": "a report to the maintainers",
    "PEN-SUP-000": "the root of others, never raised",
}
"""Remedies that no test can follow, each with the reason."""
MOST = 13
"""How long the list may be: a smaller number is welcome, a greater one is a step back."""


def marked() -> Iterator[str]:
    """Yield each code that a test is marked with."""
    for path in TESTS.rglob("test_*.py"):
        for test in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                for mark in test.decorator_list:
                    match mark:
                        case ast.Call(func=ast.Attribute(attr="remedy"), args=codes):
                            yield from (ast.literal_eval(code) for code in codes)


@pytest.mark.slow
def test_each_remedy_is_followed_by_a_test_or_has_a_reason() -> None:
    """A new error comes with a test that meets it, does as it says, and goes on."""
    followed, known = set(marked()), {error.code for error in leaves()}
    assert followed - known == set(), "no error has this code"
    assert known - followed == NOT_BY_A_PROGRAM.keys(), "mark the test that follows it, or shorten the list"


def test_the_list_of_what_no_test_follows_only_shrinks() -> None:
    """Who finds a way to follow one takes it from the list."""
    assert len(NOT_BY_A_PROGRAM) == MOST
