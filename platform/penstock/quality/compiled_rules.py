"""The rules of a suite, ready to run on the columns of one stream."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.quality.column_types import ColumnType, Family
from penstock.quality.suite import Kind, Rule, Severity

__all__ = ["CompiledRule", "CompiledRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRule:
    """One rule ready to run.

    `name` is stable as long as the rule keeps its place: suite:position:type(column).
    A row rule has the `hidden` column that its `expression` fills; a critical one has a `bit` in `fails_mask`.
    """

    name: str
    rule: Rule
    column_type: ColumnType | None
    hidden: str | None = None
    expression: str | None = None
    bit: int | None = None

    @property
    def kind(self) -> Kind:
        """Return whether the rule judges rows or the whole unit."""
        return self.rule.kind

    @property
    def severity(self) -> Severity:
        """Return what the rule's failure means."""
        return self.rule.severity

    @property
    def mostly(self) -> float:
        """Return the share of rows that must hold."""
        return self.rule.mostly

    @property
    def family(self) -> Family:
        """Return the family of the column's type."""
        return self.column_type.family if self.column_type else Family.OTHER

    @property
    def scale(self) -> int:
        """Return the scale of a decimal column."""
        return self.column_type.scale if self.column_type else 0


@dataclass(frozen=True, slots=True)
class CompiledRules:
    """All rules of a gate; `typed` says whether the columns they run on are known."""

    name: str
    rules: tuple[CompiledRule, ...]
    typed: bool
