"""Keep the classes of Spark in a form that Java loads at once: an archive of class data in `.jars/`.

A driver spends some five of its first twelve seconds on reading and checking Spark's classes. Java 13 and later can
keep them (JEP 350). Java looks itself whether an archive fits, and goes without one that does not, so an old archive
costs time and nothing else. Run as `python -m tools.java_archive`: at once done where there is one that fits.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.runtime.spark.java import java_command
from penstock.runtime.spark.session import ARCHIVE
from tools.jars import FOLDER

_STAMP = FOLDER / f"{ARCHIVE}.made-for"
_PATIENCE = 300.0

_EXERCISE = """
import sys
from penstock import Job, agg, minutes, seconds
from penstock.sinks import MemorySink
from penstock.sources import MemorySource
from penstock.testing import Harness
from penstock.windows import Sliding

job = Job("archive", partitions=2)
rows = job.source("rows", MemorySource(schema="k string, t timestamp, v long"), event_time="t",
                  max_out_of_order=seconds(5))
kept = rows.filter("v >= 0").key_by("k").window("w", Sliding(minutes(2), every=minutes(1)).drop_late())
kept.aggregate(n=agg.count(), total=agg.sum("v"), most=agg.max("v")).write("out", MemorySink())
with Harness(job, root=sys.argv[1]) as harness:
    for start in (0, 300):
        harness.batch({"rows": [{"k": "a", "t": start + n, "v": n} for n in range(100)]})
"""


def fits() -> str:
    """Return a text that is another where the Java, the Spark or the place of either is another."""
    java = java_command(os.environ) or ""
    version = subprocess.run([java, "-version"], capture_output=True, check=False).stderr if java else b""
    facts = f"{sys.prefix}\n{java}\n".encode() + version
    # What stands in folders of .jars is for servers that tests start; Spark loads none of it.
    for jars in (Path(sys.prefix).glob("**/*.jar"), FOLDER.glob("*.jar")):
        facts += "\n".join(sorted(map(str, jars))).encode()
    return hashlib.sha256(facts).hexdigest()


def make() -> bool:
    """Run a few batches on a Java that writes down what it loaded; return whether there is an archive then."""
    fresh = FOLDER / f"{ARCHIVE}.new"
    fresh.unlink(missing_ok=True)
    # To compile thoroughly what ends in seconds takes a third longer; what is kept is the same.
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    keeps = f"{quick} -XX:ArchiveClassesAtExit={fresh} -Xlog:cds=off -Xlog:cds+dynamic=off"
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {keeps}".strip()
    with tempfile.TemporaryDirectory() as root:
        # Its output is read to the end, which is that of Java, after it has written the archive.
        subprocess.run(
            [sys.executable, "-c", _EXERCISE, f"{root}/checkpoint"],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PATIENCE,
        )
    if not fresh.is_file():
        return False
    fresh.replace(FOLDER / ARCHIVE)
    return True


def main() -> int:
    """Make the archive unless there is one that fits; going without is no failure."""
    try:
        wanted = fits()
        if _STAMP.is_file() and _STAMP.read_text() == wanted:
            return 0
        print("setup: an archive of Spark's classes, so that drivers start sooner", flush=True)
        (FOLDER / ARCHIVE).unlink(missing_ok=True)
        if not make():
            print("setup: this Java makes none; drivers take some seconds longer to start", flush=True)
        _STAMP.write_text(wanted)
    except (OSError, subprocess.SubprocessError) as why:
        print(f"setup: no archive, so drivers take some seconds longer to start: {why}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
