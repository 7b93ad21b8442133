"""Errors that a user can act on.

Every message says what was wrong, where (file, key, layer, tensor, sample) and what to do. The command line prints the
message alone and exits with status 1; anything else that escapes is a bug of ours and keeps its traceback.
"""


class CalibError(Exception):
    """Base of all errors that the user's input can cause."""


class ConfigError(CalibError):
    """A study, recipe, plan or option is wrong."""


class DataError(CalibError):
    """A sample, a calibration set or a statistics file is wrong."""


class ModelError(CalibError):
    """A model cannot be read, normalized, quantized or run."""


class MissingDependencyError(CalibError):
    """An optional package is needed; the message says which extra installs it."""
