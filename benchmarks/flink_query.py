"""Run a sliding count and sum by key in Flink SQL, in an environment without Penstock; say what it took.

For `python flink_query.py '{"rows": 100000, "keys": 10000, "column": "v", "seconds": [20, 40]}'`. For each number of
seconds of event time it runs a query over so many seconds, and prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.table import Schema, StreamTableEnvironment

# Flink's page "Performance Tuning" of Table API & SQL: mini-batches, and local-global aggregation, which is on by then.
SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.process.size": "4g",
    "state.backend.type": "hashmap",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "50000",
    "table.local-time-zone": "UTC",
}
SPREAD = 2_654_435_761
"""As in `benchmarks.data`: consecutive rows have keys that are far apart."""
TYPES = {"v": "BIGINT", "d": "DOUBLE"}


def seconds_of(rows: int, keys: int, column: str, seconds: int) -> float:
    """Return the wall time of a query over so many seconds with `rows` rows each; rows are made as fast as it reads.

    Flink gives each of its two readers half of the numbers, in order. The expression of `number` lets both halves
    advance in event time together. Flink's own `datagen` makes all numbers before the first row, and keeps them.
    """
    configuration = Configuration()
    for name, value in SETTINGS.items():
        configuration.set_string(name, value)
    streams = StreamExecutionEnvironment.get_execution_environment(configuration)
    env = StreamTableEnvironment.create(streams)
    half = rows * seconds // 2
    numbers = streams.from_source(
        NumberSequenceSource(0, 2 * half - 1), WatermarkStrategy.no_watermarks(), "numbers", type_info=Types.LONG()
    )
    number = f"IF(f0 < {half}, f0 * 2, (f0 - {half}) * 2 + 1)"
    schema = (
        Schema.new_builder()
        .column("f0", "BIGINT")
        .column_by_expression("k", f"MOD({number} * {SPREAD}, {keys})")
        .column_by_expression("v", f"MOD({number}, 97)")
        .column_by_expression("d", f"MOD({number}, 97) * 0.25E0 + 1E-9")
        .column_by_expression("t", f"TO_TIMESTAMP_LTZ({number} * 1000 / {rows}, 3)")
        .watermark("t", "t")
        .build()
    )
    env.create_temporary_view("given", numbers, schema)
    env.execute_sql(
        f"""CREATE TABLE made (
            k BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, total {TYPES[column]}
        ) WITH ('connector' = 'blackhole')"""
    )
    began = time.perf_counter()
    env.execute_sql(
        f"""INSERT INTO made
            SELECT k, window_start, window_end, COUNT(*), SUM({column})
            FROM TABLE(HOP(TABLE given, DESCRIPTOR(t), INTERVAL '1' SECOND, INTERVAL '60' SECOND))
            GROUP BY k, window_start, window_end"""  # noqa: S608 - the column is one of TYPES
    ).wait()
    return time.perf_counter() - began


def main() -> None:
    """Run the queries that the argument asks for."""
    asked = json.loads(sys.argv[1])
    for seconds in asked["seconds"]:
        took = seconds_of(asked["rows"], asked["keys"], asked["column"], seconds)
        print(json.dumps({"event_seconds": seconds, "seconds": took}), flush=True)


if __name__ == "__main__":
    main()
