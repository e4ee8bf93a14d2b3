"""Give streams the methods of all operators that keep state."""

from __future__ import annotations

from typing import Any, overload

from penstock.graph.batch_window import BatchWindow
from penstock.graph.specs.batch_windows import BatchWindowedStream
from penstock.graph.specs.deduplicate import DeduplicateMethods
from penstock.graph.specs.global_windows import GlobalWindow, GlobalWindowStream
from penstock.graph.specs.join import JoinMethods
from penstock.graph.specs.join_as_of import AsOfMethods
from penstock.graph.specs.session_windows import SessionWindows
from penstock.graph.specs.state_functions import StateFunctionMethods
from penstock.graph.specs.time_windows import TimeWindows, WindowedStream
from penstock.graph.specs.tuple_windows import TupleWindow, WindowedTuples
from penstock.graph.stateful import Stream
from penstock.graph.unknown_methods import METHODS_OF_KEYED_STREAMS, NamedMethods
from penstock.graph.windowed import WindowMethods
from penstock.graph.windows import EventWindow

__all__ = ["KeyedStream", "StatefulSteps"]


class _EventWindows(WindowedStream[Stream]):
    steps = (TimeWindows, SessionWindows)


# The operators of the product: whose methods stand here is registered.
class StatefulSteps(
    NamedMethods,
    WindowMethods[Stream],
    StateFunctionMethods[Stream],
    DeduplicateMethods[Stream],
    JoinMethods[Stream],
    AsOfMethods[Stream],
):
    """Offer the steps that keep state: to keyed streams, and to whole streams as one group without a key."""

    _internal = frozenset({"advice", "windowed"})
    windowed = (_EventWindows, GlobalWindowStream, BatchWindowedStream, WindowedTuples)

    @overload
    def window(self, name: str, spec: EventWindow, *, partitions: int | None = None) -> WindowedStream[Stream]: ...
    @overload
    def window(self, name: str, spec: GlobalWindow, *, partitions: int | None = None) -> GlobalWindowStream[Stream]: ...
    @overload
    def window(self, name: str, spec: BatchWindow, *, partitions: int | None = None) -> BatchWindowedStream[Stream]: ...
    @overload
    def window(self, name: str, spec: TupleWindow, *, partitions: int | None = None) -> WindowedTuples[Stream]: ...
    def window(self, name: str, spec: Any, *, partitions: int | None = None) -> Any:
        """Cut each key's rows into windows; the step's state lives under `name`.

        `partitions` of the state: of a keyed stream the job's, unless said otherwise, of a whole stream one.
        """
        return self._windowed(name, spec, partitions)


class KeyedStream(StatefulSteps[Stream]):
    """A stream whose rows are grouped by key."""

    advice = METHODS_OF_KEYED_STREAMS

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        self._rows = stream
        self._keys = keys

    @property
    def _stream(self) -> Stream:
        return self._rows

    def _subject(self) -> str:
        return f"a stream keyed by {', '.join(self._keys)}"
