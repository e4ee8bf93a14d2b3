"""`penstock init NAME`: write a project with one job that runs, or add a job to a project that is there."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Debug
from penstock.cli.outcome import outcome
from penstock.errors import ConfigError, FilesInTheWay

__all__ = ["DAGS", "commands", "job_files", "project_files"]

commands = typer.Typer(rich_markup_mode=None)
DAGS = (
    "streams.py",
    "restart_from_checkpoint.py",
    "stream_requests.py",
    "quality_reports.py",
    "checkpoint_upkeep.py",
)


@commands.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name.", show_default=False)],
    *,
    folder: Annotated[
        Path, typer.Option("--into", metavar="DIR", help="The project's folder; created if it does not exist.")
    ] = Path(),
    debug: Debug = False,
) -> None:
    """Write a project with a job that runs, or add a job to it.

    Writes module, settings, suite, input rows, test, and the DAG files. Existing files stay as they are.

    \b
    Examples:
      penstock init clicks
      penstock init clicks --into streams
    """  # noqa: D301 - click knows the character, not the two
    from penstock.graph.names import is_name

    with outcome(debug=debug):
        if not is_name(name):
            raise ConfigError(
                f"{name!r} names no job: write a lower-case letter, then up to 62 letters, digits or underscores"
            )
        job = job_files(name)
        if taken := [path for path in job if (folder / path).exists()]:
            shown = ", ".join(map(str, taken))
            raise FilesInTheWay(f"there is {shown}; nothing was written", where=str(folder.resolve()))
        common = {path: text for path, text in project_files().items() if not (folder / path).exists()}
        for path, text in {**common, **job}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("x", encoding="utf-8") as file:
                file.write(text)
            print(path)
        here = "" if folder.resolve() == Path.cwd() else f"  cd {folder}\n"
        commands = {
            "penstock doctor": "what this machine lacks; fetches the jars of delta-spark",
            f"penstock explain {name}": "the steps and the Spark job of a batch",
            f"penstock run {name}": f"data/{name}.csv into tables/{name}",
            "python -m pytest tests": "the job's test",
        }
        width = max(map(len, commands))
        print(f"\nNext:\n{here}" + "\n".join(f"  {words:{width}}  {does}" for words, does in commands.items()))


def project_files() -> dict[Path, str]:
    """Return the files of a project that are of no one job, by path from its root."""
    from penstock.runtime.process.project import MARK

    dags = {Path("dags", name): _template(f"dag_{name}") for name in DAGS}
    return {MARK: _template("project.toml"), Path(".gitignore"): _template("gitignore"), **dags}


def job_files(name: str) -> dict[Path, str]:
    """Return the files of a job, by path from the project's root: module, settings, suite, rows and test."""
    templates = {
        Path("jobs", f"{name}.py"): "job.py",
        Path("conf", "jobs", f"{name}.toml"): "job.toml",
        Path("conf", "quality", f"{name}_quality.json"): "suite.json",
        Path("data", f"{name}.csv"): "rows.csv",
        Path("tests", f"test_{name}.py"): "test.py",
    }
    return {path: _template(template).replace("@NAME@", name) for path, template in templates.items()}


def _template(name: str) -> str:
    return files("penstock.cli").joinpath("new_project", f"{name}.txt").read_text(encoding="utf-8")
