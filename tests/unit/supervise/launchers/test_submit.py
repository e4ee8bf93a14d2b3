"""Drivers of a cluster: how they are submitted, and what is asked of the folders that all machines share."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from project_samples import make_project

from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.config.settings import load_settings
from penstock.errors import EXIT_RETRY, ClusterUnavailable, ConfigError, EnvironmentUnfit, NotShared, StorageDenied
from penstock.runtime.process.launch import open_spark
from penstock.runtime.process.project import Project
from penstock.runtime.spark import session, storage_probe
from penstock.runtime.spark.secrets import properties_text
from penstock.runtime.spark.session import ARCHIVE, session_settings
from penstock.runtime.spark.storage_probe import Answer, answer, judge, prove_shared
from penstock.supervise.launcher import LaunchOrder
from penstock.supervise.launchers.local import submit_words
from penstock.supervise.stream import Stream

CLUSTER = """
[checkpoint]
shared = true

[spark]
master = "spark://here:1"

[spark.conf]
spark.executorEnv.PYTHONPATH = "/theirs"
spark.hidden = "a secret"
"""
HERE = socket.gethostname()


def read_properties(text: str) -> dict[str, str]:
    """Read a Java properties file as its documentation says: continuation lines and comments are never written."""
    escapes = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
    properties = {}
    for line in text.split("\n")[:-1]:
        parts, chars = [""], iter(line)
        for char in chars:
            if char == "\\":
                following = next(chars)
                parts[-1] += escapes.get(following, following)
            elif char == "=" and len(parts) == 1:
                parts.append("")
            else:
                parts[-1] += char
        properties[parts[0]] = parts[1]
    return properties


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_settings_come_back_as_they_were(settings: dict[str, str]) -> None:
    """Whatever characters they have; nothing in a value begins another setting."""
    assert read_properties(properties_text(settings)) == settings


@pytest.mark.parametrize("master", ["spark://here:1", "spark://a:1,b:2", "yarn", "k8s://https://here:6443"])
def test_a_driver_is_submitted_with_its_settings_in_a_file_of_its_own(tmp_path: Path, master: str) -> None:
    """The words, which everybody on the machine can see, hold no setting; the executors find the copied modules."""
    project = make_project(tmp_path / "project", more=CLUSTER.replace("spark://here:1", master))
    version = project / "checkpoints" / "_versions" / "v"
    version.mkdir(parents=True)
    (version / "jobs").symlink_to(project / "jobs")
    order = LaunchOrder(job="orders", project=project, code=version, stream=Stream(generation=4), logs=tmp_path)
    settings, _ = load_settings(project, "orders")
    words = submit_words(order, settings, tmp_path)

    file = Path(words[words.index("--properties-file") + 1])
    assert (file.parent, file.stat().st_mode & 0o777) == (tmp_path, 0o600)
    assert Path(words[0]).name == "spark-submit"
    assert words[words.index("run") :][:2] == ["run", "orders"]
    assert words[words.index("--generation") + 1] == "4"
    assert "a secret" not in " ".join(words)
    properties = read_properties(file.read_text())
    assert properties["spark.master"] == master
    assert properties["spark.hidden"] == "a secret"
    assert properties["spark.executorEnv.PYTHONPATH"] == f"{version}:{project}:/theirs"
    assert properties["spark.pyspark.driver.python"] == properties["spark.pyspark.python"] == sys.executable


@pytest.mark.parametrize("master", ["local[*]", "spark://here:1"])
def test_executors_are_told_where_the_modules_of_the_job_are(master: str, tmp_path: Path) -> None:
    """Also on this machine: spark-submit has started the JVM before the driver knew of them."""
    properties = session_settings(master=master, modules=[tmp_path, tmp_path / "b"])
    assert properties["spark.executorEnv.PYTHONPATH"] == f"{tmp_path}:{tmp_path}/b"


def test_a_yarn_that_is_nowhere_is_named_before_java_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark says so too, but on the error output of Java, in a stack."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(ConfigError, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set"):
        session.open_session("nowhere", master="yarn")


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_a_yarn_that_sparks_own_script_may_name_is_left_to_spark(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark-submit reads spark-env.sh, where a cluster's clients often set HADOOP_CONF_DIR."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    conf = tmp_path / "conf"
    monkeypatch.setenv(variable, str(conf if variable == "SPARK_CONF_DIR" else tmp_path))
    assert session.is_nowhere("yarn")
    conf.mkdir()
    (conf / "spark-env.sh").write_text("HADOOP_CONF_DIR=/etc/hadoop\n")
    assert not session.is_nowhere("yarn")


def test_commands_run_here_without_what_means_the_machines_of_the_cluster(tmp_path, monkeypatch):
    """A report does not wait for cores that the stream holds, and this machine may have no such interpreter."""
    more = CLUSTER + 'spark.pyspark.python = "/only/there"\nspark.driver.host = "gate"\nspark.mine = "1"\n'
    loaded = Project(make_project(tmp_path / "project", more=more)).load("orders")
    asked = []
    monkeypatch.setattr(
        session, "open_session", lambda name, **how: asked.append((name, how["master"], how["settings"]))
    )
    open_spark(loaded, here=True)
    open_spark(loaded)
    assert asked[0] == ("penstock orders", "local[*]", {"spark.hidden": "a secret", "spark.mine": "1"})
    assert asked[1] == ("penstock orders", "spark://here:1", loaded.settings.spark.conf)


# --- folders that all machines see ----------------------------------------------------------------
def test_an_executor_that_sees_the_same_folder_answers_so(tmp_path: Path) -> None:
    """It reads what the driver left, and leaves something that the driver reads."""
    mark = tmp_path / "_shared-1"
    mark.mkdir()
    (mark / "driver").write_bytes(b"penstock: may be deleted\n")
    answered = answer(LocalFolder(mark))
    assert answered == Answer(HERE, LocalFolder(mark), answered.name, None)
    judge([answered])
    assert (mark / answered.name).exists()


@pytest.mark.parametrize(
    ("left", "reason"),
    [(None, "a file that the driver has just written is not there"), (b"x", "a file of the driver has other bytes")],
    ids=["not there", "other bytes"],
)
def test_an_executor_with_a_folder_of_its_own_is_found(tmp_path: Path, left: bytes | None, reason: str) -> None:
    """The same path on another disk; host and folder are named."""
    mark = tmp_path / "_shared-1"
    mark.mkdir()
    if left is not None:
        (mark / "driver").write_bytes(left)
    with pytest.raises(NotShared, match=reason) as caught:
        judge([answer(LocalFolder(mark))])
    assert (HERE in caught.value.what, caught.value.where) == (True, str(tmp_path))


def test_an_executor_whose_files_do_not_come_back_is_found(tmp_path: Path) -> None:
    """It sees the driver's file, perhaps by a mount that is read-only or cached, and the driver does not see its."""
    mark = tmp_path / "_shared-1"
    mark.mkdir()
    with pytest.raises(NotShared, match="on host h1, the driver does not see a file that it has written") as caught:
        judge([Answer("h1", LocalFolder(mark), "2", None)])
    assert caught.value.where == str(tmp_path)
    (mark / "2").write_bytes(b"x")
    with pytest.raises(NotShared, match="other bytes here"):
        judge([Answer("h1", LocalFolder(mark), "2", None)])


