"""Turn what Spark raised into the error that the user sees: of the job, with its line, or of the engine (F48).

Errors that follow from the death of the Java process say that it has died (F05).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from penstock import errors
from penstock.errors import ComputeFailed, EngineGone, Fenced, PenstockError, UserFunctionError
from penstock.graph.graph import JobGraph
from penstock.graph.nodes import FilterNode, Node, SelectNode, SourceNode, WithColumnsNode
from penstock.graph.steps import StepNode

__all__ = ["data_exception", "error_of", "java_failure", "naming_the_dead", "of_the_engine", "site_of"]

_CONDITION = re.compile(r"(\[[A-Z][A-Z0-9_.]*\] .*?) *SQLSTATE: (22\w{3}|21000|P0001)", re.DOTALL)
"""Spark names its data exceptions by the SQL standard: class 22, a scalar query with several rows, raise_error."""
_ENGINE = re.compile(r"/penstock/(?:checkpoint|operators|quality|runtime|sinks|sources|state|time)/")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen |(?:^|/)pyarrow/|/pyspark/|/zipfile/")
_FRAGMENT = re.compile(r"== SQL \(line \d+, position \d+\) ==\n(.+?)\n\s*\^+", re.DOTALL)
_OURS = re.compile(r"penstock\.errors\.(?:\w+\.)?(\w+): (?:PEN-[A-Z]+-\d+ )?(.*)")
_REAPED = 5.0
"""Seconds that a process which has closed its connections may take to be gone for its parent."""
_KILLED = 128
"""Above it, an exit code of a shell is a signal that has ended what it ran."""
_LAUNCH = "launch_gateway"


def error_of(why: Exception, batch: int, graph: JobGraph) -> PenstockError:
    """Turn what Spark raised into the error that a task raised, the user's, or a failure of the engine."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    text = str(why)
    if isinstance(why, Py4JNetworkError | ConnectionError) or "Java side" in text or "Answer from Java" in text:
        return EngineGone(f"batch {batch}: the Java process of Spark is gone")
    raised = _OURS.findall(text)
    if raised:
        name, message = raised[-1]
        kind = getattr(errors, name, ComputeFailed)
        # What is to be done is said once, by the error that is made of it.
        return kind(f"batch {batch}: {message.strip().removesuffix(kind.remedy).rstrip(' .')}")
    kind_name = type(why).__name__
    if kind_name == "PythonException":
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = next(
            (line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception|Warning)?: ", line)), lines[-1]
        )
        frames = [line for line in lines if line.startswith("File ")]
        place = [line for line in frames if "/pyspark/" not in line]
        if of_the_engine([line.split('"')[1] for line in frames]):
            return ComputeFailed(f"batch {batch}: {last}", where=place[-1] if place else None)
        return UserFunctionError(f"batch {batch}: {last}", where=place[-1] if place else None)
    value_problem = data_exception(text)
    if value_problem is not None:
        return UserFunctionError(f"batch {batch}: {value_problem}", where=site_of(text, graph))
    if isinstance(why, Py4JError) or hasattr(why, "getCondition") or "spark" in type(why).__module__:
        return ComputeFailed(f"batch {batch}: {java_failure(text or kind_name)}")
    raise why


def data_exception(text: str) -> str | None:
    """Return what was wrong with a value, in one line, None where Spark's message tells of something else."""
    match = _CONDITION.search(text)
    if match is None:
        return None
    # Nobody should turn ANSI off, which Spark proposes: wrong values would become null in silence.
    problem = re.sub(r" If necessary set .* to bypass this error\.", "", " ".join(match[1].split()))
    fragment = _FRAGMENT.search(text)
    return f"{problem} In `{fragment[1]}`." if fragment else problem


def of_the_engine(files: list[str]) -> bool:
    """Return whether a traceback ended in Penstock, or in what Penstock called, and not in a function of the user's.

    `files` are the paths of its frames, the outermost first.
    """
    inner = max((place for place, path in enumerate(files) if _ENGINE.search(path)), default=None)
    return inner is not None and all(_LIBRARY.search(path) for path in files[inner + 1 :])


def java_failure(text: str) -> str:
    """Return what a failure of Spark says in one line: its first words, and the cause at the bottom of it all."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("An error occurred while calling", "at ", "... "))]
    first = messages[0].removeprefix(": ") if messages else lines[0]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return first if not causes or causes[-1] in first else f"{first} Caused by {causes[-1]}"


def site_of(text: str, graph: JobGraph) -> str | None:
    """Return the user's line whose SQL Spark's message quotes, None where there is none or it could be several."""
    fragment = _FRAGMENT.search(text)
    if fragment is None:
        return None
    sites = {str(node.site) for node in graph.nodes if any(fragment[1] in sql for sql in _sql_of(node))}
    return sites.pop() if len(sites) == 1 else None


def _sql_of(node: Node) -> Iterator[str]:
    match node:
        case FilterNode():
            yield node.predicate
        case SelectNode():
            yield from node.expressions
        case WithColumnsNode():
            yield from node.columns.values()
        case StepNode():
            yield from (sql for side in range(len(node.inputs)) for sql in node.spec.reads(side).expressions)
        case SourceNode(event_time=str(sql)):
            yield sql


@contextmanager
def naming_the_dead() -> Iterator[None]:
    """Raise EngineGone in place of any error that comes of a Java process that has died, while it starts or later.

    The kernel ends one that takes too much memory, which is no fault of the installation and may go well next time.
    """
    try:
        yield
    except (EngineGone, Fenced):
        raise
    except Exception as why:
        chain = _chain(why)
        if any(_of_java(link) for link in chain) and _is_gone(chain):
            raise EngineGone("the Java process of Spark has died") from why
        raise


def _chain(why: BaseException) -> list[BaseException]:
    chain = [why]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    return chain


def _of_java(why: BaseException) -> bool:
    return isinstance(why, ConnectionError | EOFError) or type(why).__module__.partition(".")[0] in {"py4j", "pyspark"}


def _is_gone(chain: list[BaseException]) -> bool:
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    running = getattr(getattr(context, "_gateway", None), "proc", None)
    if running is None:
        return any(_died_at_start(link) for link in chain)
    try:
        cut = any(isinstance(link, ConnectionError | EOFError) for link in chain)
        cut = cut or any(type(link).__name__ == "Py4JNetworkError" for link in chain)
        running.wait(_REAPED if cut else 0)
    except subprocess.TimeoutExpired:
        return False
    return True


def _died_at_start(why: BaseException) -> bool:
    """Return whether pyspark has waited for a Java process that a signal ended; only its own frame knows that one."""
    trace = why.__traceback__
    while trace is not None:
        frame: FrameType = trace.tb_frame
        started: Any = frame.f_locals.get("proc") if frame.f_code.co_name == _LAUNCH else None
        if isinstance(started, subprocess.Popen) and started.poll() is not None:
            return started.returncode < 0 or started.returncode > _KILLED
        trace = trace.tb_next
    return False
