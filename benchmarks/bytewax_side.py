"""Run Bytewax beside Penstock: two processes of one worker each, with recovery, as its pages advise for two cores."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from benchmarks.data import Input
from benchmarks.peer_environment import peer_environment, plain_variables

__all__ = ["VERSION", "bytewax_ms"]

VERSION = "0.21.1"
WORKERS = 2
_PATIENCE = 600.0
_FLOW = Path(__file__).with_name("bytewax_flow.py")


def bytewax_ms(given: Input, root: Path, *, warm: int, batches: int) -> float:
    """Return milliseconds for the rows of a batch, over `batches` of them behind `warm` ones.

    Its snapshots are made every 10 s, as by default, and its output is thrown away.
    """
    given.prepare(warm + batches)
    python = peer_environment(f"bytewax-{VERSION}", [f"bytewax=={VERSION}", f"pyarrow=={version('pyarrow')}"])
    recovery = root / "recovery"
    recovery.mkdir()
    subprocess.run([python, "-m", "bytewax.recovery", str(recovery), str(WORKERS)], check=True)
    addresses = ";".join(f"127.0.0.1:{port}" for port in _ports())
    flow = f"{_FLOW.stem}:dataflow({str(given.folder.resolve())!r}, '{warm + batches}')"
    options = ["-r", str(recovery.resolve()), "-s", "10", "-b", "0", "-a", addresses]
    with ExitStack() as stack:
        processes = []
        for number in range(WORKERS):
            command = [str(python), "-m", "bytewax.run", flow, *options, "-i", str(number)]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, cwd=_FLOW.parent, env=plain_variables()
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        # Where one of them dies the other waits for it.
        reports = [process.communicate(timeout=_PATIENCE)[0].splitlines() for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("Bytewax ended with an error, which it has printed")
    times = list(_came_out([[json.loads(line) for line in lines if line.startswith("{")] for lines in reports]))
    wanted = warm * given.rows
    began = next(at for at, rows in times if rows >= wanted)
    ended, rows = times[-1]
    assert rows == (warm + batches) * given.rows, rows
    return (ended - began) * 1000 * given.rows / (rows - next(n for at, n in times if at == began))


def _came_out(reports: Sequence[Sequence[dict[str, float]]]) -> Iterator[tuple[float, float]]:
    """Yield when so many rows had come out of all workers together."""
    lines = sorted((line["at"], worker, line["rows"]) for worker, lines in enumerate(reports) for line in lines)
    rows = [0.0] * len(reports)
    for at, worker, count in lines:
        rows[worker] = count
        yield at, sum(rows)


def _ports() -> list[int]:
    """Return a free port for each worker."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(WORKERS)]
        return [listener.getsockname()[1] for listener in listeners]
