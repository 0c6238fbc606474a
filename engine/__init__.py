"""Everything that makes sense without HTTP: load a model, stream tokens, say how likely they were.

from engine import Engine, SamplingSettings

engine = Engine.load("engine/default_model")
engine.generator.begin_stream_ex(engine.tokenizer.encode("Once upon a time"))
"""

from .abort import AbortFlag
from .chat import ROLES
from .config import ModelConfig
from .description import ModelDescription, describe
from .engine import DEFAULT_MODEL, Engine
from .errors import (
    ContextLengthError,
    EngineError,
    InvalidInputError,
    ModelLoadError,
    NoTokenError,
    NumericsError,
    TemplateError,
)
from .generator import StreamingGenerator
from .grammar import ConstraintSpec
from .prefix import Reuse
from .result import Prefill, StreamResult, TokenRecord, TopToken
from .sample import SampleResult, TraceStep
from .sampling_settings import SamplingSettings
from .speculation import OWN_DRAFT
from .template import ChatTemplate
from .tokenizer import Tokenizer

__all__ = [
    "DEFAULT_MODEL",
    "OWN_DRAFT",
    "ROLES",
    "AbortFlag",
    "ChatTemplate",
    "ConstraintSpec",
    "ContextLengthError",
    "Engine",
    "EngineError",
    "InvalidInputError",
    "ModelConfig",
    "ModelDescription",
    "ModelLoadError",
    "NoTokenError",
    "NumericsError",
    "Prefill",
    "Reuse",
    "SampleResult",
    "SamplingSettings",
    "StreamResult",
    "StreamingGenerator",
    "TemplateError",
    "TokenRecord",
    "Tokenizer",
    "TopToken",
    "TraceStep",
    "describe",
]
