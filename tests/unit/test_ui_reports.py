"""Reports are served from their own folder, by known types, and by no other way."""

from __future__ import annotations

import re

import pytest
from project_samples import make_project
from ui_site import Site, words_of

from penstock.ui.files import find_report, has_reports

VALIDATION = "docs/validations/gate/r1/t/window 2.html"


@pytest.fixture
def site(tmp_path):
    return Site(make_project(tmp_path / "project", rows=10))


@pytest.fixture
def folder(site):
    """The reports of a job, and beside them what nobody may have."""
    found = site.root / "checkpoints" / "_reports" / "orders"
    for name, text in {
        "index.html": "<h1>History</h1>", "runs/r1.html": "<h1>Run</h1>", "runs/r1.json": "{}", "docs/index.html": "<script src='https://x'>", VALIDATION: "<h1>Window 2</h1>", VALIDATION.replace("2", "1"): "<h1>Window 1</h1>",
        "docs/validations/gate/r2/t/window 1&<b>.html": "x",
        "docs/static/a b.otf": "x", "docs/static/a.css": "p {}", "docs/static/a.js": "1", "docs/static/a.exe": "x", "docs/.hidden.html": "x",
        "../../secret.html": "secret",
    }.items():  # fmt: skip
        path = found / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (site.root / "checkpoints").chmod(0o700)
    (found / "runs" / "link.html").symlink_to(found.parents[1] / "secret.html")
    (found / "docs" / "out").symlink_to(found.parents[1])
    return found


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
    assert site.get(f"/reports/orders/docs/{listed[0]}").text == "<h1>Window 2</h1>"
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
