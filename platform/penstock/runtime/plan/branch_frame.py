"""Build the branches of a batch's DataFrame from the plan: the only place where steps become Spark expressions.

Spark analyses it once. Every batch executes a `select` of its frame, which Spark plans but does not analyse (FACTS 5).
Everything a user can get wrong about columns, types and SQL shows here, before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import BadExpression, JobError, PenstockError
from penstock.graph.nodes import FilterNode, Node, SelectNode, WithColumnsNode
from penstock.graph.nondeterministic import clock_read, may_read_more, nondeterministic_call, subquery
from penstock.graph.source_location import SourceLocation
from penstock.operators.protocol import TIME
from penstock.runtime.plan.job_plan import SEVERAL_BEHIND_STEP
from penstock.runtime.tasks.columns import BAD_RECORD, FUTURE, NO_EVENT_TIME, PREFIX, TOO_FAR_AHEAD, refuse_taken
from penstock.runtime.tasks.specs import ROW_STATUS
from penstock.runtime.tasks.transport import ENVELOPE
from penstock.sources.base import ERROR, HIDDEN, PARTITION, POSITION, RAW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "BranchFrame",
    "at_site",
    "hash_of",
    "normalised",
    "quoted",
    "refuse_functions",
    "refuse_other_times",
    "source_frame",
]

_STAR = re.compile(r"^\s*(?:\S+\.)?\*\s*(?:EXCEPT\s*\(.*\)\s*)?$", re.IGNORECASE)
"""A select of many columns: `*`, `* EXCEPT (a)`, `struct.*`."""
_PROPOSED = re.compile(r"(Did you mean one of the following\? )\[([^\]]*)\]\.")
_STATE = re.compile(r" *SQLSTATE: \w{5}")
_OVER = re.compile(r"\bover\b", re.IGNORECASE)
_EXACT_TIMES = (
    "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)
"""Of a row in quarantine all is written, so that it can be sent through again: by itself Spark cuts microseconds."""
_KEPT = (TIME, ROW_STATUS, PARTITION, POSITION, ERROR, RAW)
_SEVERAL_ROWS = "a column has one value for each row, and a function such as explode makes several rows of one; use "
_BY_TRANSFORM = "transform('words', lambda rows: rows.selectExpr('*', 'explode(words) AS word'))"


@contextmanager
def at_site(site: SourceLocation, several: str = _BY_TRANSFORM) -> Iterator[None]:
    """Turn what Spark says about an expression into a BadExpression, and give every error the user's line.

    `several` is what makes several rows of one at this place of a job.
    """
    from pyspark.errors import AnalysisException, ParseException, PySparkTypeError, PySparkValueError

    try:
        yield
    except PenstockError as why:
        why.where = why.where or str(site)
        raise
    except (AnalysisException, ParseException, PySparkTypeError, PySparkValueError) as why:
        message = str(why.getMessage() if hasattr(why, "getMessage") else why).strip().splitlines()[0]
        # Spark names the expression that Penstock has made of the user's, of which the user knows nothing.
        generates = message.startswith("[UNSUPPORTED_GENERATOR")
        message = _SEVERAL_ROWS + several if generates else _without_hidden(message)
        raise BadExpression(message, where=str(site)) from None


def _without_hidden(message: str) -> str:
    """Return Spark's message with only the user's columns among those that it suggests, and without its SQL state."""
    names = [f"`{name}`" for name in ENVELOPE.names]
    proposed = _PROPOSED.search(message)
    if proposed is not None:
        kept = [n for n in proposed[2].split(", ") if n not in names and not n.lower().startswith(f"`{PREFIX}")]
        listed = f"{proposed[1]}[{', '.join(kept)}]." if kept else ""
        message = f"{message[: proposed.start()]}{listed}{message[proposed.end() :]}"
    return _STATE.sub("", message).strip()


def quoted(name: str) -> str:
    """Return a column's name as Spark SQL reads it whole, dots and blanks included."""
    return "`" + name.replace("`", "``") + "`"


