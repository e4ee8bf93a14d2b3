"""Set up what every test relies on, before any of them is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from draw import Marked, left_out
from examples import examples
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# Spark's Python workers and the processes that tests start see the modules that the tests see.
# A function of a test module is sent to a worker by name, so the worker must find the module.
_FOLDERS = [
    ROOT / "platform",
    ROOT,
    ROOT / "tests",
    *sorted(path for path in (ROOT / "tests").rglob("*/") if path.name != "__pycache__"),
]
# Some tests run those of another module over again, on HDFS for example.
sys.path += [str(folder) for folder in _FOLDERS if str(folder) not in sys.path]
os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, _FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# Nothing that a test starts is reachable from elsewhere, or calls home.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ["GX_ANALYTICS_ENABLED"] = "false"
# The Java processes of tests live for seconds: compiled thoroughly they would be done before it pays (a third longer).
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A worker of pytest-xdist has no main module, which pyspark's Connect takes for its own doctests, and exits (FACTS 7).
sys.modules["__main__"].__dict__.setdefault("__file__", pytest.__file__)

# A deadline would make a busy machine fail tests that hold.
settings.register_profile("penstock", deadline=None, print_blob=True, max_examples=examples(40))
settings.load_profile("penstock")

# Suites that test modules subclass; their asserts tell as much as those of test modules.
pytest.register_assert_rewrite("penstock.testing.sink_contract", "penstock.testing.source_contract")

# What a test module names when its tests start Spark, or use the session that is there.
_STARTS_SPARK = {"Harness", "SparkSession"}


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    """Return what makes the folders of tests, `tmp_path` too: any of them may be a folder of a checkpoint."""
    from penstock.checkpoint.storage.local_folder import LocalFolder

    make = tmp_path_factory.mktemp
    tmp_path_factory.mktemp = lambda *args, **named: LocalFolder(make(*args, **named))  # type: ignore[method-assign]
    return tmp_path_factory


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make test` and `make check` ask for."""
    parser.addoption("--sample", action="store_true", help="run only what the seed draws of what is marked sample")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark by what can be seen what nobody should have to remember, so that `make check` stays fast.

    A test whose module names Spark's session or the Harness, or that asks for a fixture `spark`, is marked spark;
    one in tests/integration is marked integration. With --sample, cases that were not drawn are taken out.
    """
    if config.getoption("sample"):
        _draw(config, items)
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"give the case an id, two workers have no such address in common: {item.nodeid}")
        names = vars(getattr(item, "module", None) or object).keys() | set(getattr(item, "fixturenames", ()))
        if names & {*_STARTS_SPARK, "spark"}:
            item.add_marker("spark")
        if item.path.is_relative_to(ROOT / "tests" / "integration"):
            item.add_marker("integration")


def _draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what the run's seed has not drawn, the same in each worker."""
    marked = [
        Marked(item.nodeid, *mark.args, group=mark.kwargs.get("of"), seconds=mark.kwargs.get("seconds"))
        for item in items
        if not item.get_closest_marker("soak")
        for mark in item.iter_markers("sample")
    ]
    gone = left_out(marked, config.getoption("randomly_seed", 0))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in gone])
    items[:] = [item for item in items if item.nodeid not in gone]


class LongestFirst:
    """Put files with real processes and with Spark first: the workers then end at about the same time.

    The two are mixed: while one worker waits for a server, the other computes.
    """

    @pytest.hookimpl(trylast=True)  # after all were put in a random order
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the order of the rest."""
        items.sort(
            key=lambda item: [
                not any(map(item.get_closest_marker, names)) for names in (("integration", "spark"), ("slow",))
            ]
        )


def pytest_configure(config: pytest.Config) -> None:
    """Add what needs a place of its own among the hooks."""
    config.pluginmanager.register(LongestFirst())


@pytest.fixture(autouse=True)
def _events_as_before() -> Iterator[None]:
    """Give structlog back as it was: commands that run in this process configure it, and may hide what is told."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def spark() -> Any:
    """Return the one session of a test run: the Harness's, made as it would make it, whoever comes first.

    A second one in the same Java process would lack the jars that Java was started with, or without.
    """
    from penstock.runtime.spark.session import open_session

    return open_session("penstock-tests", jars=ROOT / ".jars")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the one Kafka of a test process, up; four seconds to start."""
    from tools.kafka_server import KafkaServer

    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """Return the one PostgreSQL server of a test process, up; a second to start."""
    from tools.postgres_server import running

    with running() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the one HDFS of a test process, up and out of safe mode; six seconds to start."""
    from tools.hdfs_server import HdfsServer

    server = HdfsServer(tmp_path_factory.mktemp("hdfs"))
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.fixture
def topic(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a name that no topic has had; one that is unknown is soon believed gone, as one broker moves none."""
    monkeypatch.setattr("penstock.kafka.admin._UNKNOWN_SECONDS", 1.5)
    return str(kafka.new_name())
