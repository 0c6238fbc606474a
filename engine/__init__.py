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
    NumericsError,
    TemplateError,
)
from .generator import StreamingGenerator
from .result import Prefill, StreamResult, TokenRecord, TopToken
from .sampling import SamplingSettings
from .template import ChatTemplate
from .tokenizer import Tokenizer

__all__ = [
    "DEFAULT_MODEL",
    "ROLES",
    "AbortFlag",
    "ChatTemplate",
    "ContextLengthError",
    "Engine",
    "EngineError",
    "InvalidInputError",
    "ModelConfig",
    "ModelDescription",
    "ModelLoadError",
    "NumericsError",
    "Prefill",
    "SamplingSettings",
    "StreamResult",
    "StreamingGenerator",
    "TemplateError",
    "TokenRecord",
    "Tokenizer",
    "TopToken",
    "describe",
]
