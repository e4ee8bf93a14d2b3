"""Check that every fault that is due has a test: `tools/faults.toml` against the marks `@pytest.mark.fault("F13")`.

Run as `python -m tools.check_fault_table`; `--list` prints the table, with the tests of each fault or who owes it.
The marks are read from the source of the tests, so nothing is imported and a test that is deselected counts as well;
but a fault that is required needs one that is not left to `make soak` as a whole.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.report import report

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tools" / "faults.toml"
TESTS = ROOT / "tests"
OWED = ("issue 3", "issue 4", "issue 5", "issue 17", "issue 19", "later")
_NUMBER = re.compile(r"F\d\d")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that must be survived: what it is in short, and which issue owes its test."""

    number: str
    title: str
    owed: str


@dataclass(frozen=True, slots=True)
class Table:
    """All faults by number, and the numbers that must have a test now."""

    faults: Mapping[str, Fault]
    required: frozenset[str]


@dataclass(frozen=True, slots=True)
class Mark:
    """One fault number on one test; `test` is None where the mark hangs on nothing that pytest collects.

    `soak` says that the function is for `make soak`, which CI does not run.
    """

    number: str
    line: int
    test: str | None
    soak: bool = False


def read_table(text: str) -> Table:
    """Read the table; ValueError says what in it is wrong."""
    content = tomllib.loads(text)
    faults = {number: Fault(number, **entry) for number, entry in content["faults"].items()}
    bad = [number for number, fault in faults.items() if not _NUMBER.fullmatch(number) or fault.owed not in OWED]
    unknown = sorted(set(content["required"]) - faults.keys())
    if bad or unknown:
        msg = f"not a number F01 to F99 or owed by none of {', '.join(OWED)}: {bad}; required but not listed: {unknown}"
        raise ValueError(msg)
    return Table(faults, frozenset(content["required"]))


def _fault_calls(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (number, line) of each `….mark.fault(…)` below a node; what is no plain text yields its source."""
    for call in ast.walk(node):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="fault"), args=arguments):
                for argument in arguments:
                    match argument:
                        case ast.Constant(value=str(number)):
                            yield number, argument.lineno
                        case _:
                            yield ast.unparse(argument), argument.lineno


def marks_of(text: str, name: str) -> list[Mark]:
    """Find the fault marks of one test file: on functions, on classes, on cases of parametrize, and `pytestmark`.

    `name` is the file's, and is what a mark on the whole file counts for.
    """
    marks: dict[tuple[str, int], str | None] = {}
    soak: set[str] = set()

    def visit(body: Iterable[ast.stmt], prefix: str, *, collected: bool) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                is_class = isinstance(statement, ast.ClassDef)  # of any name: a contract suite's subclasses are tests
                here = collected and (is_class or statement.name.startswith("test_"))
                owner = f"{prefix}::{statement.name}"
                if "pytest.mark.soak" in map(ast.unparse, statement.decorator_list):
                    soak.add(owner)
                for decorator in statement.decorator_list:
                    marks.update(dict.fromkeys(_fault_calls(decorator), owner if here else None))
                visit(statement.body, owner, collected=is_class and here)
            else:
                marks.update(dict.fromkeys(_fault_calls(statement), prefix if _is_pytestmark(statement) else None))

    visit(ast.parse(text).body, name, collected=True)
    return [Mark(number, line, test, test in soak) for (number, line), test in marks.items()]


def _is_pytestmark(statement: ast.stmt) -> bool:
    """Tell whether a statement is `pytestmark = …`."""
    match statement:
        case ast.Assign(targets=[ast.Name(id="pytestmark")]):
            return True
        case _:
            return False


def judge(table: Table, marks: Mapping[str, Iterable[Mark]]) -> tuple[dict[str, list[str]], list[str]]:
    """Turn the marks of all files into the tests of each number, and what is wrong."""
    tests: dict[str, list[str]] = defaultdict(list)
    problems = []
    daily = set()
    for name, of_test in marks.items():
        for mark in of_test:
            if mark.number not in table.faults:
                problems.append(f"{name}:{mark.line}: {mark.number} is not in tools/faults.toml")
            elif mark.test is None:
                problems.append(f"{name}:{mark.line}: the mark of {mark.number} hangs on nothing that is a test")
            else:
                tests[mark.number].append(mark.test)
                daily |= set() if mark.soak else {mark.number}
    for number in sorted(table.required - daily):
        lacks = "no test but in make soak" if number in tests else "no test"
        problems.append(f"{number} has {lacks}: {table.faults[number].title}")
    return dict(tests), problems


def render(table: Table, tests: Mapping[str, list[str]]) -> str:
    """Write the table for people: number, title, then its tests or who owes them."""
    lines = []
    for number, fault in sorted(table.faults.items()):
        lines.append(f"{number} {fault.title}")
        lines.extend(f"      {test}" for test in tests.get(number, [f"owed ({fault.owed})"]))
    return "\n".join(lines)


def main() -> int:
    """Read table and tests, and judge."""
    parser = argparse.ArgumentParser(prog="check_fault_table", description="Every fault that is due has a test.")
    parser.add_argument("--list", action="store_true", help="print each fault with its tests, or who owes them")
    listing: bool = parser.parse_args().list
    table = read_table(TABLE.read_text())
    paths = sorted(TESTS.rglob("test_*.py"))
    marks = {name: marks_of(path.read_text(), name) for path in paths for name in [str(path.relative_to(ROOT))]}
    tests, problems = judge(table, marks)
    if listing:
        print(render(table, tests))
    summary = f"{len(table.faults)} faults, {len(tests)} with tests, {len(table.required)} required"
    return report("fault table", problems, checked=summary)


if __name__ == "__main__":
    sys.exit(main())
