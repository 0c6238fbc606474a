"""The wire of POST /v1/messages: Anthropic's request, beside the fields of every generation route.

Owns names and types. A block keeps the fields of all kinds of blocks, and its kind is checked where
it is read, so that an error names the one block at fault.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from .common import MAX_STOPS, GenerationRequest, JsonObject, RequestModel, StopString, one_message
from .messages import MAX_MESSAGES, MAX_PARTS
from .sampling import setting
from .tools import MAX_TOOLS, ToolName

_CACHED = "Accepted and not used: whatever was computed before is reused in any case."


class ResultBlock(RequestModel):
    """A part of what a tool gave back."""

    type: str = Field(
        description="text or tool_reference. Of an image or a document, the model reads only that "
        "there was one."
    )
    text: str | None = setting("Of type text.")
    tool_name: str | None = setting(
        "Of type tool_reference: a tool of `tools`, whose description the model reads here."
    )
    source: Any = setting("Of types image and document; not read.")
    cache_control: Any = setting(_CACHED)


def _text_or(kind: Any) -> Any:
    blocks = Annotated[list[kind], Field(max_length=MAX_PARTS, fail_fast=True)]
    return Annotated[
        str | blocks,
        one_message(f"must be a string or a list of at most {MAX_PARTS} blocks, each with a type"),
    ]


class Block(RequestModel):
    """A part of a message: text, thinking, a tool that was used, or its result."""

    type: str = Field(
        description="text, thinking, redacted_thinking, tool_use or tool_result. Images, documents "
        "and the results of Anthropic's own tools are not supported."
    )
    text: str | None = setting("Of type text.")
    thinking: str | None = setting("Of type thinking.")
    signature: str | None = setting("Accepted and not used.")
    data: str | None = setting("Of type redacted_thinking, which is left out.")
    id: str | None = setting("Of type tool_use.")
    name: str | None = setting("Of type tool_use.")
    input: JsonObject | None = setting("Of type tool_use.")
    tool_use_id: str | None = setting("Of type tool_result: the call that it answers.")
    content: _text_or(ResultBlock) | None = setting("Of type tool_result.")  # type: ignore[valid-type]
    is_error: bool | None = setting("Of type tool_result: the model reads `Error: ` before it.")
    citations: Any = setting("Accepted and not used.")
    cache_control: Any = setting(_CACHED)


class SystemBlock(RequestModel):
    """A part of the system prompt."""

    type: Literal["text"]
    text: str
    citations: Any = setting("Accepted and not used.")
    cache_control: Any = setting(_CACHED)


class AnthropicMessage(RequestModel):
    """One turn. Turns of one role in a row count as one."""

    role: Literal["user", "assistant", "system"]
    content: _text_or(Block)  # type: ignore[valid-type]


class AnthropicTool(RequestModel):
    """A tool that the client runs. Those that Anthropic runs are refused by their type."""

    name: ToolName
    type: str | None = setting("custom, or nothing.")
    description: str | None = None
    input_schema: JsonObject | None = setting("JSON schema of the input.")
    strict: bool | None = setting("true: the input follows the schema in every case.")
    defer_loading: bool | None = setting(
        "true: the model learns of the tool only by a `tool_reference` in the result of another."
    )
    cache_control: Any = setting(_CACHED)


class AnthropicToolChoice(RequestModel):
    """Which tools may be used, and whether one must be."""

    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = setting("With type tool.")
    disable_parallel_tool_use: bool | None = setting("true: at most one call.")


class Thinking(RequestModel):
    """Whether the model thinks before it answers, where its chat template leaves the choice."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = setting("No effect: the model thinks as long as it does.")
    display: str | None = setting(
        "omitted: thinking blocks are empty. Anything else: they hold all of it."
    )


class OutputFormat(RequestModel):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema", description="It is enforced.")


class OutputConfig(RequestModel):
    """The form of the answer, and how much effort goes into it."""

    format: OutputFormat | None = None
    effort: Annotated[str, Field(max_length=32)] | None = setting(
        "Given to the model's chat template as `reasoning_effort`."
    )


AnthropicMessages = Annotated[
    list[AnthropicMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
]
_System = Annotated[
    str | Annotated[list[SystemBlock], Field(max_length=MAX_PARTS, fail_fast=True)],
    one_message("must be a string or a list of blocks of type text"),
]
_Tools = Annotated[list[AnthropicTool], Field(max_length=MAX_TOOLS)]


class PromptOfMessages(RequestModel):
    """What makes the prompt of a conversation: all that its tokens are counted of."""

    messages: AnthropicMessages = Field(description="The conversation so far.")
    system: _System | None = setting("What the model is told before the conversation.")
    tools: _Tools | None = setting("What the model may use.")
    tool_choice: AnthropicToolChoice | None = setting(
        "null: auto. any, or a tool: the reply is a call, and its input follows the schema. none: "
        "the model does not see the tools."
    )
    thinking: Thinking | None = setting("null: disabled.")
    output_config: OutputConfig | None = setting("The form of the answer, and the effort.")
    output_format: OutputFormat | None = setting("The older place of `output_config.format`.")
    cache_control: Any = setting(_CACHED)

    def message_parts(self) -> Iterator[tuple[str, RequestModel]]:
        """The objects inside of these fields, each with its path."""
        for i, message in enumerate(self.messages):
            yield f"messages[{i}]", message
            yield from _blocks(f"messages[{i}].content", message.content)
        yield from _blocks("system", self.system)
        for i, tool in enumerate(self.tools or ()):
            yield f"tools[{i}]", tool
        for name in ("tool_choice", "thinking", "output_config", "output_format"):
            part = getattr(self, name)
            if part is not None:
                yield name, part
        if self.output_config is not None and self.output_config.format is not None:
            yield "output_config.format", self.output_config.format


class MessagesRequest(PromptOfMessages, GenerationRequest):
    """The next turn of a conversation."""

    stop_sequences: Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = setting(
        "The text ends before the first of these strings."
    )
    thread: Any = setting(
        "Refused, so that clients send the whole conversation: none is kept between requests."
    )

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        yield from super().parts()
        yield from self.message_parts()


class CountRequest(PromptOfMessages):
    """A conversation whose tokens are counted."""

    model: str | None = setting("As in POST /v1/messages.")


def _blocks(path: str, content: str | Sequence[Any] | None) -> Iterator[tuple[str, RequestModel]]:
    if content is None or isinstance(content, str):
        return
    for j, block in enumerate(content):
        yield f"{path}[{j}]", block
        yield from _blocks(f"{path}[{j}].content", getattr(block, "content", None))
