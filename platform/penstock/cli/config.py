"""`penstock config check`: read every file of the configuration, and build every job with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from penstock.cli.options import Debug, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at, write_json
from penstock.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    from penstock.runtime.process.project import Project

__all__ = ["commands"]

commands = typer.Typer(name="config", no_args_is_help=True, help="Check the configuration.")


@commands.command()
def check(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Read every file, and build every job.

    Reports every error with file and line: keys, types, suites, missing names that a job reads, and what its code and
    its file say against each other.
    It starts no Spark; `penstock explain` checks columns and SQL.

    \b
    Examples:
      penstock config check
    """  # noqa: D301 - click knows the character, not the two
    from penstock.config.notifications import load_events
    from penstock.config.settings import checkpoint_root
    from penstock.config.toml_reader import shown_path

    with outcome(debug=debug):
        here = project_at(project)
        checkpoint_root(here.root)  # what is wrong for all jobs is raised once
        load_events(here.root)
        problems_of = {job: list(_problems(here, job)) for job in here.job_names()}
        for path in sorted((here.root / "conf" / "jobs").glob("*.toml")):
            if path.stem not in problems_of:
                problems_of[path.stem] = [f"there is no jobs/{path.stem}.py for {shown_path(path)}"]
        if json:
            write_json(problems_of)
        else:
            for name, problems in problems_of.items():
                print(f"{name}: {'ok' if not problems else 'not ok'}")
                for problem in problems:
                    print(f"  {problem}")
        bad = [name for name, problems in problems_of.items() if problems]
        if bad:
            raise ConfigError(f"{', '.join(bad)} cannot run", where=shown_path(here.root / "conf"))


def _problems(project: Project, job: str) -> Iterator[str]:
    from penstock.quality import load_suite
    from penstock.quality.reports.suites import read_suite
    from penstock.quality.suite import find_suites
    from penstock.runtime.inspect.quality_report import targets_of
    from penstock.runtime.process.choices import refuse_disagreement

    try:
        loaded = project.load(job)
        suites = find_suites(loaded.job.graph(), project.quality)
    except PenstockError as why:
        yield _in_words(why)
        return
    try:
        refuse_disagreement(loaded.job, loaded.settings)
    except PenstockError as why:
        yield _in_words(why)
    for name, suite in suites.items():
        try:
            load_suite(suite, where=f"check {name!r} of jobs/{job}.py")
        except PenstockError as why:
            yield _in_words(why)
    try:
        for target in targets_of(loaded).values():
            if target.check in loaded.settings.reports.suites:
                read_suite(target.suite, where=target.where)
    except PenstockError as why:
        yield _in_words(why)
    for name in loaded.conf.unused():
        yield f"[{name}] is asked for by nothing in jobs/{job}.py"


def _in_words(why: PenstockError) -> str:
    return f"{why.code} {why.what}" + (f" ({why.where})" if why.where else "")
