"""Pages say what results hold: numbers are those of a plain count, names stay text, and nothing is loaded."""

from __future__ import annotations

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from examples import examples
from hypothesis import given, settings
from report_model import RULES, a_row, counted, many_runs, newest_of, table
from report_samples import DAY, MINUTE, START, a_month

from penstock.quality.reports.pages import history_page, run_page, write_page

pytestmark = pytest.mark.sample(5, of="pages of reports")


TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "p", "a", "dl", "div", "dt", "dd",
    "span", "svg", "rect", "polyline", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip


class Page(HTMLParser):
    """What a browser makes of a page: its tags with attributes, its texts, its numbers and its rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.texts, self.cells, self.open = [], [], [], []
        self.source = text
        self.feed(text)
        self.close()
        assert not [tag for tag in self.open if tag != "meta"], self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))
        if {"td", "th"} & set(self.open):
            self.cells[-1][-1] += data.strip()

    def of(self, tag: str) -> list[dict]:
        return [attrs for name, attrs in self.tags if name == tag]

    def numbers(self) -> dict[str, str]:
        """Return the numbers at the top of each section, the last section's for each name."""
        names = [text for tag, text in self.texts if tag == "dt"]
        return dict(zip(names, [text for tag, text in self.texts if tag == "dd"], strict=True))


def both_pages(rows, job="orders", **more) -> list[Page]:
    first = rows[0]["run"]
    ours = [row for row in rows if row["run"] == first]
    kept = {row["run"] for row in rows}
    return [
        Page(run_page(job, table(ours), run=first, notes=("Newer windows wait.",))),
        Page(history_page(job, table(rows), kept=sorted(kept), docs=True)),
    ]


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(many_runs())
def test_pages_have_the_numbers_of_a_plain_count(rows):
    """At the top, and in the rows of the tables."""
    page, past = both_pages(rows)
    ours = [row for row in rows if row["run"] == rows[0]["run"]]
    model = counted(ours)
    numbers = page.numbers()
    assert [numbers[name] for name in ("windows", "failed", "noted only", "rows")] == [
        f"{model[name]:,}" for name in ("windows", "failed", "noted", "rows")
    ]
    rules = [attrs["title"] for attrs in page.of("td") if "title" in attrs]
    assert rules[: len(RULES)] == list(RULES)
    listed = [cells for cells in page.cells if re.match(r"20\d\d-", cells[0])]
    assert len(listed) == sum(not row["success"] for row in ours)
    last = counted(newest_of(rows, max(row["check"] for row in rows)))
    numbers = past.numbers()
    assert [numbers[name] for name in ("windows", "failed", "noted only")] == [
        f"{last[name]:,}" for name in ("windows", "failed", "noted")
    ]
    made = [cells for cells in past.cells if cells[-1] == "report"]
    assert len(made) == len({row["run"] for row in rows})


@pytest.mark.slow
@settings(max_examples=examples(16))
@given(many_runs())
def test_values_that_are_no_numbers_are_not_shown_as_text(rows):
    """NaN, infinities and nothing are left blank, and a range is shown with both its ends or not at all."""
    for page in both_pages(rows):
        shown = ("aria-label", "title", "points", "x", "y", "width", "height", "href", "class")
        texts = [text for _, text in page.texts]
        texts += [value or "" for _, attrs in page.tags for name, value in attrs.items() if name in shown]
        assert not [text for text in texts if re.search(r"\b(nan|none|inf|infinity|null|NaT)\b", text, re.IGNORECASE)]
        ranges = [cell for cells in page.cells for cell in cells if " to" in cell or "to " in cell]
        assert [cell for cell in ranges if not re.fullmatch(r"\S+ to \S+", cell)] == []


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(many_runs())
def test_plots_stay_in_their_boxes(rows):
    """Bars stand upon each other; every failed bucket is to be seen; lines have two points at least."""
    for page in both_pages(rows):
        box, bars = (0.0, 0.0), {}
        for tag, attrs in page.tags:
            if tag == "svg":
                box, bars = tuple(map(float, attrs["viewbox"].split()[2:])), {}
            elif tag == "rect":
                x, y, w, h = (float(attrs[name]) for name in ("x", "y", "width", "height"))
                assert min(x, y) >= 0
                assert w > 0
                assert h > 0
                assert x + w <= box[0] + 0.11
                assert y + h <= min(bars.get(x, box[1]), box[1]) + 0.11
                bars[x] = y
            elif tag == "polyline":
                points = [tuple(map(float, point.split(","))) for point in attrs["points"].split()]
                assert len(points) > 1
                assert all(0 <= x <= box[0] and 0 <= y <= box[1] for x, y in points)


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "//evil.example/x",
    "</style><b>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "https://evil.example",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name):
    """In the check, the rule, the run, the error and the job: they are shown as they are and do nothing."""
    rows = [
        a_row(check=name, run=name, rule=f"{name}:1:{name}({name})", success=False, error=name),
        a_row(check=name, run=name, rule=name, severity="info", success=False, error=name),
    ]
    for page in both_pages(rows, job=name):
        assert {tag for tag, _ in page.tags} <= TAGS
        assert not [
            attr for _, attrs in page.tags for attr in attrs if attr.startswith("on") or attr in ("src", "srcset")
        ]
        for link in page.of("a"):
            parts = urlsplit(link["href"])
            assert (parts.scheme, parts.netloc, link["href"].startswith("/")) == ("", "", False)
        assert any(name in text for _, text in page.texts)
        assert "49" not in "".join(text for _, text in page.texts)


