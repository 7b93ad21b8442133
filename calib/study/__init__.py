"""Studies: one declarative run from a model to evidence."""

from calib.study.codec import load as load_result
from calib.study.config import Study, load
from calib.study.result import StudyResult
from calib.study.run import Finished, run
from calib.study.track import record

__all__ = ["Finished", "Study", "StudyResult", "load", "load_result", "record", "run"]
