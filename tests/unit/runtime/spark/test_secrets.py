"""Secrets of Spark are named by the configuration, and seen by nobody who lists processes (F62)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_java

from penstock.runtime.spark.secrets import secrets_in_file

KEY = "spark.hadoop.fs.s3a.secret.key"
CANARY = "c4n=ary :#!"
APART = """
import os, sys
from pathlib import Path
from penstock.runtime.spark.session import open_session
spark = open_session("t", master="local[1]", secrets={sys.argv[1]: os.environ["CANARY"]})
words = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
inside = spark.sparkContext._jsc.hadoopConfiguration().get(sys.argv[1].removeprefix("spark.hadoop."))
print("FOUND", inside == os.environ["CANARY"], any(os.environ["CANARY"][:3].encode() in word for word in words), "PYSPARK_SUBMIT_ARGS" in os.environ)
spark.stop()
"""


def test_the_file_of_a_jvm_is_private_and_goes(monkeypatch):
    """Also where somebody has arguments of pyspark's already."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")
    with secrets_in_file({KEY: CANARY}):
        file = Path(os.environ["PYSPARK_SUBMIT_ARGS"].split()[1])
        assert file.stat().st_mode & 0o777 == 0o600
        assert os.environ["PYSPARK_SUBMIT_ARGS"].endswith("--verbose pyspark-shell")
    assert (file.exists(), os.environ["PYSPARK_SUBMIT_ARGS"]) == (False, "--verbose pyspark-shell")


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.fault("F62")
@pytest.mark.parametrize("there", [False, True], ids=["its own JVM", "one that is there"])
def test_spark_has_the_secret_and_no_process_shows_it(there):
    """The words of a JVM are seen by every user of its machine; spark-submit starts one before the driver."""
    java = warm_java.environment() if there else {}
    ran = subprocess.run(
        [sys.executable, "-c", APART, KEY], env={**os.environ, "CANARY": CANARY, **java}, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert "FOUND True False False" in ran.stdout, ran.stderr[-2_000:]
