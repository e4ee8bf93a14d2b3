"""Pages say what results hold: numbers are those of a plain count, names stay text, and nothing is loaded."""

from __future__ import annotations

import math
import re
import tomllib
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import DAY, MINUTE, START, a_month

from penstock.quality.reports.pages import history_page, run_page, write_page
from penstock.quality.reports.results import SCHEMA
from penstock.quality.reports.summary import BUCKETS, DAYS, failing, history, rules_of, runs, summary

pytestmark = pytest.mark.sample(14, of="pages of reports")

RULES = {"s:1:rows(v)": "critical", "s:2:rows(w)": "warning", "s:3:mean(v)": "critical", "s:4:sum(v)": "info"}


def a_row(**more) -> dict:
    return {
        "run": "r1", "at": START + DAY, "check": "quality", "table_version": 3, "window_start": START,
        "window_end": START + MINUTE, "rows": 9, "engine": "pandas", "rule": "s:1:rows(v)", "severity": "critical",
        "success": True, "unexpected": 0, "considered": 9, "observed": None, "shown": None, "error": None,
    } | more  # fmt: skip


def table(rows) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


# --- random results ---------------------------------------------------------------------------

NUMBERS = st.none() | st.sampled_from([0.0, -2.5, 1e300, math.nan, math.inf, -math.inf]) | st.floats(-5, 5)


@st.composite
def findings(draw, run: str, at: int, check: str):
    """Draw what one run of a suite found on some windows."""
    places = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    rows = []
    for place in sorted(places):
        start = START + place * draw(st.sampled_from([MINUTE, MINUTE, 5 * DAY]))
        length = draw(st.sampled_from([MINUTE, 2 * MINUTE]))
        if any(row["window_start"] == start and row["window_end"] == start + length for row in rows):
            continue
        window = {"window_start": start, "window_end": start + length, "rows": draw(st.integers(1, 50))}
        engine = draw(st.sampled_from(["pandas", "spark"]))
        for rule, severity in RULES.items():
            error = draw(st.sampled_from([None, None, None, "it broke"]))
            success = error is None and draw(st.booleans())
            measures = {"unexpected": None, "considered": None, "observed": None}
            if "rows" in rule and error is None:
                considered = draw(st.integers(0, 40))
                measures |= {"considered": considered, "unexpected": draw(st.integers(0, considered))}
            elif error is None:
                measures["observed"] = draw(NUMBERS)
            rows.append(a_row(run=run, at=at, check=check, engine=engine, rule=rule, severity=severity,
                               success=success, error=error, **window, **measures))  # fmt: skip
    return rows


@st.composite
def many_runs(draw):
    """Draw runs of two checks at different times, committed in any order."""
    count = draw(st.integers(1, 5))
    ats = draw(st.permutations(range(count)))
    made = [
        draw(findings(f"r{n}", START + 400 * DAY + at * MINUTE, draw(st.sampled_from(["a", "b"]))))
        for n, at in enumerate(ats)
    ]
    return [row for run in made for row in run]


# --- the model --------------------------------------------------------------------------------


def by_window(rows) -> dict:
    windows = defaultdict(list)
    for row in rows:
        windows[row["window_start"], row["window_end"]].append(row)
    return windows


def has_failed(window) -> bool:
    return any(not row["success"] and row["severity"] == "critical" for row in window)


def is_noted(window) -> bool:
    return not has_failed(window) and any(not row["success"] for row in window)


def counted(rows) -> dict:
    windows = by_window(rows).values()
    return {
        "windows": len(windows),
        "failed": sum(map(has_failed, windows)),
        "noted": sum(map(is_noted, windows)),
        "rows": sum(window[0]["rows"] for window in windows),
        "by_spark": sum(window[0]["engine"] == "spark" for window in windows),
        "first": min(row["window_start"] for row in rows),
        "last": max(row["window_end"] for row in rows),
    }


def newest_of(rows, check: str) -> list[dict]:
    """Return the rows of each window's newest run, of the windows that a history shows."""
    ours = [row for row in rows if row["check"] == check]
    kept = []
    for window in by_window(ours).values():
        at = max(row["at"] for row in window)
        kept += [row for row in window if row["at"] == at]
    newest = max(row["window_start"] for row in kept)
    return [row for row in kept if row["window_start"] > newest - DAYS * DAY]


