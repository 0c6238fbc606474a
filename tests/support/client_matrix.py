"""Which client is tested with which feature, and where. docs/clients.md shows the table.

A cell is tested by test_client_matrix.py with the other clients (HERE), by a test of its own, or
has the reason why the client does not offer the feature.
"""

from typing import NamedTuple

FEATURES = ("stream", "tools", "schema", "reasoning", "cancel", "error", "logprobs")


class Absent(NamedTuple):
    """The client does not offer it."""

    why: str


class Elsewhere(NamedTuple):
    """A test of its own, below tests/."""

    file: str
    name: str


HERE = None
Cell = Absent | Elsewhere | None

_API = "server/api/"
_CLIENTS, _REPLAYED = f"{_API}test_clients.py", f"{_API}test_replayed_clients.py"
_PAGES, _MESSAGES = f"{_API}test_page_clients.py", f"{_API}test_anthropic_wire.py"
_NO_LOGPROBS = Absent("its answers have no place for them")
_TEXTS = Absent("it writes texts, not chats")
_PANEL = Absent("it has no panel for them")
_ALL: dict[str, Cell] = dict.fromkeys(FEATURES, HERE)


def _all_but(**absent: Cell) -> dict[str, Cell]:
    return {**_ALL, **absent}


def _only(why: str, **tests: Elsewhere) -> dict[str, Cell]:
    return {feature: tests.get(feature, Absent(why)) for feature in FEATURES}


MATRIX: dict[str, dict[str, Cell]] = {
    "openai, Python": _ALL,
    "openai, Node": _ALL,
    "anthropic, Python": _all_but(logprobs=_NO_LOGPROBS),
    "anthropic, TypeScript": _all_but(logprobs=_NO_LOGPROBS),
    "ollama, Python": _ALL,
    "ollama, JavaScript": _ALL,
    "httpx": _ALL,
    "curl": _ALL,
    "fetch": _ALL,
    "huggingface_hub": _ALL,
    "Vercel AI SDK": _all_but(logprobs=_NO_LOGPROBS),
    "langchain-openai": _all_but(reasoning=Absent("it reads no reasoning of other servers")),
    "langchain-anthropic": _all_but(logprobs=_NO_LOGPROBS),
    "langchain-ollama": _ALL,
    "pydantic-ai": _ALL,
    "smolagents": _all_but(
        reasoning=Absent("it reads text and calls only"),
        cancel=Absent("its streams cannot be closed"),
        logprobs=_NO_LOGPROBS,
    ),
    "litellm": {
        "stream": Elsewhere(_CLIENTS, "test_litellm_chats"),
        "tools": Elsewhere(_CLIENTS, "test_litellm_calls_tools"),
        "schema": Elsewhere(_CLIENTS, "test_litellm_gets_json"),
        "reasoning": HERE,
        "cancel": Absent("its streams cannot be closed"),
        "error": Elsewhere(_CLIENTS, "test_litellm_tells_errors_apart"),
        "logprobs": Elsewhere(_CLIENTS, "test_litellm_chats"),
    },
    "instructor": _all_but(
        stream=Elsewhere(_CLIENTS, "test_instructor_gets_objects"),
        tools=Elsewhere(_CLIENTS, "test_instructor_gets_objects"),
        schema=Elsewhere(_CLIENTS, "test_instructor_gets_objects"),
    ),
    "llm": {
        "stream": Elsewhere(_CLIENTS, "test_llm_chats_as_a_command"),
        "tools": Absent("its tools are Python of its user, chosen by the model alone"),
        "schema": Elsewhere(_CLIENTS, "test_llm_gets_json"),
        "reasoning": Absent("it shows no reasoning of other servers"),
        "cancel": Absent("a command is left by Ctrl-C"),
        "error": Elsewhere(_CLIENTS, "test_llm_chats_as_a_command"),
        "logprobs": Elsewhere(_CLIENTS, "test_llm_completes_with_alternatives"),
    },
    "lm-eval": _only(
        "it measures probabilities and whole texts",
        logprobs=Elsewhere(_CLIENTS, "test_lm_eval_scores_as_transformers_does"),
    ),
    "SillyTavern": {
        **_only("it is asked here for texts"),
        "stream": Elsewhere(_REPLAYED, "test_sillytavern_streams_a_text"),
        "logprobs": Elsewhere(
            _REPLAYED, "test_sillytavern_s_panel_has_one_token_with_its_alternatives_per_event"
        ),
        "tools": _TEXTS,
        "reasoning": _TEXTS,
    },
    "mikupad": {
        **_only("it has no such setting"),
        "stream": Elsewhere(_REPLAYED, "test_mikupad_completes_with_a_panel_and_branches"),
        "logprobs": Elsewhere(_REPLAYED, "test_mikupad_chats_with_a_panel"),
        "tools": _TEXTS,
        "reasoning": _TEXTS,
    },
    "logitloom": _only(
        "it grows trees of tokens", logprobs=Elsewhere(_REPLAYED, "test_logitloom_grows_a_tree")
    ),
    "llama.cpp's page": {
        **_only("its tests ask the built-in model for a chat"),
        "stream": Elsewhere(_PAGES, "test_the_page_of_llama_cpp_chats"),
        "logprobs": _PANEL,
    },
}
