"""Start Spark's Python workers with everything imported already.

Spark forks its Python workers from a daemon; what the daemon has imported, no worker has to import.
Without this each worker spends about a second on numpy, pyarrow and the engine before its first row.
"""

import penstock.runtime.tasks  # noqa: F401 - imported for the workers that are forked from here
from pyspark import daemon

if __name__ == "__main__":
    daemon.manager()
