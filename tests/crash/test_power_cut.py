"""What the log counts as durable is durable: strace tells what a power cut would take away (F73)."""

from __future__ import annotations

from pathlib import Path

import pytest
from power import volatile
from project_samples import JARS

pytestmark = [pytest.mark.fault("F73"), pytest.mark.timeout(900), pytest.mark.sample(1, of="power cuts")]

COMMON = """
import sys
import pyarrow as pa
from penstock.checkpoint.storage.local_folder import LocalFolder
from penstock.sinks import Delta
from penstock.sinks.base import Publication, Staged
from penstock.sinks.staged_files import stage_table

FOLDER = LocalFolder({folder!r})
SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.string())])
def staged(folder, n):
    table = pa.table([[n, n + 1], ["a", "b"]], schema=SCHEMA)
    return Staged(**stage_table(table, folder, f"{{n:012d}}.parquet"))
def publish(publisher, n):
    file = staged(publisher.staging, n)
    publisher.publish(Publication(app="u/out", batch=n, files=[file], schema=SCHEMA))
def opened(spark=None, **more):
    sink = Delta(FOLDER / "new" / "er" / "table", **more)
    sink.create(SCHEMA, spark)
    return sink, sink.open(sink.staging(FOLDER / "job" / "staged" / "out"), spark)
"""

PATHS = {
    "a store and the folders above it": """
from penstock.checkpoint.storage.local import LocalStore
LocalStore(FOLDER / "a" / "b" / "c").create("log/000000000000", b"x")
""",
    "a staged file and its folders": """
staged(FOLDER / "job" / "staged" / "out", 0)
""",
    "a table that is made and committed to": """
_, publisher = opened()
for n in range(3):
    publish(publisher, n)
""",
    "a table that is merged into": """
from penstock.sinks import Mode
_, publisher = opened(mode=Mode.UPSERT, keys=["k"])
for n in range(3):
    publish(publisher, n)
""",
    "a truncation": """
from penstock.sinks.base import Target
sink, publisher = opened()
for n in range(3):
    publish(publisher, n)
assert sink.put_back(Target(app="u/out", batch=0, slot=3), 1, slot=9, newest=2)
""",
    "a log that is folded": """
from penstock.sinks.delta.log_checkpoint import _fold
_, publisher = opened()
for n in range(3):
    publish(publisher, n)
_fold(str(FOLDER / "new" / "er" / "table"))
""",
    "files of a held batch": """
from penstock.checkpoint.log.entries import StagedFile
from penstock.quality.held.release import bring_back, keep_held
_, publisher = opened()
file = staged(publisher.staging, 0)
held = [StagedFile(path=file.path, size=file.size, rows=file.rows, checksum=file.checksum, stats={{}})]
keep_held(publisher.staging, FOLDER / "job" / "staged" / "out", held)
bring_back(publisher.staging, FOLDER / "job" / "staged" / "out", held)
""",
    "a table of a data checkpoint": """
from deltalake import write_deltalake
from penstock.runtime.snapshots.delta_table import working_copy
for n in range(2):
    with working_copy(FOLDER / "snapshots") as copy:
        write_deltalake(str(copy), pa.table([[n], ["a"]], schema=SCHEMA), mode="append")
""",
}


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("what", PATHS)
def test_nothing_that_is_counted_as_done_is_lost_by_a_power_cut(tmp_path: Path, what: str) -> None:
    """F73: data and names are synced before the call returns."""
    folder = tmp_path / "disk"
    assert volatile(folder, COMMON.format(folder=str(folder)) + PATHS[what].replace("{{}}", "{}")) == []


@pytest.mark.spark
def test_what_delta_spark_commits_is_durable(tmp_path: Path) -> None:
    """F73: rows, their partitions' folders, the entry, and the sums that Hadoop compares them with."""
    folder = tmp_path / "disk"
    script = f"""
from penstock.runtime.spark.session import open_session
spark = open_session("power", master="local[1]", jars=LocalFolder({str(JARS)!r}), settings={{}})
_, publisher = opened(spark, partition_by=("p",))
for n in range(2):
    publish(publisher, n)
import os
os._exit(0)
"""
    assert volatile(folder, COMMON.format(folder=str(folder)) + script) == []


def test_a_script_that_syncs_nothing_is_found_out(tmp_path: Path) -> None:
    """The test of the test."""
    folder = tmp_path / "disk"
    file = folder / "new" / "file"
    script = f"import os; os.makedirs({str(file.parent)!r}); open({str(file)!r}, 'w').write('x')"
    assert volatile(folder, script) == [f"name of {file.parent}", f"data of {file}", f"name of {file}"]
