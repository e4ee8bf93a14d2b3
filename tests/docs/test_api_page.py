"""The API reference is the code itself."""

import importlib

from tools.api_page import MODULES, PAGE, names_of, render


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
