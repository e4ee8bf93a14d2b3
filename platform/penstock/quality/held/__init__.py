"""Batches that a gate has put on hold: their files, and what was decided on them (SEMANTICS 11.5)."""
