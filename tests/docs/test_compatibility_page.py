"""The page of changes is the table that the tests go through."""

from tools.compatibility_page import PAGE, render


def test_the_page_is_the_table() -> None:
    """`tests/unit/runtime/restore/test_compatibility_matrix.py` does what each cell says."""
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m tools.compatibility_page --write"
