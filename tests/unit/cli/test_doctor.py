"""`penstock doctor`: what is missing is named with what to do, before a job needs it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from project_samples import make_project
from typer.testing import CliRunner

from penstock.cli import doctor
from penstock.cli.main import app
from penstock.runtime.spark import jars

ROOT = Path(__file__).resolve().parents[3]


def findings(root: Path) -> tuple[int, dict[str, dict[str, str]], str]:
    """Run the command in this process: exit code, findings by name, errors."""
    result = CliRunner().invoke(app, ["doctor", "--json", "--project", str(root)])
    return result.exit_code, {finding["what"]: finding for finding in json.loads(result.stdout)}, result.stderr


def test_a_machine_that_lacks_nothing_is_told_so(tmp_path):
    """A line for each thing, all of them ok, and exit code 0."""
    root = make_project(tmp_path / "p")
    result = CliRunner().invoke(app, ["doctor", "--project", str(root)])
    assert result.exit_code == 0, result.stdout
    assert {line[:8] for line in result.stdout.splitlines()} == {"ok      "}
    code, by_name, _ = findings(root)
    assert code == 0
    assert {"Java", "packages", "jars", "checkpoint root", "configuration of orders"} <= by_name.keys()


def test_each_extra_of_users_has_a_line():
    """Those of pyproject.toml, but the one for who develops Penstock."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    lines = {finding.what for finding in doctor.package_findings()}
    assert {what.removeprefix("extra ") for what in lines if what.startswith("extra ")} == {*extras} - {"dev"}


@pytest.mark.remedy("PEN-ENV-001")
def test_java_is_asked_for(tmp_path, monkeypatch):
    """Without one the jars cannot be fetched, and are not looked at; with the one that was asked for all is well."""
    root = make_project(tmp_path / "p")
    with monkeypatch.context() as without:
        without.setenv("JAVA_HOME", str(tmp_path))
        code, by_name, err = findings(root)
    assert (code, "PEN-ENV-001" in err) == (78, True)
    assert "has none: install openjdk-17-jre-headless" in by_name["Java"]["trouble"]
    assert "jars" not in by_name
    assert findings(root)[0] == 0


def test_jars_that_cannot_be_fetched_are_named_with_what_ivy_said(tmp_path, monkeypatch):
    """And those that are there are left alone; a jar of the user's beside them is no trouble."""
    root = make_project(tmp_path / "p")
    assert findings(root)[0] == 0
    (root / ".jars").unlink()
    monkeypatch.setattr(jars, "fetch", lambda wanted: "UNRESOLVED DEPENDENCIES")
    code, by_name, _ = findings(root)
    assert code == 78
    assert "delta-storage-4.4.0.jar is missing" in by_name["jars"]["trouble"]
    assert "UNRESOLVED DEPENDENCIES" in by_name["jars"]["trouble"]

    def fetch(wanted: jars.Jars) -> None:
        for name in wanted.wanted():
            (wanted.folder / name).write_bytes((Path(__file__).parents[3] / ".jars" / name).read_bytes())

    monkeypatch.setattr(jars, "fetch", fetch)
    (root / ".jars" / "mine.jar").write_bytes(b"?")
    code, by_name, _ = findings(root)
    assert (code, by_name["jars"]["trouble"]) == (0, "")


def test_settings_that_are_wrong_and_a_root_that_cannot_be_made_are_named(tmp_path):
    """Each job in a line of its own."""
    root = make_project(tmp_path / "p", more='\n[run]\ntrigger = "soon"\n')
    (root / "conf" / "penstock.toml").write_text('[checkpoint]\nroot = "file"\n')
    (root / "file").write_text("no folder")
    code, by_name, _ = findings(root)
    assert code == 78
    assert by_name["checkpoint root"]["trouble"]
    assert "conf/jobs/orders.toml" in by_name["configuration of orders"]["trouble"]


@pytest.mark.parametrize(
    ("wanted", "trouble", "extra"),
    [
        (["numpy>=1"], "", None),
        (["numpy>=999"], "pip install 'numpy>=999'", None),
        (["no-such-package>=1"], "no-such-package is missing: pip install 'no-such-package>=1'", None),
        (["no-such-package; python_version < '3'"], "", None),
        (["no-such-package; extra == 'airflow'"], "", "not installed; DAGs need it: pip install 'penstock[airflow]'"),
        (["numpy; extra == 'airflow'"], "", "installed, for DAGs"),
    ],
)
def test_packages_are_compared_with_what_penstock_needs(monkeypatch, wanted, trouble, extra):
    """What only an extra needs may be missing."""
    monkeypatch.setattr(doctor, "requires", lambda _: wanted)
    by_name = {finding.what: finding for finding in doctor.package_findings()}
    assert trouble in by_name["packages"].trouble
    assert bool(trouble) == bool(by_name["packages"].trouble)
    assert by_name["extra airflow"].trouble == ""
    assert extra is None or by_name["extra airflow"].found == extra


def test_a_penstock_that_is_not_installed_is_told_where(monkeypatch):
    """Its sources may be on the path without it."""
    (finding,) = doctor.package_findings("no-such-distribution")
    assert "no-such-distribution is not installed in" in finding.trouble
