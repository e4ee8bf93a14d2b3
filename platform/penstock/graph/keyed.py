"""Give streams the methods of all operators that keep state."""

from __future__ import annotations

from penstock.graph.specs.deduplicate import DeduplicateMethods
from penstock.graph.specs.join import JoinMethods
from penstock.graph.specs.session_windows import SessionWindows
from penstock.graph.specs.state_functions import StateFunctionMethods
from penstock.graph.specs.time_windows import WindowMethods
from penstock.graph.stateful import Stream

__all__ = ["KeyedStream", "StatefulSteps"]


# The operators of the product: whose methods stand here is registered.
class StatefulSteps(
    WindowMethods[Stream],
    StateFunctionMethods[Stream],
    DeduplicateMethods[Stream],
    JoinMethods[Stream],
):
    """Offer the steps that keep state: to keyed streams, and to whole streams as one group without a key."""

    window_steps = (*WindowMethods.window_steps, SessionWindows)


class KeyedStream(StatefulSteps[Stream]):
    """A stream whose rows are grouped by key."""

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        self._rows = stream
        self._keys = keys

    @property
    def _stream(self) -> Stream:
        return self._rows
