"""Define the options that limit what batches read, and say limits in words."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from penstock.rates.limits import Limits

__all__ = [
    "Bytes", "Defaults", "MaxFiles", "MaxRate", "MaxRatePerPartition", "Pause", "Rows", "limits_given",
    "limits_in_words",
]  # fmt: skip

_COUNT = "N|none|default"


def _option(name: str, help_: str, metavar: str = _COUNT) -> Any:
    """Return the option of one limit."""
    return typer.Option(name, metavar=metavar, help=help_, show_default=False)


Rows = Annotated[str | None, _option("--rows", "Maximum of rows per batch for each source.")]
Bytes = Annotated[
    str | None,
    _option("--bytes", "Maximum of bytes per batch for each source that knows or estimates them.", "SIZE|none|default"),
]
MaxFiles = Annotated[str | None, _option("--files", "Maximum of files per batch for each source that reads files.")]
MaxRate = Annotated[str | None, _option("--max-rate", "Maximum of rows a second for each source.")]
MaxRatePerPartition = Annotated[
    str | None,
    _option("--max-rate-per-partition", "Maximum of rows a second for each partition of a source."),
]
Pause = Annotated[
    bool | None, typer.Option("--pause/--no-pause", help="Read nothing, or read again.", show_default=False)
]

Defaults = Annotated[bool, typer.Option("--defaults", help="All limits of the configuration hold again.")]


def limits_given(*, paused: bool | None = None, **given: str | None) -> dict[str, Any]:
    """Return the fields of a Command that set limits: each is a number, `none` or `default`, and None is not given."""
    from penstock.rates.limits import Limits

    values = {name: _limit(name, text) for name, text in given.items() if text not in (None, "default")}
    return {
        "limits": Limits(**values, **({} if paused is None else {"paused": paused})),  # type: ignore[arg-type]
        "unlimits": frozenset(name for name, text in given.items() if text == "default"),
    }


def _limit(name: str, text: str | None) -> int | None:
    """Read one limit; None is no limit."""
    from penstock.config.values import parse_size

    if text is None or text == "none":
        return None
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    what = "neither a number of 1 or more"
    if name == "bytes":
        with suppress(ValueError):
            return parse_size(text)
        what = "neither a number of bytes, a size such as '64 MiB'"
    option = f"--{name.replace('_', '-')}"
    raise typer.BadParameter(f"{text!r} is {what}, nor none or default", param_hint=option)


def limits_in_words(limits: Limits | None) -> str:
    """Return limits as a sentence has them."""
    if limits is None:
        return "the limits of its configuration"
    values = limits.set_limits()
    if values.get("paused"):
        return "paused, so it reads nothing"
    units = {
        "rows": "rows a batch and source",
        "bytes": "bytes a batch and source",
        "files": "files a batch and source",
        "max_rate": "rows a second and source",
        "max_rate_per_partition": "rows a second and partition",
    }
    set_now = [f"at most {values[name]:,} {unit}" for name, unit in units.items() if values.get(name) is not None]
    lifted = [f"no limit of {unit}" for name, unit in units.items() if name in values and values[name] is None]
    return ", ".join([*set_now, *lifted]) or "it reads again"
