"""Find what a job under test needs around it, from the current folder upwards."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.runtime.project import find_project
from penstock.runtime.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["jars_folder", "project_quality", "session_of_tests"]


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


def session_of_tests() -> SparkSession:
    """Return the one Spark session of this process, whose workers find the modules that this process finds now.

    A function of a module is sent to them by name, and who runs tests puts the folders of their modules on the path.
    """
    spark = open_session("penstock-tests", jars=jars_folder())
    environment = spark.sparkContext.environment
    known = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", "")).split(os.pathsep)
    new = [entry for entry in sys.path if entry not in known and Path(entry).is_dir() and not _is_installed(entry)]
    if any(new):  # what is started for other words than before are other workers
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*new, *known]))
    return spark


def _is_installed(folder: str) -> bool:
    return any(Path(folder).is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
