"""What Spark's Python workers carry along: every collection of garbage, one a task, looks through it."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import gc, json
from penstock.runtime import worker_daemon

kept, seen = [], []

def task(infile, outfile):
    if len(seen) in (0, 4):  # what a task imports, or makes once
        kept.append([[] for _ in range(20_000)])

worker_daemon._run_task = task
gc.collect()
gc.freeze()
for _ in range(10):
    worker_daemon.run_task(None, None)
    seen.append(len(gc.get_objects()))
    gc.collect()
print(json.dumps(seen))
"""


def test_what_tasks_leave_for_good_is_looked_through_a_few_times_only() -> None:
    """Behind the first task, and behind the eighth what the fifth has made: not behind every one from then on."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=100)
    seen = json.loads(ran.stdout)
    assert [count > 20_000 for count in seen] == [True, *[False] * 3, *[True] * 4, False, False], seen
