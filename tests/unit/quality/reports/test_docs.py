"""The Data Docs have a page for each of the newest windows, whatever its name."""

from __future__ import annotations

import json

import pytest
from report_samples import MINUTE, NOW, judged

from penstock.quality.reports import docs
from penstock.quality.reports.judge import Judged
from penstock.quality.reports.published import Window


def test_a_run_keeps_its_newest_windows_for_the_data_docs(tmp_path, monkeypatch):
    """As many as there is room for; a second time changes nothing."""
    monkeypatch.setattr(docs, "KEPT", 3)
    docs.keep(tmp_path, "r1", "quality", NOW, judged(0, 1))
    for _ in range(2):
        docs.keep(tmp_path, "r2", "quality", NOW + 1, judged(*range(9)))
    kept = [json.loads(path.read_text()) for path in sorted(tmp_path.iterdir())]
    assert [(row["run"], row["start"] // MINUTE) for row in kept][-3:] == [("r2", 6), ("r2", 7), ("r2", 8)]
    assert len(kept) <= 5


@pytest.mark.slow
def test_windows_that_begin_together_have_pages_of_their_own(tmp_path):
    """Sessions, windows of two lengths, and windows shorter than a second: none takes another's page."""
    document = {
        "success": True,
        "results": [],
        "suite_name": "s",
        "evaluation_parameters": {},
        "statistics": {},
        "meta": {},
    }
    document.pop("evaluation_parameters")
    spans = [(0, MINUTE), (0, 2 * MINUTE), (200_000, 300_000), (400_000, 500_000)]
    windows = [Judged(window=Window(*span, 1), engine="pandas", findings=(), document=document) for span in spans]
    docs.keep(tmp_path / "newest", "r1", "quality", NOW, windows)
    index = docs.build_docs(tmp_path / "newest", tmp_path / "docs")
    assert index.is_file()
    assert len(list((tmp_path / "docs" / "validations").rglob("*.html"))) == 4


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["20261121T192100Z-9999", "9" * 40, "2024-01-01", "now"])
def test_names_that_look_like_moments_have_pages_too(tmp_path, name):
    """Great Expectations reads a name as a moment where it can: the command's own ends in four digits now and then."""
    document = {"success": True, "results": [], "suite_name": "s", "statistics": {}, "meta": {}}
    window = Judged(window=Window(0, MINUTE, 1), engine="pandas", findings=(), document=document)
    docs.keep(tmp_path / "newest", name, "quality", NOW, [window])
    docs.build_docs(tmp_path / "newest", tmp_path / "docs")
    assert len(list((tmp_path / "docs" / "validations").rglob("*.html"))) == 1
