"""The number of examples of a property."""

from __future__ import annotations

from penstock.testing.examples import examples

__all__ = ["examples"]
