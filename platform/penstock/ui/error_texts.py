"""Make texts of errors, and of errors in a driver's record, for pages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError

__all__ = ["Trouble"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An error for a page: what is wrong, where, and what to do about it."""

    what: str
    code: str | None = None
    where: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        """Return what an error says; one that nobody foresaw is named as such."""
        if isinstance(error, PenstockError):
            return cls(what=error.what, code=error.code, where=error.where, remedy=error.remedy)
        if isinstance(error, OSError):
            remedy = "Look whether the folder is there and can be read by the user of this process."
            return cls(what=str(error), remedy=remedy)
        return cls(what=f"{type(error).__name__}: {error}", code="PEN-000", remedy="This is an error in Penstock.")

    @classmethod
    def told(cls, record: Mapping[str, Any] | None) -> Trouble | None:
        """Return what a status record says of an error."""
        if record is None:
            return None
        words = {name: str(record[name]) for name in ("code", "where", "remedy") if record.get(name)}
        return cls(what=str(record.get("what")), **words)
