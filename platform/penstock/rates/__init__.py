"""Estimate how many rows a second a job can process, and divide them among partitions: pure values (SEMANTICS 8)."""

from penstock.rates.constant import Constant
from penstock.rates.cost_model import CostModel
from penstock.rates.division import partition_limits
from penstock.rates.estimator import Measurement, RateEstimator, replayed
from penstock.rates.pid import PIDRateEstimator

__all__ = [
    "Constant",
    "CostModel",
    "Measurement",
    "PIDRateEstimator",
    "RateEstimator",
    "partition_limits",
    "replayed",
]
