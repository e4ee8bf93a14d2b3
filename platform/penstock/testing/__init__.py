"""Test jobs without a broker, a cluster or a clock: the kit that Penstock's own tests use."""

from penstock.testing.harness import Crashed, Harness

__all__ = ["Crashed", "Harness"]
