"""Bring the jars of a clone up to date; at once done where all are there and right.

Run as `python -m tools.jars` for those of Spark, which any project needs (`penstock.runtime.spark.jars`), and as
`python -m tools.jars hdfs kafka` for the servers that tests start: 90 MB that only who runs the tests needs.
`make soak` also asks for `yarn`, 32 MB. `conf/ivy-hdfs.xml` says which jars those of HDFS are, and
`conf/jars-hdfs.sha256` what their bytes must be; so for the others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.runtime.spark.jars import Jars, are_there, delta_jars, ensure

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".jars"
SPARK = delta_jars(FOLDER)
HDFS = Jars(FOLDER / "hdfs", ROOT / "conf" / "ivy-hdfs.xml", ROOT / "conf" / "jars-hdfs.sha256")
YARN = Jars(FOLDER / "yarn", ROOT / "conf" / "ivy-yarn.xml", ROOT / "conf" / "jars-yarn.sha256")
"""YARN beside the jars of HDFS, on which `make soak` runs receivers."""
KAFKA = Jars(FOLDER / "kafka", ROOT / "conf" / "ivy-kafka.xml", ROOT / "conf" / "jars-kafka.sha256")

REGISTRY = Jars(FOLDER / "registry", ROOT / "conf" / "ivy-registry.xml", ROOT / "conf" / "jars-registry.sha256")
"""Apicurio's schema registry, with which `make soak` compares that of the tests, and fetches it: 140 MB."""
CONNECTOR = Jars(FOLDER / "connector", ROOT / "conf" / "ivy-connector.xml", ROOT / "conf" / "jars-connector.sha256")
"""Spark's own connector for Kafka: a peer of the benchmarks, which fetch it."""


def main(args: Sequence[str] = ()) -> int:
    """Print each jar that is not as it must be."""
    servers = {"hdfs": HDFS, "kafka": KAFKA, "yarn": YARN}
    return max(_bring(servers[name]) for name in args) if args else _bring(SPARK)


def _bring(jars: Jars) -> int:
    place = jars.folder.relative_to(FOLDER.parent)
    if not are_there(jars):
        print(f"setup: {len(jars.wanted())} jars by Ivy into {place}/", flush=True)
    trouble = ensure(jars)
    for line in trouble:
        print(f"jars: {line}", file=sys.stderr)
    if trouble:
        print(f"jars: {place}/ is not what {jars.digests.relative_to(ROOT)} says.", file=sys.stderr)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
