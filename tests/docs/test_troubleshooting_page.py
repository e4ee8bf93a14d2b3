"""The page of error codes is the errors themselves."""

from tools.error_page import PAGE, render


def test_the_page_lists_every_error_with_its_remedy() -> None:
    """STYLE 2.17: troubleshooting by error code."""
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m tools.error_page --write"