def test_an_executor_without_the_folder_is_found(tmp_path: Path) -> None:
    """It makes no folder: what is not mounted must not look as if it were."""
    with pytest.raises(NotShared, match="not there"):
        judge([answer(LocalFolder(tmp_path / "none"))])
    assert not (tmp_path / "none").exists()


def test_the_proof_asks_every_task_and_leaves_nothing(tmp_path: Path, spark) -> None:
    """On real executors, which see what the driver sees; a folder that is missing is made."""
    folders = [tmp_path / "checkpoint", tmp_path / "tables" / "t"]
    prove_shared(spark, folders)
    assert [list(folder.iterdir()) for folder in folders] == [[], []]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, spark) -> None:
    """Before the executors are asked."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageDenied, match="cannot be made") as caught:
        prove_shared(spark, [tmp_path / "file" / "t"])
    assert caught.value.where == str(tmp_path / "file" / "t")


def test_executors_that_cannot_run_our_code_are_told_from_folders(tmp_path: Path) -> None:
    """The error of their Python is what says most; nothing is left behind."""

    class Broken:
        """Stands for a session whose executors have no penstock."""

        @property
        def sparkContext(self):  # noqa: N802 - Spark's name
            raise RuntimeError("Job aborted\n  Traceback\nModuleNotFoundError: No module named 'penstock'\n\tat java")

    with pytest.raises(EnvironmentUnfit, match="cannot run our code: ModuleNotFoundError: No module named 'penstock'"):
        prove_shared(Broken(), [tmp_path])
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_gives_no_executor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its cores may be another job's; a later start goes on, so it is no matter for a person."""
    monkeypatch.setattr(storage_probe, "_WITHIN", 0.05)
    cancelled = threading.Event()

    class Busy:
        """Stands for a session that waits for executors until its jobs are cancelled."""

        def collect(self) -> None:
            assert cancelled.wait(60)
            raise RuntimeError("Job 0 cancelled")

    busy: Any = Busy()
    busy.sparkContext, busy.cancelAllJobs = busy, cancelled.set
    busy.parallelize = busy.mapPartitions = lambda *_: busy
    with pytest.raises(ClusterUnavailable, match="no executor has run a task within 0.05 s") as caught:
        prove_shared(busy, [tmp_path])
    assert caught.value.exit_code == EXIT_RETRY
    assert list(tmp_path.iterdir()) == []


