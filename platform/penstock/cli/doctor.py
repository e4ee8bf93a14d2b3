"""`penstock doctor`: say what this machine and project lack, and fetch the jars of delta-spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, NamedTuple

import typer

from penstock.cli.options import Debug, Json, ProjectFolder
from penstock.cli.outcome import outcome, project_at, write_json
from penstock.errors import EnvironmentUnfit, PenstockError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from penstock.runtime.process.project import Project

__all__ = ["Finding", "commands", "package_findings"]

commands = typer.Typer(rich_markup_mode=None)
_EXTRAS = {
    "airflow": "DAGs",
    "quality": "quality reports",
    "ui": "the pages of `penstock ui`",
    "kafka": "Kafka topics",
    "avro": "records of Avro",
    "postgres": "tables of PostgreSQL",
}
"""What people use, and for what; the other extras are for who develops Penstock."""


class Finding(NamedTuple):
    """The result of one check: `trouble` is what to do, empty where all is well or the thing may be missing."""

    what: str
    found: str
    trouble: str = ""


@commands.command()
def doctor(*, json: Json = False, project: ProjectFolder = None, debug: Debug = False) -> None:
    """Check what a job needs on this machine, and fetch its jars.

    Checks Java, packages and their extras, the jars of delta-spark in .jars by their digests, the checkpoint root and
    the settings of every job.

    \b
    Examples:
      penstock doctor
    """  # noqa: D301 - click knows the character, not the two
    with outcome(debug=debug):
        findings: list[Finding] = []
        for finding in _findings(project_at(project)):
            findings.append(finding)
            if not json:
                print(f"{'not ok' if finding.trouble else 'ok':8}{finding.what}: {finding.trouble or finding.found}")
        if json:
            write_json([finding._asdict() for finding in findings])
        bad = [finding.what for finding in findings if finding.trouble]
        if bad:
            raise EnvironmentUnfit(f"no job can run before this is mended: {', '.join(bad)}")


def _findings(project: Project) -> Iterator[Finding]:
    from penstock.runtime.spark.java import java_command, java_major, java_says, java_trouble

    java = java_command(os.environ)
    version = java_says(java)
    trouble = java_trouble(java, version, os.environ.get("JAVA_HOME"))
    yield Finding("Java", f"{java_major(version)}, {java}", trouble or "")
    yield from package_findings()
    if trouble is None:
        yield _jars(project)
    yield from _configuration(project)


def package_findings(name: str = "penstock") -> Iterator[Finding]:
    """Yield what is installed of the requirements of a distribution: the needed ones, and each extra in one line."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in requires(name) or []]
    except PackageNotFoundError:
        yield Finding("packages", "", f"{name} is not installed in {sys.prefix}: pip install it there")
        return
    needed = [requirement for requirement in wanted if requirement.marker is None or requirement.marker.evaluate()]
    wrong = [*filter(None, map(_trouble, needed))]
    yield Finding("packages", f"{len(needed)} as {name} {version(name)} needs them", "; ".join(wrong))
    for extra, use in _EXTRAS.items():
        own = [each for each in wanted if each.marker is not None and each.marker.evaluate({"extra": extra})]
        missing = [*filter(None, map(_trouble, [each for each in own if each not in needed]))]
        absent = f"not installed; {use} need it: pip install '{name}[{extra}]'"
        yield Finding(f"extra {extra}", absent if missing else f"installed, for {use}")


def _trouble(requirement: Requirement) -> str | None:
    try:
        there = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is missing: pip install '{requirement.name}{requirement.specifier}'"
    if requirement.specifier.contains(there, prereleases=True):
        return None
    return f"{requirement.name} is {there}: pip install '{requirement.name}{requirement.specifier}'"


def _jars(project: Project) -> Finding:
    from penstock.runtime.spark.jars import are_there, delta_jars, ensure

    jars = delta_jars(project.jars)
    if are_there(jars):  # others beside them are the user's own, for Spark
        return Finding("jars", f"{len(jars.wanted())} of delta-spark in {project.jars}")
    missing = [line for line in ensure(jars) if " is extra: " not in line]
    return Finding("jars", f"{len(jars.wanted())} of delta-spark fetched into {project.jars}", "; ".join(missing))


def _configuration(project: Project) -> Iterator[Finding]:
    from penstock.checkpoint.roots import control_store
    from penstock.config.settings import checkpoint_root, load_settings

    try:
        root = checkpoint_root(project.root)
        control_store(root)
    except (PenstockError, OSError) as why:
        yield Finding("checkpoint root", "", str(why))
    else:
        yield Finding("checkpoint root", str(root))
    for job in project.job_names():
        try:
            load_settings(project.root, job)
        except PenstockError as why:
            yield Finding(f"configuration of {job}", "", str(why))
        else:
            yield Finding(f"configuration of {job}", "read; `penstock config check` builds the job as well")
