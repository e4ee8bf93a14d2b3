"""Start Spark's Python workers with everything imported already.

Spark forks its Python workers from a daemon; what the daemon has imported, no worker has to import.
Without this each worker spends about two seconds on numpy, pyarrow, pandas and the engine before its first row.
"""

import ctypes
import gc
import os
import sys
from typing import Any
from zipimport import zipimporter

from penstock.runtime.spark.zip_archives import without_archives

sys.path[:] = without_archives(sys.path)

import pandas  # noqa: E402, F401, ICN001 - pyarrow imports it on its first conversion from numpy
import pyarrow as pa  # noqa: E402
from pyspark import daemon, worker  # noqa: E402

import penstock.runtime.tasks.functions  # noqa: E402, F401 - all of it is imported for the workers that are forked from here
from penstock.operators.registry import import_operators  # noqa: E402

import_operators()

RELEASE_EVERY = 64
"""Tasks between two returns of memory. One takes some milliseconds; what 64 tasks leave behind is a few MiB."""

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Names of glibc's parameters."""
_LARGEST_MMAP_THRESHOLD = 32 << 20
"""More glibc refuses."""
_KEPT_FREE = 512 << 20

_SOCKETS = "PYTHON_WORKER_FACTORY_SOCK_DIR"
_run_task = worker.main
_serve = daemon.worker
_tasks = 0


def serve(sock: Any, authenticated: bool) -> int:  # noqa: FBT001 - as pyspark calls it
    """Serve the tasks that come through a socket; leave in silence when Java closes it, as it does at each end.

    pyspark's daemon would print a traceback for each idle worker. What a task raises goes to Java, not through here.
    """
    try:
        return _serve(sock, authenticated)
    except (EOFError, ConnectionError):
        os._exit(1)


def run_task(infile: Any, outfile: Any) -> None:
    """Run a task; what the first ones have left behind is looked through by no collection after them.

    A worker collects garbage after each task. With all that is imported, and all that is made once, that takes 16 ms
    each time: more than a task of a few rows. What is frozen here has just been collected, so no garbage is kept.
    A later task may be of another function and import more: so again behind 4 tasks, 8, 16 and so on.
    Java has the task's answer before memory is returned.
    """
    global _tasks  # noqa: PLW0603 - one count for each process
    if _tasks and _tasks & (_tasks - 1) == 0:
        gc.freeze()
    _tasks += 1
    _run_task(infile, outfile)
    if _tasks % RELEASE_EVERY == 0:
        release_memory()


def keep_freed_memory() -> None:
    """Let C reuse the memory of freed arrays, of up to 32 MB each, instead of returning it to the system at once.

    By default the system hands out each array above 128 kB page by page, and clears the pages. That is a quarter of the
    time in which a task of half a million rows computes. At most half a GB is kept, and `release_memory` returns it.
    Each parameter by itself turns off how glibc adapts the other, and makes it worse.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc; other libraries have no such parameters
    if choose is not None and choose(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD):
        choose(_TRIM_THRESHOLD, _KEPT_FREE)


def release_memory() -> None:
    """Return to the system what allocators keep of freed memory, Arrow's own and that of C.

    Otherwise a worker that lives for days grows, by 4% in 5,000 batches, though no object in it does.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; other libraries return memory by themselves
    if trim is not None:
        trim(0)


def shorten_sockets() -> None:
    """Name the folder of sockets from the working folder, where that is shorter: a path of one has 108 characters.

    A container of YARN has its temporary folder in its working folder, and the path of that one alone may be longer.
    Java, to which the daemon tells the path, works in the same folder.
    """
    folder = os.environ.get(_SOCKETS)
    if folder is not None:
        os.environ[_SOCKETS] = min(os.path.relpath(folder), folder, key=len)


def forget_archives() -> None:
    """Forget the importers of zip archives; Python makes one at once from the cached list of the archive's files.

    Spark brings archives, its own and those of the job, and makes each new worker search all places it knows for
    modules. Every package inside an archive is such a place, and would read the list of 1,800 files again. That took
    half a second a worker.
    """
    for place, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[place]


if __name__ == "__main__":
    worker.main = run_task
    daemon.worker = serve
    # Otherwise pyspark prints that an answer could not be sent, instead of raising it.
    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
    keep_freed_memory()
    shorten_sockets()
    forget_archives()
    gc.collect()
    gc.freeze()
    daemon.manager()
