"""Check names: state, offsets and receipts are stored under them, so they are plain and stay put (F61)."""

from __future__ import annotations

import re

from penstock.errors import BadName
from penstock.graph.source_location import user_site

__all__ = ["checked_name", "is_name"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


def is_name(text: str) -> bool:
    """Return whether a text may be a name."""
    return _NAME.fullmatch(text) is not None


def checked_name(name: object, what: str) -> str:
    """Return the name, or refuse it with the user's line."""
    if not isinstance(name, str) or not is_name(name):
        raise BadName(f"{what} is named {name!r}", where=str(user_site()))
    return name
