"""Find what a job under test needs around it, from the current folder upwards."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.runtime.process.project import find_project
from penstock.runtime.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["project_quality", "session_of_tests"]


def project_quality() -> Path | None:
    """Return the folder of the project's suites, None outside projects."""
    try:
        return find_project().quality
    except ConfigError:
        return None


def session_of_tests() -> SparkSession:
    """Return the one Spark session of this process, whose workers find the modules that this process finds now.

    A function of a module is sent to them by name, and who runs tests puts the folders of their modules on the path.
    """
    folders = (folder / ".jars" for folder in (Path.cwd(), *Path.cwd().parents))
    spark = open_session("penstock-tests", jars=next(filter(Path.is_dir, folders), None))
    environment, own = spark.sparkContext.environment, os.environ.get("PYTHONPATH", "")
    known = environment.get("PYTHONPATH", own).split(os.pathsep)
    wanted = [
        entry for entry in sys.path if isinstance(entry, str) and Path(entry).is_dir() and not _is_installed(entry)
    ]
    if not {*filter(None, wanted)} <= {*known}:  # for other folders than before, others are started
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys([*own.split(os.pathsep), *wanted])))
    return spark


def _is_installed(folder: str) -> bool:
    """Return whether workers find the modules of a folder by themselves, and where it belongs among the others."""
    own = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    return any(
        Path(folder).is_relative_to(path) for path in [*own, *site.getsitepackages(), site.getusersitepackages()]
    )
