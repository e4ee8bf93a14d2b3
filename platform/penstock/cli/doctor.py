"""Run `penstock doctor`: say what this machine and project lack, and fetch the jars of delta-spark."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from penstock.checkpoint.roots import control_store
from penstock.checkpoint.storage.hdfs_cache import shown
from penstock.cli.outcome import outcome
from penstock.config.settings import checkpoint_root, load_settings
from penstock.errors import EnvironmentUnfit, PenstockError
from penstock.runtime.process.logging import configure_events
from penstock.runtime.process.project import Project, find_project
from penstock.runtime.spark.jars import are_there, delta_jars, ensure
from penstock.runtime.spark.java import java_command, java_major, java_says, java_trouble

__all__ = ["Finding", "doctor_command", "package_findings"]

_EXTRAS = {"airflow": "DAGs", "quality": "quality reports", "ui": "the pages of `penstock ui`"}
"""What people use, and for what; the other extras are for who develops Penstock."""


class Finding(NamedTuple):
    """The result of one check: `trouble` is what to do, empty where all is well or the thing may be missing."""

    what: str
    found: str
    trouble: str = ""


def doctor_command(*, json: bool, project: Path | None, debug: bool) -> None:
    """Print the result of each check, a line each; end with 78 where something must be mended before a job can run."""
    configure_events(json=False)
    with outcome(debug=debug):
        findings: list[Finding] = []
        for finding in _findings(find_project(given=project)):
            findings.append(finding)
            if not json:
                print(f"{'not ok' if finding.trouble else 'ok':8}{finding.what}: {finding.trouble or finding.found}")
        if json:
            print(jsonlib.dumps([finding._asdict() for finding in findings]))
        bad = [finding.what for finding in findings if finding.trouble]
        if bad:
            raise EnvironmentUnfit(f"no job can run before this is mended: {', '.join(bad)}")


def _findings(project: Project) -> Iterator[Finding]:
    java = java_command(os.environ)
    said = java_says(java)
    trouble = java_trouble(java, said, os.environ.get("JAVA_HOME"))
    yield Finding("Java", f"{java_major(said)}, {java}", trouble or "")
    yield from package_findings()
    if trouble is None:
        yield _jars(project)
    yield from _configuration(project)


def package_findings(name: str = "penstock") -> Iterator[Finding]:
    """Yield what is installed of the requirements of a distribution: the needed ones, and each extra in one line."""
    try:
        wanted = [Requirement(text) for text in requires(name) or []]
    except PackageNotFoundError:
        yield Finding("packages", "", f"{name} is not installed in {sys.prefix}: pip install it there")
        return
    needed = [requirement for requirement in wanted if requirement.marker is None or requirement.marker.evaluate()]
    wrong = [*filter(None, map(_trouble, needed))]
    yield Finding("packages", f"{len(needed)} as {name} {version(name)} needs them", "; ".join(wrong))
    for extra, use in _EXTRAS.items():
        own = [one for one in wanted if one.marker is not None and one.marker.evaluate({"extra": extra})]
        missing = [*filter(None, map(_trouble, [one for one in own if one not in needed]))]
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
    jars = delta_jars(project.jars)
    if are_there(jars):  # others beside them are the user's own, for Spark
        return Finding("jars", f"{len(jars.wanted())} of delta-spark in {project.jars}")
    said = [line for line in ensure(jars) if " is extra: " not in line]
    return Finding("jars", f"{len(jars.wanted())} of delta-spark fetched into {project.jars}", "; ".join(said))


def _configuration(project: Project) -> Iterator[Finding]:
    try:
        root = checkpoint_root(project.root)
        control_store(root)
    except (PenstockError, OSError) as why:
        yield Finding("checkpoint root", "", str(why))
    else:
        yield Finding("checkpoint root", shown(root))
    for job in project.job_names():
        try:
            load_settings(project.root, job)
        except PenstockError as why:
            yield Finding(f"configuration of {job}", "", str(why))
        else:
            yield Finding(f"configuration of {job}", "read; `penstock config check` builds the job as well")
