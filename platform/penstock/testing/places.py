"""Find what a job under test needs around it, from the current folder upwards."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import ConfigError
from penstock.runtime.project import find_project

__all__ = ["jars_folder", "project_quality"]


def project_quality() -> Path | None:
    """Return the folder of the project's suites, None outside projects."""
    try:
        return find_project().quality
    except ConfigError:
        return None


def jars_folder() -> Path | None:
    """Return the folder of Spark's jars, None where there is none."""
    folders = (Path.cwd(), *Path.cwd().parents)
    return next((folder / ".jars" for folder in folders if (folder / ".jars").is_dir()), None)
