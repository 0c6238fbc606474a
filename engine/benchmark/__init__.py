"""How fast a loaded model is, and models of standard shapes to measure.

Owns what is measured in this process. Knows no HTTP and no terminal; `engine` itself does not
import it.
"""

from .bandwidth import Reader, isa, open_reader
from .figures import DEPTH, PARTS, EngineFigures, Plan, measure
from .machine import Machine, describe_machine, processor_name, read_rate
from .profile import OpShare, profile_step
from .shapes import SHAPES, Shape, write_model
from .speculation import SpeculationFigures, measure_draft_model, measure_ngrams

__all__ = [
    "DEPTH",
    "PARTS",
    "SHAPES",
    "EngineFigures",
    "Machine",
    "OpShare",
    "Plan",
    "Reader",
    "Shape",
    "SpeculationFigures",
    "describe_machine",
    "isa",
    "measure",
    "measure_draft_model",
    "measure_ngrams",
    "open_reader",
    "processor_name",
    "profile_step",
    "read_rate",
    "write_model",
]
