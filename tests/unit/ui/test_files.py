"""Reports are served from their own folder, by known types, and by no other way."""

from __future__ import annotations

import json
import re

import pytest
from project_samples import make_project
from report_samples import a_month
from ui_site import NOW, Site, words_of

from penstock.checkpoint.roots import REPORTED
from penstock.quality.reports import docs
from penstock.quality.reports.judge import Judged
from penstock.quality.reports.published import Window
from penstock.quality.reports.summary import noted
from penstock.ui.commits import Reported, read_reported
from penstock.ui.files import find_report, has_reports
from penstock.ui.report_pages import tidied, with_bar

VALIDATION = "docs/validations/gate/r1/t/window 2.html"


@pytest.fixture
def site(tmp_path):
    return Site(make_project(tmp_path / "project", rows=10))


@pytest.fixture
def folder(site):
    """The reports of a job, and beside them what nobody may have."""
    reports = site.root / "checkpoints" / "_reports" / "orders"
    for name, text in {
        "index.html": "<h1>History</h1>", "runs/r1.html": "<h1>Run</h1>", "runs/r1.json": "{}", "docs/index.html": "<script src='https://x'>", VALIDATION: "<h1>Window 2</h1>", VALIDATION.replace("2", "1"): "<h1>Window 1</h1>",
        "docs/validations/gate/r2/t/window 1&<b>.html": "x",
        "docs/static/a b.otf": "x", "docs/static/a.css": "p {}", "docs/static/a.js": "1", "docs/static/a.exe": "x", "docs/.hidden.html": "x",
        "../../secret.html": "secret",
    }.items():  # fmt: skip
        path = reports / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (site.root / "checkpoints").chmod(0o700)
    (reports / "runs" / "link.html").symlink_to(reports.parents[1] / "secret.html")
    (reports / "docs" / "out").symlink_to(reports.parents[1])
    return reports


def test_reports_are_in_the_navigation_where_there_are_some(site):
    """And not before."""
    assert "Reports" not in site.text("/")
    assert "There are no quality reports yet." in site.text("/reports")


def test_reports_are_listed_and_lead_to_their_pages(site, folder):
    """From the navigation, the list, and the page of the job."""
    assert "Reports" in site.text("/")
    assert 'href="/reports/orders/index.html"' in site.get("/reports").text
    assert 'href="/reports/orders/index.html"' in site.get("/jobs/orders").text


@pytest.mark.parametrize(
    ("path", "kind"),
    [("index.html", "text/html"), ("runs/r1.html", "text/html"), (VALIDATION, "text/html"),
     ("docs/static/a.css", "text/css"), ("docs/static/a.js", "text/javascript"), ("docs/static/a b.otf", "font/otf")],
)  # fmt: skip
def test_a_page_is_served_with_a_policy(site, folder, path, kind):
    """No script runs in it, whatever stood in the data that it tells of; nothing is fetched from elsewhere."""
    answer = site.get(f"/reports/orders/{path}")
    assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (200, kind)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_pages_of_great_expectations_are_listed(site, folder):
    """Its own first page is empty without scripts from the internet; the newest run comes first."""
    text = site.get("/reports/orders/docs/index.html").text
    listed = re.findall(r'href="(validations/[^"]+)"', text)
    assert listed == ["validations/gate/r1/t/window%202.html", "validations/gate/r1/t/window%201.html"]
    assert site.get(f"/reports/orders/docs/{listed[0]}").text.endswith("<h1>Window 2</h1>")
    (folder / "docs" / "validations" / "gate" / "r1" / "t" / "window 2.html").unlink()
    (folder / "docs" / "validations" / "gate" / "r1" / "t" / "window 1.html").unlink()
    assert "There are none yet." in site.text("/reports/orders/docs/index.html")


def test_a_folder_leads_to_its_first_page(site, folder):
    """So that what the page names is found beside it."""
    answer = site.get("/penstock/reports/orders/docs/", root_path="/penstock")
    assert (answer.status_code, answer.headers["Location"]) == (307, "/penstock/reports/orders/docs/index.html")


@pytest.mark.fault("F61")
@pytest.mark.parametrize(
    "path",
    ["../../secret.html", "..%2f..%2fsecret.html", "runs/../../../secret.html", "runs/link.html", "docs/out/secret.html",
     "docs/static/a.exe", "docs/.hidden.html", "runs/r1.json", "runs", "docs//index.html", "%2fetc%2fhosts.html", "a%00.html",
     "nothing.html", "x" * 300 + ".html"],
)  # fmt: skip
def test_nothing_else_is_served(site, folder, path):
    """No way out, no hidden file, no other type, no link (F61)."""
    answer = site.get(f"/reports/orders/{path}")
    assert answer.status_code == 404
    assert "secret" not in words_of(answer.text)


def test_a_folder_that_is_a_link_has_no_reports(site, folder, tmp_path):
    """Whoever may make a link need not be one who may read."""
    (folder.parent / "linked").symlink_to(folder)
    (tmp_path / "_reports").symlink_to(folder.parent)
    (tmp_path / "root").symlink_to(folder.parents[1])
    assert has_reports(folder)
    assert has_reports(tmp_path / "root" / "_reports" / "orders")
    assert not has_reports(folder.parent / "linked")
    assert not has_reports(tmp_path / "_reports" / "orders")
    assert find_report(folder, "../orders/index.html") is None


