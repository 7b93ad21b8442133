"""The INT8 quantization and calibration studio."""

from importlib.metadata import version

__version__ = version("calib")
