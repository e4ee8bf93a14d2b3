"""See that each module has a test module where one looks for it: `a/b.py` has `tests/unit/a/test_b.py`.

Two test modules cannot have one name, so it may be `tests/unit/a/test_a_b.py` where another folder has a `b.py` too.
An operator has two modules of one name and needs one test module: `tests/unit/operators/test_x.py` is that of
`graph/specs/x.py`, too (decision 90).

Run as `python -m tools.check_test_twins`. Modules without one are listed in `tools/without_twin.txt`, which may only
shrink: a new module comes with its test module, and one that has got its own leaves the list (`--lower` takes it out).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("platform", "penstock")
TESTS = Path("tests", "unit")
LIST = Path("tools", "without_twin.txt")
SPECS, OPERATORS = Path("graph", "specs"), Path("operators")
FRONTS = ("__init__.py", "__main__.py")
"""Files that pass on what others define."""


def modules(paths: Iterable[Path]) -> set[Path]:
    """Return the modules of the package among paths from the root, by path from the package."""
    in_package = {path.relative_to(PACKAGE) for path in paths if path.is_relative_to(PACKAGE) and path.suffix == ".py"}
    return {path for path in in_package if path.name not in FRONTS}


def twins(module: Path) -> tuple[Path, ...]:
    """Return the places of a module's test module, by path from the root."""
    folder = TESTS / module.parent
    own = folder / f"test_{module.name}", folder / f"test_{module.parent.name}_{module.name}"
    return (*own, TESTS / OPERATORS / f"test_{module.name}") if module.parent == SPECS else own


def place_for(module: Path, paths: Iterable[Path]) -> Path:
    """Return where a new test module of a module goes, under a name that no other test module has."""
    plain, with_folder, *_ = twins(module)
    return with_folder if any(path.name == plain.name for path in paths) else plain


def lacking(paths: set[Path]) -> set[str]:
    """Return the modules that have no test module, by path from the package."""
    return {module.as_posix() for module in modules(paths) if not paths & {*twins(module)}}


def problems(paths: set[Path], listed: Sequence[str]) -> list[str]:
    """Return what is wrong with the list, given all paths of the tree from its root; nothing, where all is well."""
    without = lacking(paths)
    new = [f"{PACKAGE / name} has no {place_for(Path(name), paths)}" for name in sorted(without - {*listed})]
    done = [f"{LIST} lists {name}, which has a test module or is gone" for name in sorted({*listed} - without)]
    order = [f"{LIST} is not sorted, or names one twice"] if [*listed] != sorted({*listed}) else []
    return new + done + order + doubled(paths)


def doubled(paths: Iterable[Path]) -> list[str]:
    """Return the test modules that share a name: pytest cannot collect both in one run."""
    places: dict[str, list[str]] = {}
    for path in sorted(paths):
        if path.name.startswith("test_"):
            places.setdefault(path.name, []).append(str(path))
    return [f"{' and '.join(same)} have one name" for same in places.values() if len(same) > 1]


def main(args: Sequence[str] = ()) -> int:
    """Print what is wrong; with `--lower` take out of the list what need not be in it any more."""
    paths = {path.relative_to(ROOT) for top in (PACKAGE, TESTS.parent) for path in (ROOT / top).rglob("*.py")}
    listed = (ROOT / LIST).read_text().splitlines()
    if [*args] == ["--lower"]:
        listed = sorted({*listed} & lacking(paths))
        (ROOT / LIST).write_text("".join(f"{name}\n" for name in listed))
    wrong = problems(paths, listed)
    for line in wrong:
        print(f"test twins: {line}", file=sys.stderr)
    print(f"test twins: {len(modules(paths))} modules, {len(listed)} without a test module of their own, ", end="")
    print(f"{len(wrong)} to mend" if wrong else "all well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
