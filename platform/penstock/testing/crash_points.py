"""Name the points of the loop where a test may stop the driver dead (DESIGN 4)."""

from __future__ import annotations

from typing import get_args

from penstock.errors import UnknownName
from penstock.graph.source_location import user_site
from penstock.runtime.driver.stages import Hook, Stage

__all__ = ["Crashed", "checked_hook"]

_AROUND = ("before", "after")
HOOKS: dict[str, tuple[str, ...]] = {
    **{stage.__name__: _AROUND for stage in get_args(Stage)},
    "TakeOver": ("before", "surveyed", "claimed", "after", "done"),
    "Release": _AROUND,
    "Restore": _AROUND,
    "Truncate": _AROUND,
    "Wait": ("before",),
}


class Crashed(Exception):
    """The driver was stopped dead at the hook that the test had asked for."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        super().__init__(f"crashed {hook.when} {hook.stage} of batch {hook.batch}")


def checked_hook(stage: str, when: str) -> tuple[str, str]:
    """Return the hook's name. Raises UnknownName, a JobError, for one that the loop does not have."""
    if stage not in HOOKS:
        raise UnknownName(f"{stage!r} is not a stage; there is {', '.join(HOOKS)}", where=str(user_site()))
    # Between two sinks: which there are is for the job of then to say.
    word = {"PublishSinks": "published", "Truncate": "truncated"}.get(stage)
    if when not in HOOKS[stage] and not (word is not None and when.startswith(f"{word} ")):
        between = "" if word is None else f", {word} SINK"
        raise UnknownName(
            f"stage {stage!r} has no hook {when!r}; there is {', '.join(HOOKS[stage])}{between}",
            where=str(user_site()),
        )
    return stage, when
