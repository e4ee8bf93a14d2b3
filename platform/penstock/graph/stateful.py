"""Share what the methods of all operators do: name the step, count its partitions, return its output as a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, Self, TypeVar

from penstock.graph.names import checked_name
from penstock.graph.nodes import Node
from penstock.graph.partitions import checked_partitions, default_partitions
from penstock.graph.source_location import job_error
from penstock.graph.steps import StepNode, StepSpec

__all__ = ["StepMethods", "Stream", "StreamMethods", "Unfinished"]


class Unfinished(Protocol):
    """The result of a method of which the job has to make something."""

    def is_replaced_by(self, name: str) -> bool:
        """Return whether the result of the same method, under this name, takes its place."""

    def refuse_unused(self) -> None:
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


class StreamMethods(ABC, Generic[Stream]):
    """Offer steps that read a stream, in a module for each."""

    @property
    @abstractmethod
    def _stream(self) -> Stream:
        """The stream whose rows the steps take."""


class StepMethods(StreamMethods[Stream]):
    """Offer steps that keep state: to keyed streams, and to whole streams as one group without a key."""

    _keys: tuple[str, ...] = ()

    def _step(
        self,
        name: str,
        spec: StepSpec,
        partitions: int | None,
        *others: StepMethods[Stream],
        keys: tuple[str, ...] | None = None,
    ) -> Stream:
        """Add a step that reads this stream first, then the others; return its output.

        `keys` are the key columns in all of them, None for those that each stream is keyed by.
        Raises JobError for a stream of another job, and for one that is keyed by more or fewer columns.
        """
        inputs = (self, *others)
        of_each = tuple(given._keys if keys is None else keys for given in inputs)
        if any(given._stream._job is not self._stream._job for given in others):
            raise job_error(f"step {name!r} needs streams of one job")
        if len({len(columns) for columns in of_each}) > 1:
            listed = " and ".join(f"by {', '.join(columns) or 'nothing'}" for columns in of_each)
            raise job_error(f"the streams that step {name!r} reads are keyed {listed}")
        node = StepNode(
            name=checked_name(name, "a step"),
            inputs=tuple(given._stream._node for given in inputs),
            keys=of_each,
            partitions=self._partitions(name, partitions, keyed=any(of_each)),
            spec=spec,
        )
        return self._stream._then(node, name)

    def _partitions(self, step: str, partitions: int | None, *, keyed: bool) -> int:
        if partitions is not None:
            return checked_partitions(partitions)
        if not keyed:
            return 1
        chosen = self._stream._job.partitions
        return default_partitions(step) if chosen is None else chosen
