"""Make an operator of time windows: of those that are emitted as they close, and of those with early panes."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import JobError
from penstock.graph.specs.time_windows import TimeWindows
from penstock.operators.protocol import BoundSide, StepContext
from penstock.operators.windows.applied_windows import AppliedFunction, plan_of
from penstock.operators.windows.early_step import EarlyWindowStep
from penstock.operators.windows.window_rows import LATE_COLUMNS
from penstock.operators.windows.window_step import WindowSide, WindowStepWork

__all__ = ["bind", "bind_side"]


def bind_side(spec: TimeWindows, side: BoundSide) -> WindowSide:
    """Return the map side of a window step, which judges rows and aggregates them; raises JobError for a taken name."""
    made = WindowSide(bound=side, window=spec.window, plan=plan_of(spec.aggregates, side))
    taken = next((n for n in made.visible or () if n.name.lower() in LATE_COLUMNS.names), None)
    if taken is not None:
        raise JobError(f"column {taken.name!r} has the name of one that late rows get; rename it, or drop_late()")
    return made


def bind(spec: TimeWindows, sides: Sequence[WindowSide], context: StepContext) -> WindowStepWork:
    """Return a window step; raises JobError for taken names, and BadExpression for output= that is none."""
    (side,) = sides
    kind = EarlyWindowStep if spec.window.has_early else WindowStepWork
    applied = AppliedFunction.of(spec.function, context.name, panes=spec.window.has_panes)
    step = kind(window=spec.window, plan=side.plan, keys=side.bound.keys, applied=applied)
    _ = step.layout
    return step
