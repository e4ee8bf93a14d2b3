"""Run the Python examples of the README and of every page in docs/."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.doc_blocks import python_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_and_the_index_of_the_pages_are_among_the_pages():
    """The list of pages is not empty by mistake: those that must exist are in it, and can be read."""
    for page in (ROOT / "README.md", ROOT / "docs" / "README.md"):
        assert page in PAGES
        assert page.read_text().startswith("# ")


def pages() -> Iterator[Any]:
    """Yield each page; a Harness starts Spark, which `make check` does not."""
    for page in PAGES:
        starts = any(block.runs and "Harness" in block.at_its_line() for block in python_blocks(page.read_text()))
        yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=pytest.mark.spark if starts else ())


@pytest.mark.sample(8)
@pytest.mark.parametrize("page", [*pages()])
def test_examples_run(page, tmp_path, monkeypatch):
    """Every block of a page runs, in order and in one namespace; one marked no-run is still Python."""
    # As in a project: a Harness that finds no jars would leave Spark without them, for all tests in this process.
    (tmp_path / ".jars").symlink_to(ROOT / ".jars")
    monkeypatch.chdir(tmp_path)
    namespace = types.ModuleType("example").__dict__
    for block in python_blocks(page.read_text()):
        tree = ast.parse(block.at_its_line(), filename=str(page))
        if block.runs:
            exec(compile(tree, str(page), "exec", dont_inherit=True), namespace)  # noqa: S102 - the point of this test
