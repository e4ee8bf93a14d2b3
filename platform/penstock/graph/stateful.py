"""Share what the methods of all operators do: name the step, count its partitions, return its output as a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, Self, TypeVar

from penstock.graph.names import checked_name
from penstock.graph.nodes import Node
from penstock.graph.partitions import checked_partitions, default_partitions
from penstock.graph.steps import StepNode, StepSpec

__all__ = ["StepMethods", "Stream", "Unfinished"]


class Unfinished(Protocol):
    """What a method has returned that is no step yet."""

    def _refuse_unused(self) -> None:
        """Raise JobError where nothing was made of it."""


class Registry(Protocol):
    """The job, as far as steps with state ask and tell it."""

    partitions: int | None
    unfinished: list[Unfinished]


class Rows(Protocol):
    """The stream that such a step reads; the step's output is a stream of the same class."""

    _node: Node

    @property
    def _job(self) -> Registry:
        """The job of the stream."""

    def _then(self, node: Node, name: str | None = None) -> Self:
        """Return the output of a step that reads this stream."""


Stream = TypeVar("Stream", bound=Rows)


class StepMethods(ABC, Generic[Stream]):
    """Offer steps that keep state: to keyed streams, and to whole streams as one group without a key."""

    _keys: tuple[str, ...] = ()

    @property
    @abstractmethod
    def _stream(self) -> Stream:
        """The stream whose rows the steps take."""

    def _step(self, name: str, spec: StepSpec, partitions: int | None, *others: StepMethods[Stream]) -> Stream:
        """Add a step that reads this stream first, then the others; return its output."""
        inputs = (self, *others)
        node = StepNode(
            name=checked_name(name, "a step"),
            inputs=tuple(given._stream._node for given in inputs),
            keys=tuple(given._keys for given in inputs),
            partitions=self._partitions(name, partitions),
            spec=spec,
        )
        return self._stream._then(node, name)

    def _partitions(self, step: str, partitions: int | None) -> int:
        if partitions is not None:
            return checked_partitions(partitions)
        if not self._keys:
            return 1
        chosen = self._stream._job.partitions
        return default_partitions(step) if chosen is None else chosen
