"""`penstock init`: a project with one job that runs, and nothing that was there is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.init import DAGS, job_files, project_files
from penstock.cli.main import app
from penstock.runtime.process.project import find_project

ROOT = Path(__file__).resolve().parents[3]


def init(*words: str) -> tuple[int, str, str]:
    """Run the command in this process."""
    result = CliRunner().invoke(app, ["init", *words])
    return result.exit_code, result.stdout, result.stderr


def contents(folder: Path) -> dict[Path, bytes]:
    """Return every file by path from the folder."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_project_is_made_with_a_job_that_builds(tmp_path):
    """In a folder that need not be there; what was made is printed, and the configuration check finds nothing."""
    folder = tmp_path / "deep" / "streams"
    code, out, _ = init("clicks", "--into", str(folder))
    assert code == 0
    made = {**project_files(), **job_files("clicks")}
    assert {path: text.encode() for path, text in made.items()} == contents(folder)
    assert set(out.splitlines()[: len(made)]) == {str(path) for path in made}
    assert find_project(given=folder).load("clicks").job.name == "clicks"
    checked = CliRunner().invoke(app, ["config", "check", "--json", "--project", str(folder)])
    assert (checked.exit_code, json.loads(checked.stdout)) == (0, {"clicks": []})


@pytest.mark.parametrize("name", ["a", "clicks_of_all_users"])
def test_the_next_commands_stand_in_columns(tmp_path, name):
    """However long the name of the job is."""
    _, out, _ = init(name, "--into", str(tmp_path))
    commands = [line for line in out.splitlines() if line.startswith("  ") and not line.startswith("  cd ")]
    assert len(commands) == 4
    assert len({line.rindex("  ") for line in commands}) == 1


def test_a_second_job_is_added_and_what_is_there_stays(tmp_path):
    """Its settings were edited, and a DAG file was removed on purpose or not: that one comes back."""
    init("clicks", "--into", str(tmp_path))
    settings = tmp_path / "conf" / "penstock.toml"
    settings.write_text("[checkpoint]\nkeep = 3\n")
    (tmp_path / "dags" / "streams.py").unlink()
    before = contents(tmp_path)
    code, _, _ = init("orders", "--into", str(tmp_path))
    assert code == 0
    after = contents(tmp_path)
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {*job_files("orders"), Path("dags", "streams.py")}


@pytest.mark.remedy("PEN-CNF-002")
def test_a_file_in_the_way_is_named_and_nothing_is_written(tmp_path):
    """Another name or another folder, as the error says, and it works."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_clicks.py").write_text("mine")
    before = contents(tmp_path)
    code, _, err = init("clicks", "--into", str(tmp_path))
    assert code == 78
    assert "PEN-CNF-002 there is tests/test_clicks.py; nothing was written" in err
    assert contents(tmp_path) == before
    assert init("visits", "--into", str(tmp_path))[0] == 0
    assert init("clicks", "--into", str(tmp_path / "other"))[0] == 0


@pytest.mark.parametrize("name", ["Clicks", "2clicks", "cl-icks", "../clicks", "", "a" * 64])
def test_what_is_no_name_of_a_job_makes_nothing(tmp_path, name):
    """Names become paths."""
    code, _, err = init(name, "--into", str(tmp_path / "project"))
    assert (code, "names no job" in err) == (78, True)
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize("name", DAGS)
def test_the_dag_files_are_those_of_the_clone(name):
    """What is tested in Airflow is what a new project gets."""
    assert project_files()[Path("dags", name)] == (ROOT / "dags" / name).read_text()
    assert {path.name for path in (ROOT / "dags").glob("*.py")} == set(DAGS)