def test_reports_of_what_is_no_job_are_not_looked_for(site, folder):
    """Its name is not even part of a path."""
    for job in ("..", "nope", "_reports"):
        assert site.get(f"/reports/{job}/index.html").status_code == 404


GATED = {"accounting": {"check:gate": {"in": 20, "published": 12, "quarantined": 5, "dropped": 1, "held": 2}}}
JUDGED = {"check": "gate", "unit": 60_000_000, "status": "failed", "rows": 3, "action": "quarantine", "results": []}
FOUND = {
    "runs": [{"at": NOW - 9, "check": "gate", "verdict": "passed", "windows": 4, "failed": 0},
             {"at": NOW, "check": "gate", "verdict": "failed", "windows": 4, "failed": 1}],
    "checks": [{"check": "gate", "windows": 8, "failed": 1, "noted": 2}],
}  # fmt: skip


def test_a_report_stands_beside_what_the_gates_decided(site, folder):
    """A report with no failed window says nothing of the rows that a gate never let through."""
    site.batches(2, verdicts=[JUDGED], **GATED)
    text = site.text("/reports/orders/index.html")
    assert "Decisions of the gates" in text
    assert "gate 24 10 2 4 2 failed, quarantine (of 2 batches, rows too)" in text
    assert text.endswith("History")
    assert "Decisions of the gates" not in site.text("/reports/orders/runs/r1.html")


def test_the_list_says_how_each_job_stands(site, folder):
    """Verdict, date, windows, trend, and rows that never became part of a report."""
    site.batches(2, verdicts=[JUDGED], **GATED)
    (folder / REPORTED).write_text(json.dumps(FOUND))
    text = site.text("/reports")
    assert "orders ✖ failed2023-11-14 22:13:20Z 8 1" in text.replace("✖ failed 2023", "✖ failed2023")
    assert "25.0 % of its windows failed" in text
    assert text.partition("25.0 %")[2].count("10") >= 1
    assert site.get(f"/reports/orders/{REPORTED}").status_code == 404


@pytest.mark.parametrize("reported", [None, "", "[]", "{}", '{"runs": 7, "checks": []}', '{"runs": [{}], "checks": []}', '{"runs": [], "checks": []}', "\xff", "[" * 100_000,
                                  '{"runs": [{"verdict": "x", "at": Infinity, "windows": 1, "failed": 0}], "checks": []}'])  # fmt: skip
def test_reports_of_an_older_version_are_listed_too(site, folder, reported):
    """Without what those did not note."""
    if reported is not None:
        (folder / REPORTED).write_bytes(reported.encode("latin-1"))
    assert "see its page" in site.text("/reports")
    assert read_reported(folder / REPORTED) == Reported()


def test_a_report_notes_what_the_list_says():
    """What is written beside the pages is what the list reads."""
    rows = a_month(1_440 * 3, alternating=False)
    reported = json.loads(noted(rows))
    assert [run["windows"] for run in reported["runs"]] == [1_440] * 3
    assert [run["at"] for run in reported["runs"]] == sorted(run["at"] for run in reported["runs"])
    assert [(check["check"], check["windows"]) for check in reported["checks"]] == [("quality", 4_320)]
    assert json.loads(noted(rows.slice(0, 0))) == {"runs": [], "checks": []}


@pytest.mark.parametrize("path", ["index.html", "runs/r1.html", VALIDATION])
def test_there_is_a_way_back_from_every_report(site, folder, path):
    """To the streams, the job and the list, whatever the page itself has."""
    page = site.get(f"/penstock/reports/orders/{path}", root_path="/penstock").text
    links = re.findall(r'href="([^"]+)"', page)
    assert {"/penstock/", "/penstock/jobs/orders", "/penstock/reports"} <= set(links)


def test_a_bar_stands_at_the_top_of_any_page():
    """One that has no body still has a beginning."""
    for text, expected in {
        "<html><body class='x'>a": "<html><body class='x'>!a", "<!doctype html><h1>a": "<!doctype html>!<h1>a", "a": "!a", "": "!",
    }.items():  # fmt: skip
        assert with_bar(text, "!") == expected


@pytest.mark.slow
def test_pages_of_great_expectations_have_no_dead_parts(tmp_path):
    """No script, nothing from elsewhere, no button that does nothing; what was folded away is there."""
    document = {"success": True, "results": [], "suite_name": "s", "statistics": {}, "meta": {}}
    window = Judged(window=Window(0, 60_000_000, 1), engine="pandas", findings=(), document=document)
    docs.keep(tmp_path / "newest", "r1", "quality", NOW, [window])
    docs.build_docs(tmp_path / "newest", tmp_path / "docs")
    [path] = (tmp_path / "docs" / "validations").rglob("*.html")
    before, page = path.read_text(), tidied(path.read_text())
    for dead in ("<script", "https://", "Show more info", "newsletter", "Failed Only", "onclick"):
        assert dead in before
        assert dead not in page
    for kept in ("Great Expectations Version", "Table of Contents", "Overview", "Status:"):
        assert kept in page
    assert page.count("<div") == page.count("</div>")
