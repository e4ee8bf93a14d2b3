"""Start Spark's Python workers with everything imported already.

Spark forks its Python workers from a daemon; what the daemon has imported, no worker has to import.
Without this each worker spends about two seconds on numpy, pyarrow, pandas and the engine before its first row.
"""

import gc

import pandas  # noqa: F401, ICN001 - pyarrow imports it on its first conversion from numpy
import pyspark.worker  # noqa: F401 - all three are imported for the workers that are forked from here
from pyspark import daemon

if __name__ == "__main__":
    # A worker collects garbage after each task. What is imported here is none, and to look at it takes 50 ms each time.
    gc.collect()
    gc.freeze()
    daemon.manager()
