"""Metrics: from a model's outputs and the right answers to a score for every sample."""

from calib.metrics.base import Agreement, Metric, Outputs, SampleScore, aggregates_of
from calib.metrics.registry import make
from calib.metrics.text import CtcText

__all__ = ["Agreement", "CtcText", "Metric", "Outputs", "SampleScore", "aggregates_of", "make"]
