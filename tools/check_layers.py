"""Check that imports inside penstock point downwards only, as DESIGN 2 says.

Run as `python -m tools.check_layers`.
A module may import its own folder and everything of a lower rank; folders of one rank do not import each other.
Imports inside functions and under TYPE_CHECKING count as well: a layer is a direction, not a moment.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.report import report

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "platform"
PACKAGE = "penstock"

# Lowest first; what stands in one line is of one rank.
RANKS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("graph",),
    ("checkpoint", "time"),
    ("state", "sources", "sinks", "receivers"),
    ("operators", "quality"),
    ("config",),
    ("runtime",),
    ("supervise",),
    ("ui",),
    ("cli", "airflow"),
    ("testing",),  # the test kit may import all, and nothing imports it
)
# Modules at the top of the package that are the front of a folder, and have its rank.
FACADES = {"__init__": "graph", "__main__": "cli", "windows": "graph", "agg": "graph", "rates": "runtime"}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module by its full name, and the line that imports it."""

    line: int
    target: str


def module_name(path: Path, source: Path) -> str:
    """Turn a file below the source root into a module name; a package keeps its `__init__`."""
    return ".".join(path.relative_to(source).with_suffix("").parts)


def imports_of(text: str, module: str) -> Iterator[Import]:
    """Yield what a module imports from penstock, by full name.

    `from penstock import x` yields `penstock.x`: only the table can tell whether x is a folder or a name of the facade.
    """
    package = module.split(".")[:-1]  # of a.b and of a.__init__ alike it is a
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module.split(".") if node.module else [])])
            if origin == PACKAGE:
                yield from (Import(node.lineno, f"{PACKAGE}.{alias.name}") for alias in node.names)
            else:
                yield Import(node.lineno, origin)


def folder_of(module: str, folders: frozenset[str]) -> str | None:
    """Name the folder of the table that a module of penstock belongs to; None for one outside penstock.

    `folders` are the names that exist at the top of the package: another name imported from it is its facade's.
    LookupError names a module that has no place in the table.
    """
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    top = parts[1] if len(parts) > 1 and parts[1] in folders else "__init__"
    folder = FACADES.get(top, top)
    if not any(folder in rank for rank in RANKS):
        raise LookupError(module)
    return folder


def rank_of(folder: str) -> int:
    """Find the rank of a folder of the table, lowest 0."""
    return next(number for number, rank in enumerate(RANKS) if folder in rank)


def wrong_imports(module: str, text: str, folders: frozenset[str]) -> list[str]:
    """Say which imports of one module do not point downwards, and where they may not point."""
    try:
        own = folder_of(module, folders)
        targets = [(found.line, found.target, folder_of(found.target, folders)) for found in imports_of(text, module)]
    except LookupError as unknown:
        return [f"{module}: {unknown} has no place in the table of tools/check_layers.py; give it one"]
    if own is None:
        return []
    return [
        f"{module}:{line}: {own} may not import {target}: {folder} is not below it"
        for line, target, folder in targets
        if folder is not None and folder != own and rank_of(folder) >= rank_of(own)
    ]


def main() -> int:
    """Check every module of the package."""
    paths = sorted((SOURCE / PACKAGE).rglob("*.py"))
    folders = frozenset(path.relative_to(SOURCE / PACKAGE).with_suffix("").parts[0] for path in paths)
    problems = [
        problem for path in paths for problem in wrong_imports(module_name(path, SOURCE), path.read_text(), folders)
    ]
    return report("layers", problems, checked=f"{len(paths)} modules")


if __name__ == "__main__":
    sys.exit(main())
