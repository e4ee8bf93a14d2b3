"""Define the options that limit what batches read."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import typer

__all__ = [
    "Bytes", "Defaults", "MaxFiles", "MaxRate", "MaxRatePerPartition", "OfSource", "Pause", "Rows", "defaults_of",
    "limits_given",
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


OfSource = Annotated[
    str | None,
    typer.Option("--source", metavar="NAME", help="The limits of this source alone, not of each.", show_default=False),
]


def limits_given(*, source: str | None = None, paused: bool | None = None, **given: str | None) -> dict[str, Any]:
    """Return the fields of a Command that set limits: each is a number, `none` or `default`, and None is not given.

    With `source` they are of this source alone.
    """
    from penstock.rates.limits import Limits, SourceLimits

    values = {name: _limit(name, text) for name, text in given.items() if text not in (None, "default")}
    if source is not None:
        return {
            "limits": Limits(sources={source: SourceLimits(**values)}) if values else Limits(),
            "unlimits": frozenset(f"{source}.{name}" for name, text in given.items() if text == "default"),
        }
    return {
        "limits": Limits(**values, **({} if paused is None else {"paused": paused})),  # type: ignore[arg-type]
        "unlimits": frozenset(name for name, text in given.items() if text == "default"),
    }


def defaults_of(source: str) -> dict[str, Any]:
    """Return the fields of a Command by which all limits of a source are those of the configuration again."""
    from penstock.rates.limits import SourceLimits

    return {"unlimits": frozenset(f"{source}.{name}" for name in SourceLimits.model_fields)}


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