# --- what Java is started with ---------------------------------------------------------------------
def test_java_gets_the_archive_that_is_there_and_what_the_configuration_adds(tmp_path: Path) -> None:
    """Options of one's own are added to ours, and do not replace them."""
    key = "spark.driver.extraJavaOptions"
    plain = session_settings(master="local[2]", jars=tmp_path)[key]
    assert "SharedArchiveFile" not in plain
    (tmp_path / ARCHIVE).touch()
    both = session_settings(master="local[2]", jars=tmp_path, settings={key: "-Dmine=1"})[key]
    assert both.startswith(plain)
    assert f'"-XX:SharedArchiveFile={tmp_path / ARCHIVE}"' in both
    assert both.endswith(" -Dmine=1")


def test_java_goes_without_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    """And says nothing: what it says would stand among the events of a driver."""
    (tmp_path / ARCHIVE).write_bytes(b"no archive")
    options = session_settings(master="local[2]", jars=tmp_path)["spark.driver.extraJavaOptions"]
    ended = subprocess.run(["java", *shlex.split(options), "-version"], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
    assert all(line.startswith("OpenJDK") or "version" in line for line in ended.stderr.splitlines())


@pytest.mark.parametrize(
    ("memory", "expected"),
    [("2g", [1024, 128]), ("1500m", [750, 93]), ("1500", [750, 93]), ("512MB", [256, 32]), ("a lot", [])],
)
def test_java_begins_with_room_for_what_a_driver_makes(memory: str, expected: list[int], tmp_path: Path) -> None:
    """A collection stops a batch: Java has room for new objects from the start, and keeps each collection short."""
    key = "spark.driver.extraJavaOptions"
    options = session_settings(master="local[2]", jars=tmp_path, settings={"spark.driver.memory": memory})[key]
    flags = [*shlex.split(options), *([f"-Xmx{2 * expected[0]}m"] if expected else []), "-XX:+PrintFlagsFinal"]
    ended = subprocess.run(["java", *flags, "-version"], capture_output=True, text=True, check=True)
    found = dict(re.findall(r"(InitialHeapSize|NewSize|MaxGCPauseMillis)\s+= (\d+)", ended.stdout))
    assert "warning" not in ended.stderr.lower()
    if expected:
        assert [int(found[name]) / 2**20 for name in ("InitialHeapSize", "NewSize")] == pytest.approx(
            expected, rel=0.05
        )
        assert found["MaxGCPauseMillis"] == "20"
    else:
        assert "-Xms" not in options


@pytest.mark.parametrize(
    ("own", "is_ours"),
    [("-XX:+UseParallelGC -Da=b", False), ("-XX:+UseZGC", False), ("-XX:+UseG1GC", True), ("-Da=b", True)],
)
def test_who_chooses_a_collector_chooses_its_heap(own: str, *, is_ours: bool) -> None:
    """A limit that one collector heeds where it can is the first goal of another."""
    key = "spark.driver.extraJavaOptions"
    options = shlex.split(session_settings(master="local[2]", settings={key: own})[key])
    assert [name in " ".join(options) for name in ("-Xms", "NewSize", "MaxGCPauseMillis")] == [is_ours] * 3
    assert options[-len(own.split()) :] == own.split()


@pytest.mark.parametrize(
    ("own", "thresholds"),
    [
        # What the configuration adds comes last and wins; loops are compiled as soon as before.
        ("-XX:Tier4CompileThreshold=9000", {"Invocation": 1000, "MinInvocation": 200, "Compile": 9000}),
        # A factor is of Java's own thresholds, and not of ours.
        ("-XX:CompileThresholdScaling=0.5", {"Invocation": 2500, "MinInvocation": 300, "Compile": 7500}),
    ],
)
def test_java_compiles_sooner_what_runs_once_a_batch(own: str, thresholds: dict[str, int]) -> None:
    """Compilers beside the tasks make batches slow, so they are to be done in a stream's first minute."""
    key = "spark.driver.extraJavaOptions"
    flags = shlex.split(session_settings(master="local[2]", settings={key: own})[key])
    ended = subprocess.run(
        ["java", *flags, "-XX:+PrintFlagsFinal", "-version"], capture_output=True, text=True, check=True
    )
    found = {name: int(value) for name, value in re.findall(r"Tier4(\w+)Threshold\s+= (\d+)", ended.stdout)}
    assert "warning" not in ended.stderr.lower()
    back_edge = 20_000 if "Scaling" in own else 40_000
    assert {name: found[name] for name in (*thresholds, "BackEdge")} == {**thresholds, "BackEdge": back_edge}


@pytest.mark.slow
def test_spark_submit_knows_the_words_that_it_is_given() -> None:
    """An option that it does not know would be taken for the program."""
    script = Path(submit_words.__globals__["_spark"]()) / "bin" / "spark-submit"
    usage = subprocess.run([script, "--help"], capture_output=True, text=True, check=False).stderr
    assert all(word in usage for word in ("--deploy-mode", "--properties-file", "--load-spark-defaults"))
