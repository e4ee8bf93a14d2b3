"""Where a worker takes pyspark from: files that Python has compiled, not Spark's archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import py4j.version
import pyspark
import pytest

from penstock.runtime.spark.zip_archives import without_archives

PACKAGE = Path(pyspark.__file__).parent
SITE = str(PACKAGE.parent)
ARCHIVE = str(PACKAGE / "python" / "lib" / "pyspark.zip")
PY4J = str(PACKAGE / "python" / "lib" / f"py4j-{py4j.version.__version__}-src.zip")


def test_an_installed_pyspark_is_taken_from_where_it_is_installed(tmp_path: Path) -> None:
    """The archives go, and nothing comes before what was before it; also where the way to the package is another."""
    assert without_archives([ARCHIVE, PY4J, "mine", SITE]) == ["mine", SITE]
    link = tmp_path / "link"
    link.symlink_to(SITE)
    assert without_archives([ARCHIVE, PY4J, "mine", str(link)]) == ["mine", str(link)]


def test_a_copy_of_the_archive_is_the_archive(tmp_path: Path) -> None:
    """YARN copies it into each container; with other bytes it is of another Spark, and stays."""
    copy = tmp_path / "container" / "pyspark.zip"
    copy.parent.mkdir()
    copy.write_bytes(Path(ARCHIVE).read_bytes())
    assert without_archives([str(copy), "mine", SITE]) == ["mine", SITE]
    copy.write_bytes(b"of another Spark")
    assert without_archives([str(copy), "mine", SITE]) == [str(copy), "mine", SITE]


def test_an_archive_stays_where_another_pyspark_would_be_found(tmp_path: Path) -> None:
    """Nor does a folder with an environment's other packages come before them: workers may run in another one."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    assert without_archives([ARCHIVE, str(tmp_path), SITE]) == [ARCHIVE, str(tmp_path), SITE]
    assert without_archives(["mine", ARCHIVE, PY4J]) == ["mine", ARCHIVE, PY4J]


def test_a_spark_that_was_unpacked_has_the_modules_beside_its_archive(tmp_path: Path) -> None:
    """SPARK_HOME/python takes the place of SPARK_HOME/python/lib/pyspark.zip."""
    (tmp_path / "python" / "pyspark").mkdir(parents=True)
    (tmp_path / "python" / "pyspark" / "__init__.py").touch()
    archive = tmp_path / "python" / "lib" / "pyspark.zip"
    assert without_archives([str(archive), SITE]) == [str(tmp_path / "python"), SITE]


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.1-src.zip", "mine.zip"])
def test_an_archive_without_the_same_modules_beside_it_stays(tmp_path: Path, name: str) -> None:
    """Such as the py4j of another version, or an archive that a job brings along."""
    places = [str(tmp_path / "python" / "lib" / name), SITE]
    assert without_archives(places) == places


@pytest.mark.slow
def test_workers_find_pyspark_as_files() -> None:
    """As Spark starts the daemon: with its archives before all else."""
    script = "import penstock.runtime.spark.worker_daemon, py4j, pyspark; print(pyspark.__file__, py4j.__file__)"
    path = os.pathsep.join([ARCHIVE, PY4J, os.environ["PYTHONPATH"]])
    command = [sys.executable, "-c", script]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=100, env={**os.environ, "PYTHONPATH": path}
    )
    assert Path(ARCHIVE).is_file()
    assert ".zip" not in ran.stdout, ran.stdout
