"""Everything that makes sense without HTTP: load a model, stream tokens, say how likely they were.

from engine import Engine, SamplingSettings

engine = Engine.load("engine/default_model")
engine.generator.begin_stream_ex(engine.tokenizer.encode("Once upon a time"))
"""

from .abort import AbortFlag
from .chat_messages import ROLES
from .config import ModelConfig
from .description import ModelDescription, describe
from .draft import DraftCount
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
from .gbnf import is_gbnf
from .generator import StreamingGenerator
from .grammar import ConstraintSpec
from .prefix import Reuse
from .random_numbers import derived_seed
from .reply import ReplyReader
from .reply_format import ReplyFormat
from .reply_tokens import ReplyDelta
from .result import Prefill, PromptToken, StreamResult, TokenRecord, TopToken
from .sample import SampleResult, TraceStep
from .sampling_settings import SamplingSettings
from .speculation import OWN_DRAFT
from .template import ChatTemplate
from .tokenizer import Tokenizer
from .tool_description import Tool, describe_tools, spelled_calls
from .tool_grammar import after_reasoning, arguments_of, calls_or_json, tool_constraint

__all__ = [
    "DEFAULT_MODEL",
    "OWN_DRAFT",
    "ROLES",
    "AbortFlag",
    "ChatTemplate",
    "ConstraintSpec",
    "ContextLengthError",
    "DraftCount",
    "Engine",
    "EngineError",
    "InvalidInputError",
    "ModelConfig",
    "ModelDescription",
    "ModelLoadError",
    "NoTokenError",
    "NumericsError",
    "Prefill",
    "PromptToken",
    "ReplyDelta",
    "ReplyFormat",
    "ReplyReader",
    "Reuse",
    "SampleResult",
    "SamplingSettings",
    "StreamResult",
    "StreamingGenerator",
    "TemplateError",
    "TokenRecord",
    "Tokenizer",
    "Tool",
    "TopToken",
    "TraceStep",
    "after_reasoning",
    "arguments_of",
    "calls_or_json",
    "derived_seed",
    "describe",
    "describe_tools",
    "is_gbnf",
    "spelled_calls",
    "tool_constraint",
]
