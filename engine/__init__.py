"""Everything that works without HTTP: load a model, stream tokens with their probabilities.

from engine import Engine, SamplingSettings

engine = Engine.load("engine/default_model")
engine.generator.begin_stream_ex(engine.tokenizer.encode("Once upon a time"))
"""

from .abort import AbortFlag
from .cache.reuse import Reuse
from .cache.slot import Slot, SlotSize
from .chat.messages import ROLES
from .chat.reply.format import ReplyFormat
from .chat.reply.grammar import after_reasoning, arguments_of, calls_or_json, tool_constraint
from .chat.reply.reader import ReplyReader
from .chat.reply.tokens import ReplyDelta
from .chat.template.template import ChatTemplate
from .chat.tools import Tool, describe_tools, listed_calls, spelled_calls, template_tools
from .checkpoint.config import ModelConfig
from .checkpoint.config_json import model_config
from .description import DEFAULT_MODEL, ModelDescription, describe
from .draft.opening import OWN_DRAFT
from .draft.speculator import DraftCount
from .engine import Engine
from .errors import (
    ContextLengthError,
    EngineError,
    InvalidInputError,
    ModelLoadError,
    NoTokenError,
    NumericsError,
    TemplateError,
)
from .grammar.gbnf.syntax import is_gbnf
from .grammar.spec import ConstraintSpec
from .load_options import LoadOptions
from .model.stored_groups import StoredGroup
from .sampling.random_numbers import derived_seed
from .sampling.request import SampleResult, TraceStep
from .sampling.settings import SamplingSettings
from .stream.continuations import ContinuationScorer
from .stream.generator import StreamingGenerator
from .stream.options import StreamOptions
from .stream.peek import Glimpse
from .stream.result import Prefill, PromptToken, StreamResult, Suppressed, TokenRecord, TopToken
from .stream.snapshot import GivenRun, GivenToken, Segment, Snapshot
from .stream.snapshot_bytes import snapshot_from_bytes, snapshot_to_bytes
from .stream.stop_when import Repeat, StopCondition, StopWhen
from .stream.stream import Stream
from .text.fill_in import Extra
from .text.tokenizer import Tokenizer

__all__ = [
    "DEFAULT_MODEL",
    "OWN_DRAFT",
    "ROLES",
    "AbortFlag",
    "ChatTemplate",
    "ConstraintSpec",
    "ContextLengthError",
    "ContinuationScorer",
    "DraftCount",
    "Engine",
    "EngineError",
    "Extra",
    "GivenRun",
    "GivenToken",
    "Glimpse",
    "InvalidInputError",
    "LoadOptions",
    "ModelConfig",
    "ModelDescription",
    "ModelLoadError",
    "NoTokenError",
    "NumericsError",
    "Prefill",
    "PromptToken",
    "Repeat",
    "ReplyDelta",
    "ReplyFormat",
    "ReplyReader",
    "Reuse",
    "SampleResult",
    "SamplingSettings",
    "Segment",
    "Slot",
    "SlotSize",
    "Snapshot",
    "StopCondition",
    "StopWhen",
    "StoredGroup",
    "Stream",
    "StreamOptions",
    "StreamResult",
    "StreamingGenerator",
    "Suppressed",
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
    "listed_calls",
    "model_config",
    "snapshot_from_bytes",
    "snapshot_to_bytes",
    "spelled_calls",
    "template_tools",
    "tool_constraint",
]
