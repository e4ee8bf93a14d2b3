"""The API reference is the code itself."""

import importlib
import re

import pytest

from tools import error_page
from tools.api_page import MODULES, PAGE, names_of, render
from tools.pages import without_references


def test_the_page_has_every_public_name_with_its_docstring() -> None:
    """STYLE 2.17: what can be imported can be looked up."""
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m tools.api_page --write"


def test_every_name_of_a_module_that_jobs_import_is_on_the_page() -> None:
    """A name that is added to the package is on the page without anybody remembering it."""
    text = render()
    for module in ("penstock", "penstock.agg", "penstock.windows", "penstock.sources", "penstock.sinks"):
        assert MODULES[module] == ()
        for name in importlib.import_module(module).__all__:
            assert f"\n### {name}\n" in text or f"\n## {module}.{name}\n" in text
    assert names_of("penstock.state")


@pytest.mark.parametrize("method", ["Stream.check", "Harness.end", "MemorySource.end"])
def test_a_method_of_users_is_on_the_page_where_the_engine_has_another_of_that_name(method: str) -> None:
    """Sinks have a `check` and an `end` that only the engine calls."""
    assert f"\n#### {method}\n" in render()
    assert "\n#### Delta.check\n" not in render()


def test_pages_for_users_do_not_refer_to_the_specification() -> None:
    """It is not in the repository; docstrings name its sections for those who work on the code."""
    for page in (render(), error_page.render()):
        assert re.search(r"SEMANTICS|DESIGN|FAULTS|\(F\d|\(\d+\.\d+\)", page) is None
    assert without_references("Keep rows (SEMANTICS 7.6).\n\nAll of them (2.4) (see `keep`) count (F31, F59).") == (
        "Keep rows.\n\nAll of them (see `keep`) count."
    )
