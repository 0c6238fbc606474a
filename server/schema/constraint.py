"""The wire of constraints: what the text must be, by the names of OpenAI and of other servers.

Owns names and types. Sizes and contents are checked by the engine, which compiles them.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from .parts import JsonObject, RequestModel, one_message
from .sampling import setting

MAX_CHOICES = 10_000

MAX_SCHEMA_LENGTH = 1024 * 1024

Schema = JsonObject
SchemaOrText = Annotated[
    Schema | Annotated[str, Field(max_length=MAX_SCHEMA_LENGTH)],
    one_message("must be a JSON schema: an object, or a string that holds it"),
]
Choices = Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]


class JsonSchemaFormat(RequestModel):
    """A schema with a name. It is always enforced, whatever `strict` says."""

    name: str | None = setting("Not used.")
    description: str | None = setting("Not used: the model does not see it.")
    schema_: Schema | None = Field(
        default=None, alias="schema", description="Without one: any JSON object."
    )
    strict: bool | None = setting("Not used: every schema is enforced.")


class ResponseFormat(RequestModel):
    """OpenAI's way to ask for JSON."""

    type: Literal["text", "json_object", "json", "json_schema"] = Field(
        description="TabbyAPI calls json_object json."
    )
    json_schema: JsonSchemaFormat | None = setting("With type json_schema.")
    schema_: Schema | None = Field(
        default=None, alias="schema", description="llama-server's place for a schema."
    )
    value: Schema | None = setting(
        "text-generation-inference's and huggingface_hub's place for it."
    )


class StructuredOutputs(RequestModel):
    """vLLM's way to ask for one kind of constraint."""

    json_: SchemaOrText | None = Field(default=None, alias="json", description="A JSON schema.")
    regex: str | None = setting("The whole text matches (syntax of Rust's regex crate).")
    choice: Choices | None = setting("The text is one of them.")
    grammar: str | None = setting("A grammar in llguidance's variant of Lark, or in GBNF.")
    json_object: bool | None = setting("Any JSON object.")
    whitespace_pattern: str | None = setting(
        "Beside a constraint for JSON: what may stand between two tokens of it, as a regex."
    )


class ConstraintFields(RequestModel):
    """At most one of these may ask for something."""

    response_format: ResponseFormat | None = setting(
        "OpenAI: JSON, or JSON of a schema. `text`: nothing."
    )
    structured_outputs: StructuredOutputs | None = setting("vLLM: one kind of constraint.")
    guided_json: SchemaOrText | None = setting("vLLM, older: a value of this JSON schema.")
    guided_regex: str | None = setting("vLLM, older: the text matches it as a whole.")
    guided_choice: Choices | None = setting("vLLM, older: one of these strings.")
    guided_grammar: str | None = setting(
        "vLLM, older: a grammar in Lark, as llguidance has it, or in GBNF."
    )
    guided_whitespace_pattern: str | None = setting(
        "vLLM, older: what may stand between two tokens of JSON, as a regex. Without one it is on "
        "one line, with a space behind each comma and colon."
    )
    json_schema: SchemaOrText | None = setting(
        "TabbyAPI, llama-server: a value of this JSON schema."
    )
    regex_pattern: str | None = setting("TabbyAPI: the text matches it as a whole.")
    regex: str | None = setting("SGLang: the text matches it as a whole.")
    grammar_string: str | None = setting(
        "TabbyAPI, SillyTavern: a grammar in Lark or GBNF. Empty: none."
    )
    grammar: str | None = setting("llama-server: a grammar in GBNF or Lark. Empty: none.")

    def constraint_parts(self) -> Iterator[tuple[str, RequestModel]]:
        """The objects inside of the fields, each with its path."""
        if self.response_format is not None:
            yield "response_format", self.response_format
            if self.response_format.json_schema is not None:
                yield "response_format.json_schema", self.response_format.json_schema
        if self.structured_outputs is not None:
            yield "structured_outputs", self.structured_outputs
