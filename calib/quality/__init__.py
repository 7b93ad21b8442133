"""Is a calibration set good enough? Sufficiency, coverage, drift, duplicates, and two sets compared."""

from calib.quality.check import Question, judge
from calib.quality.compare import Side, compare
from calib.quality.drift import LIMIT
from calib.quality.record import load, save
from calib.quality.result import Comparison, Quality

__all__ = ["LIMIT", "Comparison", "Quality", "Question", "Side", "compare", "judge", "load", "save"]
