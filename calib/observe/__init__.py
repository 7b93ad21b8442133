"""Observing: the float model runs over a set, and what its tensors hold is counted or measured as it passes.

Memory holds a few batches' tensors and what observes them, whatever the number of samples.
"""

from calib.observe.counting import observe, observe_linear
from calib.observe.sampling import embedding, features, input_features

__all__ = ["embedding", "features", "input_features", "observe", "observe_linear"]
