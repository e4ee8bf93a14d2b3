"""Measure Penstock beside its peers, in one run on one machine (DESIGN 12)."""
