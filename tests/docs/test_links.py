"""A link from page to page leads to a file that is there, and to a heading that is on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    """Yield each relative link of a page that leads nowhere."""
    prose = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """A heading that is renamed takes the links to it along."""
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    """Of the same page and of another; code and other sites are not looked at."""
    (tmp_path / "b.md").write_text("# B c, `d`!\n")
    page = tmp_path / "a.md"
    page.write_text(
        "# A\n[](b.md) [](b.md#b-c-d) [](#a) [](https://a/b.md)\n```\n[](c.md)\n```\n[](c.md) [](#b) [](b.md#a)"
    )
    assert list(broken(page)) == ["c.md", "#b", "b.md#a"]
