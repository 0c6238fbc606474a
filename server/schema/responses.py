"""The wire of POST /v1/responses: OpenAI's request, beside the fields of every generation route.

Owns names and types. An item of the input keeps the fields of all kinds of items, and its kind is
checked where it is read, so that an error names the one item at fault.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from typing_extensions import override

from .common import Count, GenerationRequest, JsonObject, RequestModel, one_message
from .messages import MAX_MESSAGES, MAX_PARTS
from .responses_tools import ChosenTool, ResponsesTool, choice_parts, tool_parts
from .sampling import other_name, setting
from .tools import MAX_TOOLS

_NO_TOOLS_RUN = "Accepted and not used: this server runs no tools."
_FOR_OPENAI = "Accepted and not used: it is a matter of OpenAI's own servers."


class InputPart(RequestModel):
    """A part of a message, of reasoning, or of what a tool gave back."""

    type: str = Field(
        description="input_text, output_text, refusal, reasoning_text or summary_text. Images, "
        "audio and files are not supported."
    )
    text: str | None = None
    refusal: str | None = None
    annotations: Any = setting("Accepted and not used.")
    logprobs: Any = setting("Accepted and not used.")
    prompt_cache_breakpoint: Any = setting(_FOR_OPENAI)


_Parts = Annotated[list[InputPart], Field(max_length=MAX_PARTS, fail_fast=True)]
_TextOrParts = Annotated[
    str | _Parts,
    one_message(f"must be a string or a list of at most {MAX_PARTS} parts, each with a type"),
]


class InputItem(RequestModel):
    """An item of the conversation: a message, reasoning, a call, its result, or a reference to an
    item that is stored.
    """

    type: str | None = setting(
        "message (or nothing, beside a role), reasoning, function_call, function_call_output, "
        "custom_tool_call, custom_tool_call_output, local_shell_call, local_shell_call_output or "
        "item_reference. Items of tools that OpenAI runs are not supported."
    )
    role: Literal["user", "assistant", "system", "developer"] | None = setting("Of a message.")
    content: _TextOrParts | None = setting("Of a message, or of reasoning.")
    id: str | None = setting("Of type item_reference: the item. Else accepted and not used.")
    summary: _Parts | None = setting("Of type reasoning: read where it has no content.")
    encrypted_content: str | None = setting("Of type reasoning: nothing here can read it.")
    call_id: str | None = setting("Of a call, and of its result.")
    name: str | None = setting("Of a call.")
    namespace: str | None = setting("Of type function_call: the namespace of its tool.")
    arguments: str | None = setting("Of type function_call: JSON text.")
    input: str | None = setting("Of type custom_tool_call.")
    action: JsonObject | None = setting("Of type local_shell_call.")
    output: _TextOrParts | None = setting("Of a result.")
    logprobs: Any = setting("Accepted and not used.")
    status: str | None = setting("Accepted and not used.")
    phase: str | None = setting("Accepted and not used.")
    caller: Any = setting("Accepted and not used.")
    created_by: Any = setting("Accepted and not used.")
    internal_chat_message_metadata_passthrough: Any = setting("Codex. Accepted and not used.")


_Items = Annotated[list[InputItem], Field(max_length=MAX_MESSAGES, fail_fast=True)]
ResponsesInput = Annotated[
    str | _Items,
    one_message(
        f"must be a string or a list of at most {MAX_MESSAGES} items, each an object whose fields "
        "have the types of its kind"
    ),
]


class ReasoningConfig(RequestModel):
    """How the model thinks, where its chat template leaves the choice, and how that is shown."""

    effort: Annotated[str, Field(max_length=32)] | None = setting(
        "Given to the model's chat template as `reasoning_effort`; none turns thinking off."
    )
    summary: Literal["auto", "concise", "detailed"] | None = setting(
        "The reasoning stands in `summary`, word for word, instead of in `content`."
    )
    generate_summary: Literal["auto", "concise", "detailed"] | None = setting(
        "The older name of `summary`."
    )
    context: str | None = setting("Accepted and not used: the chat template decides it.")


class TextFormat(RequestModel):
    """The form of the text."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = setting("Of type json_schema; not used.")
    schema_: JsonObject | None = Field(
        default=None, alias="schema", description="Of type json_schema. It is enforced."
    )
    description: str | None = setting("Of type json_schema; not used.")
    strict: bool | None = setting("Accepted and not used: a schema is always enforced.")


class TextConfig(RequestModel):
    """The form of the text, and how long-winded it is."""

    format: TextFormat | None = None
    verbosity: Annotated[str, Field(max_length=32)] | None = setting(
        "Given to the model's chat template."
    )


