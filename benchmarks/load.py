"""Load the state of a keyed job in a process of its own: `python -m benchmarks.load ROOT KEYS`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.data import Input
from benchmarks.engine_side import EngineSide
from benchmarks.jobs import keyed_job
from penstock.runtime.spark.session import open_session


def main(root: Path, keys: int) -> None:
    """Run the batch that loads so many keys, and leave the log."""
    spark = open_session("penstock-bench-load", jars=Path(".jars"), settings={"spark.driver.memory": "4g"})
    given = Input(rows=100_000, keys=keys, step=1_000_000)
    engine = EngineSide(spark, given, keyed_job(root / "table", held=keys, partitions=8), root / "checkpoints")
    engine.close()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
