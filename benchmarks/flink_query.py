"""Run a sliding count and sum by key in Flink SQL, in an environment without Penstock; say what it took.

For `python flink_query.py '{"rows": 100000, "keys": 10000, "column": "v", "seconds": [20, 40]}'`. For each number of
seconds of event time it runs a query over so many seconds, and prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

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
    """Return the wall time of a query over so many seconds with `rows` rows each; rows are made as fast as it reads."""
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        env.get_config().set(name, value)
    env.execute_sql(
        f"""CREATE TABLE given (
            number BIGINT,
            k AS MOD(number * {SPREAD}, {keys}),
            v AS MOD(number, 97),
            d AS MOD(number, 97) * 0.25E0 + 1E-9,
            t AS TO_TIMESTAMP_LTZ(number * 1000 / {rows}, 3),
            WATERMARK FOR t AS t
        ) WITH (
            'connector' = 'datagen', 'fields.number.kind' = 'sequence', 'fields.number.start' = '0',
            'fields.number.end' = '{rows * seconds - 1}', 'rows-per-second' = '{10**9}'
        )"""
    )
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