class BranchFrame:
    """A DataFrame on its way along a branch: which of its columns the user sees, and how rows are counted."""

    def __init__(
        self, frame: DataFrame, visible: tuple[str, ...], hidden: tuple[str, ...] = _KEPT, filters: tuple[str, ...] = ()
    ) -> None:
        self.frame = frame
        self.visible = visible
        self.hidden = hidden
        self.filters = filters
        self.untouched = frozenset(visible)
        """Those of the visible columns that no step has computed since the fork."""
        self.made: tuple[int, ...] = ()
        """The numbers among the filters of the functions that took rows and made others."""
        self.place: int | None = None
        """The place of its port in the order of arrival."""

    def types(self) -> Mapping[str, Any]:
        """Return the Spark type of each visible column."""
        return {f.name: f.dataType for f in self.frame.schema if f.name in self.visible}

    def alive(self, expression: str) -> Column:
        """Return the expression, evaluated only for rows that no filter has dropped and that are not in quarantine.

        A row that a filter drops must not fail a later expression, as `1 / v` would after `filter("v > 0")`. Nor must a
        row that is in quarantine.
        """
        from pyspark.sql import functions as F

        if expression.strip("` ") in self.visible:
            return F.expr(expression)
        return F.when(F.col(ROW_STATUS) == 0, F.expr(expression))

    def next(
        self, frame: DataFrame, visible: tuple[str, ...], filters: tuple[str, ...] = (), same: Iterable[str] = ()
    ) -> BranchFrame:
        """Return the rows after a step; `same` are the columns that it has not computed."""
        result = BranchFrame(frame, visible, self.hidden, filters)
        result.untouched = self.untouched & set(same) & set(visible)
        result.made = self.made if filters else ()
        result.place = self.place
        return result

    def followed(self, node: Node) -> BranchFrame:
        """Return what a step of the branch makes of the rows; raises BadExpression at its line where it is wrong."""
        behind_step = not set(ENVELOPE.names).isdisjoint(self.hidden)
        with at_site(node.site, SEVERAL_BEHIND_STEP if behind_step else _BY_TRANSFORM):
            match node:
                case FilterNode():
                    return _filter(self, node)
                case SelectNode(expressions=expressions):
                    return _select(self, expressions)
                case WithColumnsNode(columns=columns):
                    return _with_columns(self, columns)
        raise TypeError(f"{type(node).__name__} does not stand in a chain")


def source_frame(
    frame: DataFrame, visible: tuple[str, ...], *, event_time: str | None, bounded_ahead: bool, site: SourceLocation
) -> BranchFrame:
    """Add event time and fate to the rows of a source (SEMANTICS 2.7, 2.9, 9.3).

    Args:
        frame: The rows, with the hidden columns of a source.
        visible: The columns that the user sees.
        event_time: A Spark SQL expression that gives a timestamp; None for none.
        bounded_ahead: Whether rows beyond the batch time + max_future go to quarantine.
        site: The user's line, for errors.

    Returns:
        The branch, with TIME (int64 microseconds) and ROW_STATUS (int32).
    """
    from pyspark.sql import functions as F

    columns = [quoted(name) for name in visible]
    with at_site(site):
        time = F.expr("CAST(NULL AS BIGINT)")
        if event_time is not None:
            refuse_other_times(frame, event_time, site)
            refuse_functions(frame.select(F.expr(event_time)), [event_time])
            time = F.when(F.expr(f"{ERROR} IS NULL"), F.unix_micros(F.expr(event_time)))
        frame = frame.withColumn(TIME, time)
    # What is not the user's is one text: that costs one call to Java, an expression made in Python one for each part.
    no_time = f"WHEN {TIME} IS NULL THEN {NO_EVENT_TIME}" if event_time is not None else ""
    ahead = f"WHEN {TIME} > {FUTURE} THEN {TOO_FAR_AHEAD}" if bounded_ahead else ""
    fate = f"CASE WHEN {ERROR} IS NOT NULL THEN {BAD_RECORD} {no_time} {ahead} ELSE 0 END"
    frame = frame.selectExpr("*", f"{fate} AS {ROW_STATUS}")
    # A record that was not decoded has no columns: without a raw text of its own it has none, and is no empty object.
    json = f"to_json(struct({', '.join(columns)}), {_EXACT_TIMES})"
    raw = f"CASE WHEN {ERROR} IS NOT NULL THEN {RAW} WHEN {ROW_STATUS} < 0 THEN {json} END"
    kept = (f"{raw} AS {RAW}" if name == RAW else name for name in _KEPT)
    return BranchFrame(frame.selectExpr(*columns, *kept), visible)


def refuse_other_times(frame: DataFrame, event_time: str, site: SourceLocation) -> None:
    """Raise BadExpression for an event time that is no timestamp."""
    from pyspark.sql import functions as F

    kind = frame.select(F.expr(event_time)).schema[0].dataType.typeName()
    if kind not in ("timestamp", "null"):
        hint = f"; if it is UTC, say CAST({event_time} AS TIMESTAMP)" if kind == "timestamp_ntz" else ""
        raise BadExpression(f"event_time {event_time!r} is a {kind}, not a timestamp{hint}", where=str(site))


def normalised(column: str, kind: Any) -> Column | None:
    """Return a key column with one NaN and one zero, None where the type has neither (DESIGN 6)."""
    from pyspark.sql import functions as F

    if kind.typeName() not in ("double", "float"):
        return None
    value = F.col(quoted(column))
    zero = F.lit(0.0).cast(kind)
    return F.when(F.isnan(value), F.lit(float("nan")).cast(kind)).when(value == 0, zero).otherwise(value)


def hash_of(keys: Sequence[Column]) -> Column:
    """Return the hash of a key's normalised columns; without a key all rows have one (DESIGN 6)."""
    from pyspark.sql import functions as F

    return F.xxhash64(*keys) if keys else F.lit(42).cast("long")


