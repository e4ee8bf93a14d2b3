"""Cut streams into windows, of which methods of their own say what to compute.

Each class of windows that users can name has one class here or in `graph/specs/`, derived from `Windowed`. It is listed
in `graph.keyed.StatefulSteps`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

from penstock.errors import DuplicateName, JobError
from penstock.graph.aggregates import Aggregate
from penstock.graph.names import checked_name
from penstock.graph.source_location import job_error, user_site
from penstock.graph.stateful import StepMethods, Stream
from penstock.graph.steps import StepSpec
from penstock.graph.unknown_methods import METHODS_OF_WINDOWS, NamedMethods

__all__ = ["WindowMethods", "Windowed"]

Spec = TypeVar("Spec")


class Windowed(NamedMethods, ABC, Generic[Stream, Spec]):
    """Windows of which nothing is computed yet. A job whose windows nobody uses is refused."""

    takes: ClassVar[type]
    """The class of what `window` is given."""
    hint: ClassVar[str]
    """A call that computes something of them, as text."""
    advice = METHODS_OF_WINDOWS
    _internal = frozenset(
        {"advice", "checked", "hint", "is_replaced_by", "mark_used", "refuse_unused", "steps", "takes"}
    )

    def __init__(self, rows: StepMethods[Stream], name: str, spec: Spec, partitions: int | None) -> None:
        self._rows = rows
        self._name = checked_name(name, "a window step")
        self._spec = spec
        self._partitions = rows._partitions(self._name, partitions, keyed=bool(rows._keys))
        self._site = user_site()
        self._used = False
        self._asked_in_vain = False

    @abstractmethod
    def checked(self) -> Self:
        """Return the same; raises JobError for windows that no step can make."""

    def mark_used(self) -> None:
        """Record that a method computes something of these windows."""
        self._used = True

    def _checked_aggregates(self, aggregates: Mapping[str, object], *others: str) -> dict[str, Aggregate]:
        """Return aggregates that the output has beside the keys and `others`; raises JobError for anything else."""
        self.mark_used()  # also where it is refused: that is said at once, and the window may be written again
        if not aggregates:
            raise job_error(f"window {self._name!r} computes nothing: name at least one aggregate")
        taken = {name.lower() for name in (*self._keys, *others)}  # Spark does not tell upper case from lower
        checked: dict[str, Aggregate] = {}
        for name, aggregate in aggregates.items():
            if name.lower() in taken:
                message = f"window {self._name!r} has a column {name!r} already; give the aggregate another name"
                raise job_error(message, DuplicateName)
            if not isinstance(aggregate, Aggregate):
                raise job_error(f"column {name!r} needs an aggregate such as agg.sum('v'), not {aggregate!r}")
            taken.add(name.lower())
            checked[name] = aggregate
        return checked

    def _subject(self) -> str:
        self._asked_in_vain = True
        return f"window {self._name!r}"

    @property
    def _keys(self) -> tuple[str, ...]:
        """Return the key columns, none for a whole stream."""
        return self._rows._keys

    def _step(self, spec: StepSpec) -> Stream:
        """Return the output of a step that makes these windows."""
        self.mark_used()
        return self._rows._step(self._name, spec, self._partitions)

    def is_replaced_by(self, name: str) -> bool:
        """Return whether a window of this name is these ones, written again after a method that they do not have."""
        return self._asked_in_vain and not self._used and name == self._name

    def refuse_unused(self) -> None:
        """Raise JobError where nothing is computed."""
        if not self._used:
            raise JobError(
                f"window {self._name!r} computes nothing: add {self.hint} or the like, or remove it",
                where=str(self._site),
            )


class WindowMethods(StepMethods[Stream]):
    """Cut streams into windows."""

    windowed: ClassVar[tuple[type[Windowed[Any, Any]], ...]]
    """The kinds of windows."""

    def _windowed(self, name: str, spec: object, partitions: int | None) -> Any:
        """Return the windows that a spec describes; raises JobError for anything else."""
        kind = next((known for known in self.windowed if isinstance(spec, known.takes)), None)
        if kind is None:
            raise job_error(f"window {name!r} needs a window such as Tumbling(seconds(10)), not {spec!r}")
        windows = kind(self, name, spec, partitions).checked()
        unfinished = self._stream._job.unfinished
        unfinished[:] = [former for former in unfinished if not former.is_replaced_by(name)]
        unfinished.append(windows)  # not windows that are refused already
        return windows
