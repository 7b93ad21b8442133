"""Two runs compared: what changed between them, and whether it matters."""

from calib.comparing.compare import compare
from calib.comparing.result import Change, Comparison, Layers, ScaleChange, Scales, Scores

__all__ = ["Change", "Comparison", "Layers", "ScaleChange", "Scales", "Scores", "compare"]
