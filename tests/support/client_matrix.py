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
_PAGES, _CHATS = f"{_API}test_page_clients.py", f"{_API}test_replayed_chats.py"
_AIDER = f"{_API}test_aider.py"
_LLAMA_UI = Elsewhere(_PAGES, "test_the_page_of_llama_cpp_has_the_feature")
_NO_LOGPROBS = Absent("its answers have no place for them")
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
    "langchain-openai": _ALL,
    "langchain-anthropic": _all_but(logprobs=_NO_LOGPROBS),
    "langchain-ollama": _ALL,
    "pydantic-ai": _ALL,
    "smolagents": _all_but(
        reasoning=Absent("it reads text and calls only"),
        cancel=Absent("closing its streams leaves the connection open"),
        logprobs=_NO_LOGPROBS,
    ),
    "litellm": {
        "stream": Elsewhere(_CLIENTS, "test_litellm_chats"),
        "tools": Elsewhere(_CLIENTS, "test_litellm_calls_tools"),
        "schema": Elsewhere(_CLIENTS, "test_litellm_gets_json"),
        "reasoning": HERE,
        "cancel": HERE,
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
        "tools": HERE,
        "schema": Elsewhere(_CLIENTS, "test_llm_gets_json"),
        "reasoning": HERE,
        "cancel": HERE,
        "error": Elsewhere(_CLIENTS, "test_llm_chats_as_a_command"),
        "logprobs": Elsewhere(_CLIENTS, "test_llm_completes_with_alternatives"),
    },
    "aider": {
        **_only("its edits are text"),
        "stream": Elsewhere(_AIDER, "test_aider_thinks_and_edits"),
        "reasoning": Elsewhere(_AIDER, "test_aider_thinks_and_edits"),
        "cancel": Elsewhere(_AIDER, "test_aider_that_is_interrupted_ends_the_work"),
        "error": Elsewhere(_AIDER, "test_aider_tells_errors"),
        "logprobs": _PANEL,
    },
    "lm-eval": _only(
        "it measures probabilities and whole texts",
        logprobs=Elsewhere(_CLIENTS, "test_lm_eval_scores_as_transformers_does"),
    ),
    "SillyTavern": {
        "stream": Elsewhere(_REPLAYED, "test_sillytavern_streams_a_text"),
        "logprobs": Elsewhere(
            _REPLAYED, "test_sillytavern_s_panel_has_one_token_with_its_alternatives_per_event"
        ),
        "tools": Elsewhere(_CHATS, "test_a_call_is_put_together_by_its_index"),
        "schema": Elsewhere(_CHATS, "test_a_quiet_reply_follows_a_schema"),
        "reasoning": Elsewhere(_CHATS, "test_reasoning_is_read_apart_from_the_reply"),
        "cancel": Elsewhere(_CHATS, "test_a_reply_that_is_stopped_ends_the_work"),
        "error": Elsewhere(_CHATS, "test_a_refusal_is_read_of_the_body"),
    },
    "mikupad": {
        "stream": Elsewhere(_REPLAYED, "test_mikupad_completes_with_a_panel_and_branches"),
        "logprobs": Elsewhere(_REPLAYED, "test_mikupad_chats_with_a_panel"),
        "cancel": Elsewhere(_PAGES, "test_mikupad_s_predictions_are_cancelled"),
        "error": Elsewhere(_PAGES, "test_mikupad_tells_that_it_was_refused"),
        "tools": Absent("it writes texts, and chats without tools"),
        "schema": Absent("it has grammars, and no schemas"),
        "reasoning": Absent("it shows one text"),
    },
    "logitloom": _only(
        "it grows trees of tokens", logprobs=Elsewhere(_REPLAYED, "test_logitloom_grows_a_tree")
    ),
    "llama.cpp's page": {
        "stream": Elsewhere(_PAGES, "test_the_page_of_llama_cpp_chats"),
        "tools": _LLAMA_UI,
        "schema": _LLAMA_UI,
        "reasoning": _LLAMA_UI,
        "cancel": _LLAMA_UI,
        "error": _LLAMA_UI,
        "logprobs": _PANEL,
    },
}