_Tools = Annotated[list[ResponsesTool], Field(max_length=MAX_TOOLS)]
_ToolChoice = Annotated[
    Literal["none", "auto", "required"] | ChosenTool,
    one_message('must be "none", "auto", "required", or an object with a type'),
]


class PromptOfResponse(RequestModel):
    """What makes the prompt of a response: all that its tokens are counted of."""

    input: ResponsesInput | None = setting(
        "The conversation, or what is new of it behind `previous_response_id`. A string is a "
        "message of the user."
    )
    instructions: str | None = setting(
        "What the model is told before the conversation. Those of an earlier response do not count."
    )
    previous_response_id: Annotated[str, Field(max_length=128)] | None = setting(
        "A stored response: the conversation up to it, and its output, come before `input`."
    )
    tools: _Tools | None = setting("What the model may call.")
    tool_choice: _ToolChoice | None = setting(
        "null: auto. required, or a tool: the reply is a call, and its arguments follow the "
        "schema. none: the model does not see the tools."
    )
    parallel_tool_calls: bool | None = setting(
        "false: at most one call. null: true, but one call where `tool_choice` names the tool."
    )
    reasoning: ReasoningConfig | None = setting("How the model thinks, and how that is shown.")
    text: TextConfig | None = setting("The form of the text.")
    truncation: Literal["auto", "disabled"] | None = setting(
        "null: disabled. auto: a conversation that does not fit loses items from its beginning."
    )
    conversation: Any = setting("Refused: this server keeps responses, and no conversations.")

    def prompt_parts(self) -> Iterator[tuple[str, RequestModel]]:
        """The objects inside of these fields, each with its path."""
        for i, item in enumerate([] if isinstance(self.input, str) else self.input or ()):
            path = f"input[{i}]"
            yield path, item
            for name in ("content", "summary", "output"):
                yield from _parts(f"{path}.{name}", getattr(item, name))
        yield from tool_parts("tools", self.tools or ())
        if isinstance(self.tool_choice, ChosenTool):
            yield from choice_parts("tool_choice", self.tool_choice)
        for name in ("reasoning", "text"):
            part = getattr(self, name)
            if part is not None:
                yield name, part
        if self.text is not None and self.text.format is not None:
            yield "text.format", self.text.format


def _stored_unless_told(value: Any) -> Any:
    return True if value is None else value


class ResponsesRequest(PromptOfResponse, GenerationRequest):
    """Answer a conversation, or go on with one that is stored."""

    max_output_tokens: Count | None = other_name("max_tokens", "OpenAI's Responses")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = setting(
        "So many alternatives of each token, beside the text's logprobs."
    )
    store: Annotated[bool | None, BeforeValidator(_stored_unless_told)] = Field(
        default=True,
        description="null: true. The response can be retrieved, and gone on with by "
        "`previous_response_id`, until `--keep-streams-mb` or `--keep-streams-seconds` gives it "
        "up. false: nothing is kept.",
    )
    background: bool | None = setting(
        "true: without `stream`, the answer comes at once, as `queued`; a client that hangs up "
        "does not end the response."
    )
    max_tool_calls: int | None = setting(_NO_TOOLS_RUN)
    prompt: Any = setting("Refused: this server keeps no prompt templates.")
    moderation: Any = setting("Refused: this server moderates nothing.")
    context_management: Any = setting("Ignored, with a warning: nothing is compacted.")
    background_options: Any = setting("Ignored, with a warning: there is one queue.")
    access_programs: Any = setting("Ignored, with a warning: there are none.")
    image: Any = setting("Ignored, with a warning: images are not supported.")
    prompt_cache_key: str | None = setting(
        "Accepted and not used: whatever was computed before is found in any case."
    )
    prompt_cache_options: Any = setting(_FOR_OPENAI)
    prompt_cache_retention: str | None = setting(_FOR_OPENAI)
    safety_identifier: str | None = setting(_FOR_OPENAI)
    service_tier: str | None = setting(_FOR_OPENAI)
    client_metadata: Any = setting("Codex. Accepted and not used.")

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        yield from super().parts()
        yield from self.prompt_parts()


class CountInputRequest(PromptOfResponse):
    """A conversation whose tokens are counted."""

    model: str | None = setting("As in POST /v1/responses.")


def _parts(path: str, content: str | Sequence[Any] | None) -> Iterator[tuple[str, RequestModel]]:
    if content is not None and not isinstance(content, str):
        for j, part in enumerate(content):
            yield f"{path}[{j}]", part
