"""The wire of /tokenize, /detokenize, /tokenizer_info, /apply-template and /v1/token/*.

The fields of a request are those of vLLM, of llama-server (`content`) and, under /v1/token, of
TabbyAPI; an answer has the keys of all who share the route.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from .common import JsonObject, RequestModel, RequestWarning, ResponseModel, one_message
from .messages import Documents, Messages, message_parts
from .tools import Tools, tool_parts

MAX_CHARACTERS = 1024 * 1024
MAX_TOKEN_IDS = 256 * 1024

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
TokenIds = Annotated[list[int], Field(max_length=MAX_TOKEN_IDS, fail_fast=True)]


class TokenAnswer(ResponseModel):
    """The answers of all routes that take a body."""

    warnings: list[RequestWarning] | None = Field(
        default=None, description="Fields of the request that had no effect; absent without any."
    )


class TokenRequest(RequestModel):
    """What the bodies of all these routes have in common."""

    model: str | None = Field(default=None, description="null: the served one.")
    strict: bool | None = Field(
        default=None, description="true: a field without effect is an error, not one of `warnings`."
    )

    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        """The objects inside of the body that are used, each with its path."""
        yield from ()


class TemplateFields(TokenRequest):
    """What a chat request says of its prompt, beside the messages."""

    tools: Tools | None = None
    chat_template_kwargs: JsonObject | None = None
    documents: Documents | None = None
    add_generation_prompt: bool | None = Field(
        default=None, description="End with the beginning of a reply. null: true."
    )
    continue_final_message: bool | None = None


class TemplateRequest(TemplateFields):
    """Messages for the model's own chat template."""

    messages: Messages

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        yield from tool_parts(self.tools or ())
        yield from message_parts(self.messages)


class TokenizeRequest(TemplateFields):
    """One of `prompt`, `content` and `messages`; `tools` and the like belong to messages."""

    prompt: Text | None = None
    content: Text | None = Field(default=None, description="llama-server's name of `prompt`.")
    messages: Messages | None = Field(default=None, description="Rendered by the chat template.")
    add_special_tokens: bool | None = Field(
        default=None,
        description="Add what the tokenizer puts around a text, such as BOS. null: true with "
        "`prompt`, false with `content`. A chat template writes its own.",
    )
    add_special: bool | None = Field(
        default=None, description="llama-server's name of add_special_tokens."
    )
    parse_special: bool | None = Field(
        default=None,
        description="Read the text of a control token as that token. null: true. Never in messages",
    )
    return_token_strs: bool | None = Field(
        default=None, description="Answer with `token_strs` too."
    )
    with_pieces: bool | None = Field(
        default=None, description="Answer with {id, piece} instead of each id."
    )

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        if self.messages is not None:
            yield from tool_parts(self.tools or ())
            yield from message_parts(self.messages)


class TokenPiece(ResponseModel):
    """A token with its text, or with its bytes when they are no text by themselves."""

    id: int
    piece: str | list[int]


class Tokens(TokenAnswer):
    """Token ids. `token_strs`: the same as the vocabulary spells them."""

    count: int
    max_model_len: int
    tokens: list[int] | list[TokenPiece]
    token_strs: list[str] | None


class DetokenizeRequest(TokenRequest):
    """Token ids of this model."""

    tokens: TokenIds


class Detokenized(TokenAnswer):
    """The text, under the names that vLLM and llama-server give it."""

    prompt: str
    content: str


class TokenizerInfo(ResponseModel):
    """What tokenizer_config.json says of special tokens and template."""

    tokenizer_class: str
    vocab_size: int
    model_max_length: int
    bos_token: str | None
    bos_token_id: int | None
    eos_token: str | None
    eos_token_ids: list[int] = Field(description="Those that end a completion.")
    pad_token: str | None
    unk_token: str | None
    add_bos_token: bool
    chat_template: str | None


class RenderedPrompt(TokenAnswer):
    """The prompt text of some messages."""

    prompt: str


class InputTokens(TokenAnswer):
    """llama-server's answer."""

    input_tokens: int
    object: Literal["response.input_tokens"]


class TokenEncodeRequest(TokenRequest):
    """TabbyAPI's request: a text, or messages. One of `text` and `prompt`."""

    text: (
        Annotated[
            Text | Messages,
            one_message(
                f"must be a string of at most {MAX_CHARACTERS} characters, or a list of messages"
            ),
        ]
        | None
    ) = None
    prompt: Text | None = Field(default=None, description="Aphrodite's name of `text`.")
    add_bos_token: bool | None = Field(default=None, description="null: true.")
    encode_special_tokens: bool | None = Field(default=None, description="null: true.")

    @override
    def parts(self) -> Iterator[tuple[str, RequestModel]]:
        if isinstance(self.text, list):
            yield from message_parts(self.text)


class EncodedTokens(TokenAnswer):
    """TabbyAPI's answer."""

    tokens: list[int]
    length: int


class TokenDecodeRequest(TokenRequest):
    """TabbyAPI's request."""

    tokens: TokenIds
    decode_special_tokens: bool | None = Field(default=None, description="null: true.")


class DecodedTokens(TokenAnswer):
    """TabbyAPI's answer."""

    text: str
