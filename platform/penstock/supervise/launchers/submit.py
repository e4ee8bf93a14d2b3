"""Start drivers of a cluster by `spark-submit`: standalone, YARN or Kubernetes, in client mode (decision 34).

The driver runs on the supervisor's machine, and only its executors run on the cluster. So the launcher finds, watches
and ends it like the driver of a local master: as a process. The cluster ends the executors of a killed driver itself,
because they do not outlive the connection to it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from penstock.config.settings import Settings
from penstock.errors import EnvironmentUnfit
from penstock.runtime.process.project import Project
from penstock.runtime.spark.secrets import properties_text, resolved
from penstock.runtime.spark.session import session_settings
from penstock.supervise.launcher import LaunchOrder, run_words

__all__ = ["submit_environment", "submit_words"]

_PROPERTIES = "spark.properties"


def submit_words(order: LaunchOrder, settings: Settings, scratch: Path) -> list[str]:
    """Return the words that submit the driver of an order; its settings are written to a file in `scratch`.

    Only its owner can read the file, whereas the words of a process are seen by everybody.
    """
    project = Project(order.project, order.code)
    chosen = session_settings(
        master=settings.spark.master,
        jars=project.jars,
        settings=resolved(settings.spark.conf, project.root),
        modules=project.modules,
    )
    chosen |= {"spark.master": settings.spark.master, "spark.app.name": f"penstock {order.job}"}
    # The driver is run by our own interpreter. Executors have theirs at the same path, if nothing else is said.
    chosen |= {"spark.pyspark.driver.python": sys.executable}
    chosen.setdefault("spark.pyspark.python", sys.executable)
    file = scratch / _PROPERTIES
    file.touch(mode=0o600)
    file.write_text(properties_text(chosen), encoding="utf-8")
    return [
        *(str(_spark() / "bin" / "spark-submit"), "--deploy-mode", "client"),
        *("--properties-file", str(file), "--load-spark-defaults"),
        str(Path(__file__).parents[2] / "__main__.py"),
        *run_words(order),
        *("--logs", str(order.logs)),
    ]


def submit_environment() -> dict[str, str]:
    """Return what spark-submit needs beside a driver's environment."""
    # Safe path: the folder of __main__.py holds penstock's own modules, which are no top-level names.
    return {"SPARK_HOME": str(_spark()), "PYTHONSAFEPATH": "1"}


def _spark() -> Path:
    """Return the folder of the Spark that pip has installed: a driver's Python and its JVM must be of one version."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentUnfit("pyspark is not installed")
    return Path(spec.origin).parent