def _filter(current: BranchFrame, node: FilterNode) -> BranchFrame:
    from pyspark.sql import functions as F

    predicate = F.expr(node.predicate)
    judged = current.frame.select(predicate)
    kind = judged.schema[0].dataType.typeName()
    if kind not in ("boolean", "void"):
        raise BadExpression(f"filter {node.predicate!r} is a {kind}, not a boolean", where=str(node.site))
    refuse_functions(judged, [node.predicate])
    number = len(current.filters) + 1
    known, kept, dropped = (F.expr(text) for text in (ROW_STATUS, "0", str(number)))
    fate = F.when(F.expr(f"{ROW_STATUS} <> 0"), known).when(predicate.cast("boolean"), kept).otherwise(dropped)
    frame = current.frame.withColumn(ROW_STATUS, fate)
    return current.next(frame, current.visible, (*current.filters, node.name), current.visible)


def _select(current: BranchFrame, expressions: tuple[str, ...]) -> BranchFrame:
    from pyspark.sql import functions as F

    columns: list[Any] = []
    names: list[str] = []
    same: set[str] = set()
    for expression in expressions:
        star = _STAR.search(expression) is not None
        selected = [c for c in current.frame.selectExpr(expression).columns if not (star and c in current.hidden)]
        refuse_taken(selected)
        if not star:
            columns.append(current.alive(expression).alias(selected[0]))
        elif expression.lstrip().startswith("*"):
            columns.extend(F.col(quoted(name)) for name in selected)
        else:
            columns.append(F.expr(expression))  # the fields of a struct
        names.extend(selected)
        if expression.lstrip().startswith("*") or expression.strip("` ") == selected[0]:
            same.update(selected)
    lower = [name.lower() for name in names]
    twice = next((n for n in names if lower.count(n.lower()) > 1), None)
    if twice is not None:
        raise JobError(f"select makes column {twice!r} twice; upper and lower case are the same to Spark")
    frame = current.frame.select(*columns, *current.hidden)
    refuse_functions(frame, expressions)
    return current.next(frame, tuple(names), current.filters, same)


def _with_columns(current: BranchFrame, columns: Mapping[str, str]) -> BranchFrame:
    refuse_taken(columns)
    frame = current.frame.withColumns({name: current.alive(sql) for name, sql in columns.items()})
    refuse_functions(frame, columns.values())
    # Spark does not tell upper case from lower: a column of the same letters is replaced, and has the new name.
    new = {name.lower(): name for name in columns}
    kept = tuple(new.pop(name.lower(), name) for name in current.visible)
    same = set(current.visible) - set(columns)
    return current.next(frame, (*kept, *new.values()), current.filters, same)


def refuse_functions(frame: DataFrame, expressions: Iterable[str]) -> None:
    """Raise JobError for what one plan for all batches cannot compute.

    `frame` is the frame that the expressions are selected into, by its last projection.
    """
    expressions = tuple(expressions)
    for expression in expressions:
        problem = nondeterministic_call(expression)
        if problem is not None:
            raise JobError(problem)
        if _OVER.search(expression) and "Window [" in frame._jdf.queryExecution().analyzed().toString():  # noqa: SLF001
            raise JobError(
                f"{expression!r} is a window function of SQL, which would see the rows that filters have dropped; use "
                "key_by and window"
            )
    suspect = [expression for expression in expressions if may_read_more(expression)]
    if suspect:
        _refuse_more_than_the_row(frame, suspect)


def _refuse_more_than_the_row(frame: DataFrame, expressions: Sequence[str]) -> None:
    """Raise JobError where the last projection has a subquery, or reads the clock.

    Spark's own rules say which functions and texts it takes for the time, however they were written or made.
    """
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - no public way
    optimizer = jvm.org.apache.spark.sql.catalyst.optimizer
    analyzed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    named = expressions[0] if len(expressions) == 1 else " or ".join(expressions)
    if not analyzed.subqueries().isEmpty():
        raise JobError(subquery(named))
    # What is computed in place of a function such as to_timestamp shows after the first rule.
    computed = optimizer.ReplaceExpressions.apply(analyzed)
    timed = optimizer.SpecialDatetimeValues.apply(optimizer.ComputeCurrentTime.apply(computed))
    if _has_other_time(computed.expressions(), timed.expressions()):
        raise JobError(clock_read(named))


def _has_other_time(before: Any, after: Any) -> bool:
    """Return whether a part of a sequence of Spark's expressions became a time that is not that of 'epoch'."""
    if before.equals(after):
        return False
    for number in range(before.size()):
        of, became = before.apply(number), after.apply(number)
        if of.nodeName() != became.nodeName():
            value = became.value()
            if isinstance(value, int) and value != 0:  # and not the name of the session's time zone
                return True
        elif _has_other_time(of.children(), became.children()):
            return True
    return False


assert set(HIDDEN) <= set(_KEPT)
