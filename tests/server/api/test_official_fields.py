"""Every field that the official clients and servers of each wire know stands in a table here: it is
served, or docs/api.md says what it is answered with instead.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_type_hints

import ollama._types as ollama_types
import pytest
from anthropic.types import MessageCountTokensParams
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as BetaMessageParams
from anthropic.types.message_create_params import MessageCreateParamsBase as MessageParams
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase as ResponseParams
from pydantic import BaseModel

from server.request.unserved_fields import INSTEAD, QUIET, REFUSED, WARNED, WHY
from server.schema.anthropic import CountRequest, MessagesRequest
from server.schema.chat import ChatCompletionRequest
from server.schema.completions import CompletionRequest
from server.schema.llama_completion import LlamaCompletionRequest
from server.schema.ollama import OllamaChat, OllamaGenerate, OllamaMessage, OllamaShow
from server.schema.responses import CountInputRequest, ResponsesRequest

RECORDED = json.loads(
    (Path(__file__).parents[2] / "clients" / "requests" / "fields.json").read_text()
)
UNSERVED = {*REFUSED, *WARNED, *QUIET}
# They stand in headers, not in bodies.
HEADERS = {"betas"}

_Models = tuple[type[BaseModel], ...]
# Wire -> the names that its own clients or server know, the models that take them here.
WIRES: dict[str, tuple[Iterable[str], _Models]] = {
    "OpenAI, completions": (get_type_hints(CompletionParams), (CompletionRequest,)),
    "OpenAI, chat": (get_type_hints(ChatParams), (ChatCompletionRequest,)),
    "OpenAI, responses": (get_type_hints(ResponseParams), (ResponsesRequest,)),
    "OpenAI, tokens of a response": (get_type_hints(InputTokenCountParams), (CountInputRequest,)),
    "Anthropic": (get_type_hints(MessageParams), (MessagesRequest,)),
    "Anthropic, beta": (get_type_hints(BetaMessageParams), (MessagesRequest,)),
    "Anthropic, tokens": (get_type_hints(MessageCountTokensParams), (CountRequest,)),
    "llama-server, completion": (RECORDED["llama-server"], (LlamaCompletionRequest,)),
    "llama-server, chat": (RECORDED["llama-server"], (ChatCompletionRequest,)),
    "Ollama, chat": (ollama_types.ChatRequest.model_fields, (OllamaChat,)),
    "Ollama, text": (ollama_types.GenerateRequest.model_fields, (OllamaGenerate,)),
    "Ollama, message": (ollama_types.Message.model_fields, (OllamaMessage,)),
    "Ollama, model": (ollama_types.ShowRequest.model_fields, (OllamaShow,)),
    "Ollama, options": (ollama_types.Options.model_fields, (ChatCompletionRequest,)),
    "TabbyAPI": (RECORDED["TabbyAPI"], (CompletionRequest, ChatCompletionRequest)),
}


@pytest.mark.parametrize("wire", WIRES)
def test_every_field_has_a_row(wire: str) -> None:
    official, models = WIRES[wire]
    served = {name for model in models for name in model.model_json_schema()["properties"]}
    assert set(official) - served - UNSERVED - HEADERS == set()


def test_the_lists_are_read() -> None:
    for wire, (official, _) in WIRES.items():
        assert len(list(official)) > 0, wire


def test_no_field_has_two_rows() -> None:
    tables: list[Any] = [REFUSED, WARNED, QUIET]
    for i, one in enumerate(tables):
        for other in tables[i + 1 :]:
            assert not set(one) & set(other)
    assert set(INSTEAD) <= set(REFUSED)
    assert set(WHY) <= set(WARNED)