def test_pages_load_nothing():
    """They are read where there is no internet; what they need is in them."""
    rows = [a_row(success=False), a_row(rule="s:2:mean(v)", observed=1.5, success=False)]
    for page in [*both_pages(rows), Page(history_page("orders", table([])))]:
        for word in ("http:", "https:", "src=", "@import", "url(", "<link", "<script", "<iframe", "<object", "<form"):
            assert word not in page.source
        for link in page.of("a"):
            assert re.fullmatch(r"(\.\./|runs/|docs/)?[\w.%-]+\.html", link["href"]), link


def test_pages_can_be_read_aloud_and_by_keyboard():
    """Language, title, labels of plots, scopes of headings; boxes that scroll can be reached, and are named."""
    for page in both_pages([a_row(success=False), a_row(rule="s:2:mean(v)", observed=1.5)]):
        assert page.of("html") == [{"lang": "en"}]
        assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.of("meta")
        assert {"charset": "utf-8"} in page.of("meta")
        assert [text for tag, text in page.texts if tag == "title"] != []
        assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.of("svg"))
        assert all(heading["scope"] == "col" for heading in page.of("th"))
        ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
        assert len(ids) == len(set(ids))
        named = [attrs["aria-labelledby"] for _, attrs in page.tags if "aria-labelledby" in attrs]
        assert set(named) <= set(ids)
        boxes = [box for box in page.of("div") if box.get("class") == "box"]
        assert boxes
        assert all(box["tabindex"] == "0" and (box.get("aria-label") or box.get("aria-labelledby")) for box in boxes)
        assert [tag for tag, _ in page.tags if tag in ("h1", "main")] == ["main", "h1"]


def test_without_reports_the_history_says_how_to_make_one():
    """It exists before the first run."""
    page = Page(history_page("orders", table([])))
    assert any("penstock report orders" in text for _, text in page.texts)
    assert page.of("svg") == []


def test_a_run_without_a_page_is_not_linked():
    """Its numbers are listed."""
    rows = [a_row(), a_row(run="r2", at=START + 2 * DAY)]
    page = Page(history_page("orders", table(rows), kept=["r2"]))
    assert [link["href"] for link in page.of("a")] == ["runs/r2.html"]
    assert [cells[-1] for cells in page.cells if re.match(r"20\d\d-", cells[0])] == ["report", "not kept"]


def test_long_lists_are_cut_and_said_to_be():
    """200 of what did not pass, the rest is counted; 50 of the reports."""
    many = [
        a_row(window_start=START + n * MINUTE, window_end=START + (n + 1) * MINUTE, success=False) for n in range(1_234)
    ]
    page = Page(run_page("orders", table(many), run="r1"))
    assert sum(bool(re.match(r"20\d\d-", cells[0])) for cells in page.cells) == 200
    assert "1,034 more are in the results." in [text for _, text in page.texts]
    rows = [a_row(run=f"r{n}", at=START + n * MINUTE) for n in range(60)]
    page = Page(history_page("orders", table(rows)))
    assert sum(bool(re.match(r"20\d\d-", cells[0])) for cells in page.cells) == 50


def test_notes_are_shown():
    """What the results do not say."""
    page = Page(run_page("orders", table([a_row()]), run="r1", notes=("A gap <b>.", "Newer windows wait.")))
    assert {("p", "A gap <b>."), ("p", "Newer windows wait.")} <= set(page.texts)


@pytest.mark.parametrize(("share", "shown"), [(0, "0 %"), (1, "< 0.1 %"), (25_000, "2.5 %"), (1_000_000, "100.0 %")])
def test_one_bad_row_in_a_million_does_not_read_as_none(share, shown):
    """A share is rounded, but never to nothing."""
    row = a_row(unexpected=share, considered=1_000_000, success=False)
    page = Page(run_page("orders", table([row]), run="r1"))
    assert any(shown in cells for cells in page.cells), page.cells


def test_a_page_is_replaced_whole(tmp_path):
    """Who opens it meanwhile sees the old one or the new one; nothing else is left."""
    path = tmp_path / "runs" / "r1.html"
    write_page(path, "é old")
    with path.open(encoding="utf-8") as reader:
        write_page(path, "new")
        assert reader.read() == "é old"
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_templates_are_installed_with_the_package():
    """A checkout has them anyhow; a wheel has what pyproject.toml lists."""
    root = Path(__file__).resolve().parents[4]
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["penstock"]
    templates = (root / "platform" / "penstock" / "quality" / "reports" / "templates").iterdir()
    named = [path.relative_to(root / "platform" / "penstock") for path in templates]
    assert named
    assert [str(path) for path in named if not any(path.match(pattern) for pattern in listed)] == []


# --- sizes ------------------------------------------------------------------------------------

MEGABYTE = 1_000_000


@pytest.mark.parametrize("alternating", [False, True], ids=["few failed", "every second one failed"])
def test_a_day_of_windows_is_a_small_page(alternating):
    """1,440 windows and 7 rules: less than a megabyte, which a browser opens at once."""
    page = run_page("orders", a_month(1_440, alternating=alternating), run="r0")
    assert len(page.encode()) < MEGABYTE
    assert Page(page).numbers()["windows"] == "1,440"


@pytest.mark.slow
def test_a_month_of_windows_is_a_small_history():
    """43,200 windows and 7 rules: its plots have a bar for a stretch of time, not one for each window."""
    page = history_page("orders", a_month(43_200, alternating=True), kept=[f"r{n}" for n in range(30)])
    assert len(page.encode()) < MEGABYTE / 4
    assert Page(page).numbers()["windows"] == "43,200"
