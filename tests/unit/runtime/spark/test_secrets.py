"""Secrets of Spark are named by the configuration, and seen by nobody who lists processes (F62)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_java
from project_samples import make_project

from penstock.config.settings import load_settings
from penstock.errors import ConfigError
from penstock.runtime.spark.secrets import resolved, secrets_in_file

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


def settings_of(folder: Path, line: str):
    """Return the settings of a job with one setting of Spark."""
    return load_settings(make_project(folder, rows=1, more=f"\n[spark.conf]\n{line}\n"), "orders")[0]


@pytest.mark.fault("F62")
@pytest.mark.parametrize("name", [KEY, "spark.ssl.keyPassword", "spark.hadoop.fs.s3a.access.key", "spark.my.token"])
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(tmp_path, name):
    """The error names the setting, the file, and how to say where the secret is."""
    with pytest.raises(ConfigError, match=r"is a secret: write where it is, '\$\{env:NAME\}'") as refused:
        settings_of(tmp_path, f'{name} = "{CANARY}"')
    assert name in str(refused.value)
    assert "orders.toml" in str(refused.value)
    assert "c4n" not in str(refused.value)


@pytest.mark.parametrize("line", [
    'spark.hadoop.fs.s3a.aws.credentials.provider = "a.Class"', 'spark.kubernetes.oauthTokenFile = "/run/token"',
    f'{KEY} = "${{env:S3_KEY}}"', f'{KEY} = "${{file:secrets/s3}}"',
])  # fmt: skip
def test_what_is_about_a_secret_and_what_names_one_is_taken(tmp_path, line):
    """As the remedy of the refusal says; the settings hold the name, so a copy of the code does as well."""
    assert set(settings_of(tmp_path, line).spark.conf.values()) == {line.split(" = ")[1].strip('"')}


def test_a_secret_is_read_where_it_is(tmp_path, monkeypatch):
    """At a start, and not before: a DAG file reads settings, and has no secrets."""
    (tmp_path / "s3").write_text(f"{CANARY}\n")
    monkeypatch.setenv("S3_KEY", CANARY)
    named = {"a": "${env:S3_KEY}", "b": "${file:s3}", "c": "plain ${env:S3_KEY}"}
    assert resolved(named, tmp_path) == {"a": CANARY, "b": CANARY, "c": "plain ${env:S3_KEY}"}
    with pytest.raises(ConfigError, match="NOT_THERE"):
        resolved({"a": "${env:NOT_THERE}"}, tmp_path)


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
