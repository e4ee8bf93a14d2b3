"""Check that imports inside penstock point downwards only, as DESIGN 2 says, and never in a circle.

Run as `python -m tools.check_layers`.
A module may import its own folder and everything of a lower rank; folders of one rank do not import each other.
No modules import each other in a circle, and no folders, however deep.
A spec of an operator names the module that runs it, which stands above the graph: such a string is no import, because
whoever binds a job follows it (decision 90). It is checked for itself: one for each spec, of a module that binds, and
`graph/keyed.py` imports each spec, because streams have no other methods.
So is the name of the sink that a method of streams makes (decision 118), and of no other.
Imports inside functions and under TYPE_CHECKING count as well: a layer is a direction, not a moment. So do modules that
are named in a string, as for `importlib`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tools.report import report

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "platform"
PACKAGE = "penstock"
# What users import first. Nobody inside imports it, so it may offer what stands above the graph.
FRONTS = {PACKAGE: "runtime"}
# Modules that name an operator, where operators stand, and what a module must define to be one.
SPECS, OPERATORS, BINDS = f"{PACKAGE}.graph.specs.", f"{PACKAGE}.operators.", frozenset({"bind", "bind_side"})
# The module that gives streams the methods of all operators.
KEYED = f"{PACKAGE}.graph.keyed"
# A module of the graph that names one sink, and the sink.
MAKER, MADE = f"{PACKAGE}.graph.job", f"{PACKAGE}.sinks.foreach_batch"
_MODULE = re.compile(rf"{PACKAGE}(\.[a-z_]+)+")

# Lowest first; what stands in one line is of one rank.
RANKS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("graph",),
    ("checkpoint", "time", "kafka", "avro"),
    ("rates",),  # below the sources, which divide by it, and above the triggers, which its simulator runs by
    ("receivers",),  # below the sources, which read what they have kept
    ("state", "sources", "sinks"),
    ("operators", "quality"),
    ("config",),
    ("runtime",),
    ("supervise",),
    ("ui",),
    ("cli", "airflow"),
    ("testing",),  # the test kit may import all, and nothing imports it
)
# Modules at the top of the package that are the front of a folder, and have its rank.
FACADES = {
    "__init__": "graph",
    "__main__": "cli",
    "windows": "graph",
    "agg": "graph",
    "triggers": "graph",
    "evictors": "graph",
}


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
        elif isinstance(node, ast.Constant) and _MODULE.fullmatch(str(node.value)):
            named = str(node.value)
            allowed = module.startswith(SPECS) and named.startswith(OPERATORS)
            yield from () if allowed or (module, named) == (MAKER, MADE) else [Import(node.lineno, named)]


def operators_of(text: str) -> list[str]:
    """Return the modules of operators that a spec names in strings."""
    named = (str(node.value) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return [name for name in named if name.startswith(OPERATORS) and _MODULE.fullmatch(name)]


def wrong_specs(source: Path) -> Iterator[str]:
    """Say which specs name no operator or one that cannot be bound, and which are not registered."""
    keyed = _file(source, KEYED)
    registered = {imported.target for imported in imports_of(keyed.read_text(), KEYED)}
    for path in sorted((source / PACKAGE / "graph" / "specs").glob("[!_]*.py")):
        spec, operators = module_name(path, source), operators_of(path.read_text())
        if spec not in registered:
            yield f"{spec}: {KEYED} does not import it; list its class of methods there, so that streams have them"
        if len(operators) != 1:
            named = ", ".join(operators) or f'write `operator: ClassVar[str] = "{OPERATORS}NAME"`'
            yield f"{spec}: names {len(operators)} modules of operators, not one: {named}"
            continue
        module = _file(source, operators[0])
        if not module.exists():
            yield f"{spec}: {operators[0]}, the module of its operator, is not there"
            continue
        missing = BINDS - {
            node.name for node in ast.parse(module.read_text()).body if isinstance(node, ast.FunctionDef)
        }
        if missing:
            yield f"{spec}: {operators[0]} does not define {' and '.join(sorted(missing))}"


def _file(source: Path, module: str) -> Path:
    return source.joinpath(*module.split(".")).with_suffix(".py")


def modules_imported(text: str, module: str, known: Collection[str]) -> set[str]:
    """Return which of the known modules a module imports; `from a import b` is an import of `a.b` where that is one."""
    targets = {imported.target for imported in imports_of(text, module)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            targets |= inner
            if inner <= {*known}:
                targets.discard(node.module)
    return (targets & {*known}) - {module}


def circle(graph: Mapping[str, set[str]]) -> str | None:
    """Return one circle in words, None where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as why:
        return " -> ".join(reversed(why.args[1]))
    return None


def folder_graph(graph: Mapping[str, set[str]], folders: Collection[str]) -> dict[str, set[str]]:
    """Return which folders import which, of the modules in them; a folder and one inside it are no two."""

    def home(module: str) -> str:
        return module if module in folders else module.rpartition(".")[0]

    edges: dict[str, set[str]] = {}
    for module, targets in graph.items():
        if module in FRONTS:
            continue
        own = home(module)
        others = {home(target) for target in targets}
        edges.setdefault(own, set()).update(
            other for other in others if not f"{own}.".startswith(f"{other}.") and not other.startswith(f"{own}.")
        )
    return edges


def folder_of(module: str, folders: frozenset[str]) -> str | None:
    """Name the folder of the table that a module of penstock belongs to; None for one outside penstock.

    `folders` are the names that exist at the top of the package: another name imported from it is its facade's.
    LookupError names a module that has no place in the table.
    """
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    front = FRONTS.get(module.removesuffix(".__init__"))
    if front is not None:
        return front
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
        targets = [
            (imported.line, imported.target, folder_of(imported.target, folders))
            for imported in imports_of(text, module)
        ]
    except LookupError as unknown:
        return [f"{module}: {unknown} has no place in the table of tools/check_layers.py; give it one"]
    if own is None:
        return []
    return [
        f"{module}:{line}: {own} may not import {target}: {folder} is not below it"
        for line, target, folder in targets
        if folder is not None and folder != own and rank_of(folder) >= rank_of(own)
    ]


def circles(source: Path) -> list[str]:
    """Return the circles of modules and of folders below a source root, one of each at most."""
    paths = {
        module_name(path, source).removesuffix(".__init__"): path for path in sorted((source / PACKAGE).rglob("*.py"))
    }
    packages = {name for name, path in paths.items() if path.name == "__init__.py"}
    # A package's own front imports what is in it; who is inside and imports the front is in a circle with it.
    graph = {
        name: modules_imported(path.read_text(), f"{name}.__init__" if name in packages else name, paths) - {name}
        for name, path in paths.items()
    }
    by_kind = {"modules": circle(graph), "folders": circle(folder_graph(graph, packages))}
    return [f"{what} import each other in a circle: {words}" for what, words in by_kind.items() if words is not None]


def main() -> int:
    """Check every module of the package."""
    paths = sorted((SOURCE / PACKAGE).rglob("*.py"))
    folders = frozenset(path.relative_to(SOURCE / PACKAGE).with_suffix("").parts[0] for path in paths)
    problems = [
        problem for path in paths for problem in wrong_imports(module_name(path, SOURCE), path.read_text(), folders)
    ]
    problems += wrong_specs(SOURCE)
    problems += circles(SOURCE)
    return report("layers", problems, checked=f"{len(paths)} modules")


if __name__ == "__main__":
    sys.exit(main())