def finite(values) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]


def the_same_rule(rule_summary, rows) -> None:
    """Compare a rule's summary with its rows."""
    bad = [row for row in rows if not row["success"]]
    assert (rule_summary.windows, rule_summary.failed) == (len(rows), len(bad))
    assert rule_summary.errors == sum(row["error"] is not None for row in rows)
    assert rule_summary.last_failed == max((row["window_start"] for row in bad), default=None)
    shares = [
        row["unexpected"] / row["considered"] if row["considered"] else 0.0
        for row in rows
        if row["unexpected"] is not None
    ]
    assert rule_summary.worst == (max(shares) if shares else None)


# --- sums -------------------------------------------------------------------------------------


@settings(max_examples=examples(24))
@given(findings("r1", START + 400 * DAY, "quality"))
def test_a_run_is_summed_up_as_by_a_plain_count(rows):
    """Windows, those that failed, were noted or went to Spark, their rows and bounds; and each rule."""
    summed, model = summary(table(rows)), counted(rows)
    assert {name: getattr(summed, name) for name in model} == model
    assert (summed.id, summed.check, summed.at, summed.version) == ("r1", "quality", rows[0]["at"], 3)
    assert summed.verdict == ("failed" if model["failed"] else "passed")
    summaries = rules_of(table(rows))
    assert [(rule_summary.rule, rule_summary.severity) for rule_summary in summaries] == list(RULES.items())
    for rule_summary in summaries:
        the_same_rule(rule_summary, [row for row in rows if row["rule"] == rule_summary.rule])


@settings(max_examples=examples(24))
@given(findings("r1", START + 400 * DAY, "quality"))
def test_stretches_cover_each_window_once(rows):
    """In the order of windows, each of one state, and never two of the same beside each other."""
    for rule_summary in rules_of(table(rows)):
        ordered = sorted(
            (row for row in rows if row["rule"] == rule_summary.rule),
            key=lambda r: (r["window_start"], r["window_end"]),
        )
        states = ["error" if row["error"] else "passed" if row["success"] else "failed" for row in ordered]
        assert [s.state for s in rule_summary.stretches for _ in range(s.count)] == states
        assert [s.first for s in rule_summary.stretches] == [
            sum(t.count for t in rule_summary.stretches[:n]) for n in range(len(rule_summary.stretches))
        ]
        assert all(a.state != b.state for a, b in zip(rule_summary.stretches, rule_summary.stretches[1:], strict=False))


@settings(max_examples=examples(24))
@given(findings("r1", START + 400 * DAY, "quality"))
def test_what_did_not_pass_is_listed_in_order(rows):
    """All of it, with shares of the rows that counted; a value that is no number is none."""
    listed = failing(table(rows))
    order = list(RULES)
    expected = sorted(
        (row for row in rows if not row["success"]),
        key=lambda row: (row["window_start"], row["window_end"], order.index(row["rule"])),
    )
    assert [
        (finding["window_start"], finding["window_end"], finding["rule"], finding["error"]) for finding in listed
    ] == [(row["window_start"], row["window_end"], row["rule"], row["error"]) for row in expected]
    for finding, row in zip(listed, expected, strict=True):
        assert finding["unexpected"] == row["unexpected"]
        assert finding["share"] == (row["unexpected"] / row["considered"] if row["considered"] else None)


@pytest.mark.slow
@settings(max_examples=examples(32))
@given(many_runs())
def test_a_history_is_summed_up_as_by_a_plain_count(rows):
    """For each check, each window as its newest run found it, over the newest days; buckets hold each window once."""
    checks = history(table(rows))
    assert [check.check for check in checks] == sorted({row["check"] for row in rows})
    for check in checks:
        ours = newest_of(rows, check.check)
        model, windows = counted(ours), by_window(ours)
        for name in ("windows", "failed", "noted", "first", "last"):
            assert getattr(check, name) == model[name], name
        assert 1 <= len(check.buckets) <= BUCKETS
        for bucket, after in zip(check.buckets, [*(b.start for b in check.buckets[1:]), math.inf], strict=True):
            held = [window for (start, _), window in windows.items() if bucket.start <= start < after]
            assert (bucket.windows, bucket.failed, bucket.noted) == (
                len(held), sum(map(has_failed, held)), sum(map(is_noted, held)),
            )  # fmt: skip
        assert {rule_summary.rule: rule_summary.severity for rule_summary in check.rules} == RULES
        for rule_summary in check.rules:
            part = [row for row in ours if row["rule"] == rule_summary.rule]
            the_same_rule(rule_summary, part)
            the_same_plot(rule_summary, part, check.buckets)


