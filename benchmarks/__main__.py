"""Run benchmarks: `python -m benchmarks [NAME|all] [--quick]`; which names there are, docs/benchmarks.md says."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks import (
    beside_flink,
    beside_spark,
    burst,
    cluster,
    counts,
    data_checkpoints,
    folders,
    harness,
    inverse,
    kafka_latency,
    kafka_reader,
    kafka_sink,
    keyed_state,
    receiver,
    replay,
    restart,
    slides,
    steady,
    two_streams,
    upserts,
)
from benchmarks.report import console
from benchmarks.spark_side import ROCKSDB
from penstock.runtime.spark.session import open_session

PROGRAMS = {
    "p1": beside_spark.run_p1,
    "p2": beside_spark.run_p2,
    "p3": keyed_state.run_p3,
    "p4": keyed_state.run_p4,
    "p5": keyed_state.run_p5,
    "expiry": keyed_state.run_expiry,
    "snapshots": data_checkpoints.run_data_checkpoints,
    "p6": beside_spark.run_p6,
    "session": beside_spark.run_session,
    "join": two_streams.run_join,
    "deduplicate": two_streams.run_deduplicate,
    "p10": replay.run_p10,
    "p11": beside_flink.run_p11,
    "p12": kafka_latency.run_p12,
    "p13": kafka_reader.run_p13,
    "p14": slides.run_p14,
    "slide": slides.run_slide,
    "cluster": cluster.run_cluster,
    "restart": restart.run_restart,
    "steady": steady.run_steady,
    "harness": harness.run_harness,
    "kafka-sink": kafka_sink.run_kafka_sink,
    "folders": folders.run_folders,
    "counts": counts.run_counts,
    "burst": burst.run_burst,
    "receiver": receiver.run_receiver,
    "inverse": inverse.run_inverse,
    "upserts": upserts.run_upserts,
}


def main() -> int:
    """Run what was asked for in one Spark session, and exit 1 when a claim was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", default="all", choices=[*PROGRAMS, "all"])
    parser.add_argument("--quick", action="store_true", help="fewer batches: minutes instead of half an hour")
    asked = parser.parse_args()
    console.print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; on a busy machine look at ratios")
    # Room for the peer's state and for both sides' output; the same process and the same settings serve both.
    settings = {"spark.driver.memory": "4g", **ROCKSDB}
    if asked.what in ("p12", "p13", "all"):
        settings |= kafka_reader.connector_settings()
    spark = open_session("penstock-bench", jars=Path(".jars"), settings=settings)
    asked_for = [program for name, program in PROGRAMS.items() if asked.what in (name, "all")]
    claims = [claim for program in asked_for for claim in program(spark, quick=asked.quick)]
    spark.stop()
    missed = [claim for claim in claims if not claim.holds]
    console.rule(f"{len(claims) - len(missed)} of {len(claims)} goals reached")
    for claim in missed:
        console.print(str(claim), style="bold red")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