def the_same_plot(rule, rows, buckets) -> None:
    """Compare a plot over time: means of shares, or of what was observed, by bucket."""
    on_rows = any(row["unexpected"] is not None for row in rows)
    assert len(rule.shares) == len(buckets)
    for shown, bucket, after in zip(rule.shares, buckets, [*(b.start for b in buckets[1:]), math.inf], strict=True):
        held = [row for row in rows if bucket.start <= row["window_start"] < after]
        if on_rows:
            values = [row["unexpected"] / row["considered"] for row in held if row["considered"]]
        else:
            values = finite(row["observed"] for row in held)
        assert shown == (pytest.approx(math.fsum(values) / len(values)) if values else None)


@settings(max_examples=examples(16))
@given(many_runs())
def test_runs_are_listed_newest_first(rows):
    """Each with its own numbers."""
    listed = runs(table(rows))
    parts = defaultdict(list)
    for row in rows:
        parts[row["run"]].append(row)
    assert [run.id for run in listed] == sorted(parts, key=lambda run: -parts[run][0]["at"])
    for run in listed:
        model = counted(parts[run.id])
        assert {name: getattr(run, name) for name in model} == model


def test_a_window_that_was_judged_again_by_a_changed_suite_is_as_it_was_found_last():
    """A rule that was taken out, or moved, counts no more on it."""
    before = [a_row(rule="s:1:old(v)", success=False), a_row(rule="s:2:rows(v)", success=False)]
    after = [a_row(run="r2", at=START + 2 * DAY, rule="s:1:rows(v)")]
    [check] = history(table(before + after))
    assert (check.windows, check.failed) == (1, 0)
    assert [(rule.rule, rule.failed) for rule in check.rules] == [("s:1:rows(v)", 0)]


def test_a_rule_has_the_severity_of_its_newest_report():
    """A suite may become milder; what was found before is counted by what it was."""
    later = {"window_start": START + MINUTE, "window_end": START + 2 * MINUTE, "at": START + 2 * DAY, "run": "r2"}
    rows = [a_row(success=False), a_row(success=False, severity="warning", **later)]
    [check] = history(table(rows))
    assert (check.failed, check.noted) == (1, 1)
    assert [rule.severity for rule in check.rules] == ["warning"]


def test_windows_older_than_a_month_leave_the_history():
    """They stay in the results. The newest window is what counts, not today."""
    places = [0, 1, DAYS - 1, DAYS]
    rows = [a_row(window_start=START + p * DAY, window_end=START + p * DAY + MINUTE, success=False) for p in places]
    [check] = history(table(rows))
    assert (check.windows, check.failed, check.first) == (3, 3, START + DAY)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([1.0, 3.0, None], 1.0, 3.0), ([math.nan, 2.0], 2.0, 2.0), ([math.inf, 1.0, 5.0], 1.0, 5.0),
     ([-math.inf, 1.0, math.inf], 1.0, 1.0), ([math.inf], None, None), ([None], None, None)],
    ids=["plain", "NaN", "inf", "both", "inf only", "none"],
)  # fmt: skip
def test_the_range_of_what_was_observed_is_of_numbers(values, low, high):
    """One infinite value does not hide the others."""
    rows = [
        a_row(window_start=START + n * MINUTE, rule="s:1:sum(v)", unexpected=None, considered=None, observed=value)
        for n, value in enumerate(values)
    ]
    [rule] = rules_of(table(rows))
    assert (rule.low, rule.high) == (low, high)


# --- pages ------------------------------------------------------------------------------------

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
