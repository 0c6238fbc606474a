"""Python clients, feature by feature, against a server whose replies are known; prints what each
saw as one line of JSON.

usage: python with_matrix.py BASE_URL MODEL
"""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "0"  # it would refuse to ask even this machine
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a list of prices

import anthropic
import httpx
import instructor
import litellm
import ollama
import openai
from huggingface_hub import InferenceClient
from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, Field
from pydantic_ai import direct
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from smolagents import OpenAIModel

URL, MODEL = sys.argv[1:]
ROOT = URL.removesuffix("/v1")
KEY = "key"
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
SIZE = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["size"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": CITY},
}
FORM = {"type": "json_schema", "json_schema": {"name": "size", "schema": SIZE}}
LONG = 400
Seen = dict[str, Any]
Features = dict[str, Callable[[], Any]]


class Size(BaseModel):
    """What a reply is parsed into."""

    model_config = ConfigDict(extra="forbid")
    size: int = Field(ge=1, le=9)


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def n_aborted() -> float:
    request = urllib.request.Request(f"{ROOT}/metrics", headers=HEADERS)
    with urllib.request.urlopen(request) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if 'soliton_completions_total{reason="aborted"}' in line]
    return float(found[0].split()[-1]) if found else 0.0


def cancelled(begin_and_leave: Callable[[], Any]) -> bool:
    """Whether the engine gave up a long text when the client left it."""
    before = n_aborted()
    begin_and_leave()
    for _ in range(100):
        if n_aborted() > before:
            return True
        time.sleep(0.05)
    return False


def refused(call: Callable[[], Any], status: Callable[[Any], Any]) -> list[Any]:
    """Status and sentence of a request for another model."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - every client has a class of its own
        return [status(error), str(error)]
    return [200, ""]


def first(pieces: Iterable[Any]) -> None:
    """Read a piece and leave."""
    iterator = iter(pieces)
    next(iterator)
    close: Callable[[], None] = iterator.close  # type: ignore[attr-defined]
    close()


def openai_python() -> Features:
    client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)

    def chat(text: str, **more: Any) -> Any:
        body: dict[str, Any] = {"model": MODEL, "messages": say(text), **more}
        return client.chat.completions.create(**body)

    def call() -> Any:
        (made,) = chat("call", tools=[TOOL]).choices[0].message.tool_calls
        return [made.function.name, json.loads(made.function.arguments)]

    def leave() -> None:
        with chat("long", stream=True, max_tokens=LONG) as stream:
            next(iter(stream))

    def thought() -> Any:
        message = chat("think").choices[0].message
        return [message.reasoning_content, message.content]

    return {
        "stream": lambda: [
            chunk.choices[0].delta.content or "" for chunk in chat("hello", stream=True)
        ],
        "tools": call,
        "schema": lambda: json.loads(chat("size", response_format=FORM).choices[0].message.content),
        "reasoning": thought,
        "cancel": lambda: cancelled(leave),
        "error": lambda: refused(lambda: chat("x", model="none"), lambda e: e.status_code),
        "logprobs": lambda: [
            entry.token for entry in chat("hello", logprobs=True).choices[0].logprobs.content
        ],
    }


def anthropic_python() -> Features:
    client = anthropic.Anthropic(base_url=ROOT, api_key=KEY, max_retries=0)

    def chat(text: str, **more: Any) -> Any:
        body = {"model": MODEL, "max_tokens": 200, "messages": say(text), **more}
        return client.messages.create(**body)

    def call() -> Any:
        tool = {"name": "weather", "description": "The weather.", "input_schema": CITY}
        (used,) = [b for b in chat("call", tools=[tool]).content if b.type == "tool_use"]
        return [used.name, used.input]

    def stream() -> list[str]:
        with client.messages.stream(model=MODEL, max_tokens=200, messages=say("hello")) as streamed:
            return list(streamed.text_stream)

    def leave() -> None:
        with client.messages.stream(model=MODEL, max_tokens=LONG, messages=say("long")) as streamed:
            next(iter(streamed.text_stream))

    def schema() -> Any:
        form = {"format": {"type": "json_schema", "schema": SIZE}}
        (block,) = chat("size", output_config=form).content
        return json.loads(block.text)

    def thought() -> Any:
        thinking, text = chat("think", thinking={"type": "enabled", "budget_tokens": 1024}).content
        return [thinking.thinking, text.text]

    return {
        "stream": stream,
        "tools": call,
        "schema": schema,
        "reasoning": thought,
        "cancel": lambda: cancelled(leave),
        "error": lambda: refused(lambda: chat("x", model="none"), lambda e: e.status_code),
    }


def ollama_python() -> Features:
    client = ollama.Client(host=ROOT, headers=HEADERS)

    def chat(text: str, **more: Any) -> Any:
        body: dict[str, Any] = {"model": MODEL, "messages": say(text), **more}
        return client.chat(**body)

    def call() -> Any:
        (made,) = chat("call", tools=[TOOL]).message.tool_calls
        return [made.function.name, made.function.arguments]

    def thought() -> Any:
        message = chat("think", think=True).message
        return [message.thinking, message.content]

    return {
        "stream": lambda: [part.message.content for part in chat("hello", stream=True)],
        "tools": call,
        "schema": lambda: json.loads(chat("size", format=SIZE).message.content),
        "reasoning": thought,
        "cancel": lambda: cancelled(
            lambda: first(chat("long", stream=True, options={"num_predict": LONG}))
        ),
        "error": lambda: refused(lambda: chat("x", model="none"), lambda e: e.status_code),
        "logprobs": lambda: [entry.token for entry in chat("hello", logprobs=True).logprobs],
    }


def plain(
    post: Callable[[dict[str, Any]], tuple[int, Any]],
    events: Callable[[dict[str, Any]], Iterator[str]],
) -> Features:
    """A client that knows no wire: `post` sends a body and reads JSON, `events` reads lines."""

    def message(text: str, **more: Any) -> Any:
        status, answer = post({"model": MODEL, "messages": say(text), **more})
        assert status == 200, answer
        return answer["choices"][0]

    def streamed() -> list[str]:
        lines = events({"model": MODEL, "messages": say("hello"), "stream": True})
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert data[-1] == "[DONE]"
        chunks = [json.loads(each) for each in data[:-1]]
        return [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]

    def call() -> Any:
        (made,) = message("call", tools=[TOOL])["message"]["tool_calls"]
        return [made["function"]["name"], json.loads(made["function"]["arguments"])]

    def thought() -> Any:
        said = message("think")["message"]
        return [said["reasoning_content"], said["content"]]

    def error() -> Any:
        status, answer = post({"model": "none", "messages": say("x")})
        return [status, answer["error"]["message"]]

    long = {"model": MODEL, "messages": say("long"), "stream": True, "max_tokens": LONG}
    return {
        "stream": streamed,
        "tools": call,
        "schema": lambda: json.loads(message("size", response_format=FORM)["message"]["content"]),
        "reasoning": thought,
        "cancel": lambda: cancelled(lambda: first(events(long))),
        "error": error,
        "logprobs": lambda: [
            entry["token"] for entry in message("hello", logprobs=True)["logprobs"]["content"]
        ],
    }


def httpx_client() -> Features:
    url = f"{URL}/chat/completions"

    def post(body: dict[str, Any]) -> tuple[int, Any]:
        answer = httpx.post(url, json=body, headers=HEADERS, timeout=60)
        return answer.status_code, answer.json()

    def events(body: dict[str, Any]) -> Iterator[str]:
        with httpx.stream("POST", url, json=body, headers=HEADERS, timeout=60) as answer:
            yield from answer.iter_lines()

    return plain(post, events)


def curl() -> Features:
    command = ["curl", "-sN", f"{URL}/chat/completions"]
    for name, value in HEADERS.items():
        command += ["-H", f"{name}: {value}"]

    def post(body: dict[str, Any]) -> tuple[int, Any]:
        words = [*command, "-w", "\n%{http_code}", "-d", json.dumps(body)]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        answer, _, status = out.rpartition("\n")
        return int(status), json.loads(answer)

    def events(body: dict[str, Any]) -> Iterator[str]:
        words = [*command, "-d", json.dumps(body)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield from (line.rstrip("\n") for line in process.stdout)
            finally:
                process.terminate()

    return plain(post, events)


def hugging_face() -> Features:
    client = InferenceClient(base_url=URL, api_key=KEY)

    def chat(text: str, **more: Any) -> Any:
        return client.chat_completion(say(text), **{"model": MODEL, **more})

    def call() -> Any:
        (made,) = chat("call", tools=[TOOL]).choices[0].message.tool_calls
        arguments = made.function.arguments
        return [made.function.name, json.loads(arguments)]

    def thought() -> Any:
        message = chat("think").choices[0].message
        return [message.reasoning, message.content]

    return {
        "stream": lambda: [
            chunk.choices[0].delta.content or "" for chunk in chat("hello", stream=True)
        ],
        "tools": call,
        "schema": lambda: json.loads(chat("size", response_format=FORM).choices[0].message.content),
        "reasoning": thought,
        "cancel": lambda: cancelled(lambda: first(chat("long", stream=True, max_tokens=LONG))),
        "error": lambda: refused(lambda: chat("x", model="none"), lambda e: e.response.status_code),
        "logprobs": lambda: [
            entry.token for entry in chat("hello", logprobs=True).choices[0].logprobs.content
        ],
    }


def lang_chain(chat: Any, other: Any, status: Callable[[Any], Any]) -> Features:
    """What its chat models have in common. `other`: one that names another model."""

    def call() -> Any:
        (made,) = chat.bind_tools([TOOL]).invoke("call").tool_calls
        return [made["name"], made["args"]]

    def schema() -> Any:
        return chat.with_structured_output(Size, method="json_schema").invoke("size").model_dump()

    return {
        "stream": lambda: [str(piece.text) for piece in chat.stream("hello")],
        "tools": call,
        "schema": schema,
        "cancel": lambda: cancelled(lambda: first(chat.stream("long"))),
        "error": lambda: refused(lambda: other.invoke("x"), status),
    }


def lang_chain_openai() -> Features:
    common: dict[str, Any] = {"base_url": URL, "api_key": KEY, "max_retries": 0}
    chat = ChatOpenAI(model=MODEL, max_tokens=LONG, **common)
    other = ChatOpenAI(model="none", **common)

    def tokens() -> list[str]:
        said = chat.bind(logprobs=True).invoke("hello").response_metadata["logprobs"]
        return [entry["token"] for entry in said["content"]]

    def thought() -> Any:
        """It reads reasoning of /v1/responses only."""
        model = ChatOpenAI(
            model=MODEL, use_responses_api=True, reasoning={"summary": "auto"}, **common
        )
        blocks = model.invoke("think").content_blocks
        return [blocks[0]["reasoning"], blocks[1]["text"]]

    return {
        **lang_chain(chat, other, lambda e: e.status_code),
        "reasoning": thought,
        "logprobs": tokens,
    }


def lang_chain_anthropic() -> Features:
    common: dict[str, Any] = {"base_url": ROOT, "api_key": KEY, "max_retries": 0}
    chat = ChatAnthropic(model=MODEL, max_tokens=LONG, **common)
    other = ChatAnthropic(model="none", max_tokens=LONG, **common)

    def thought() -> Any:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        said = ChatAnthropic(model=MODEL, max_tokens=2000, thinking=thinking, **common)
        blocks = said.invoke("think").content
        return [blocks[0]["thinking"], blocks[1]["text"]]

    return {**lang_chain(chat, other, lambda e: e.status_code), "reasoning": thought}


def lang_chain_ollama() -> Features:
    common: dict[str, Any] = {"base_url": ROOT, "client_kwargs": {"headers": HEADERS}}
    chat = ChatOllama(model=MODEL, num_predict=LONG, **common)
    other = ChatOllama(model="none", **common)

    def thought() -> Any:
        said = ChatOllama(model=MODEL, reasoning=True, **common).invoke("think")
        return [said.additional_kwargs["reasoning_content"], said.content]

    def tokens() -> list[str]:
        said = ChatOllama(model=MODEL, logprobs=True, **common).invoke("hello")
        return [entry["token"] for entry in said.response_metadata["logprobs"]]

    return {
        **lang_chain(chat, other, lambda e: e.status_code),
        "reasoning": thought,
        "logprobs": tokens,
    }


def pydantic_ai() -> Features:
    provider = OpenAIProvider(base_url=URL, api_key=KEY)
    models = {name: OpenAIChatModel(name, provider=provider) for name in (MODEL, "none")}

    def asked(text: str) -> Any:
        return [ModelRequest.user_text_prompt(text)]

    def reply(text: str, name: str = MODEL, **more: Any) -> ModelResponse:
        return direct.model_request_sync(models[name], asked(text), **more)

    def part(response: ModelResponse, kind: str) -> Any:
        return next(part for part in response.parts if part.part_kind == kind)

    def call() -> Any:
        tool = ToolDefinition(name="weather", parameters_json_schema=CITY)
        parameters = ModelRequestParameters(function_tools=[tool])
        made = part(reply("call", model_request_parameters=parameters), "tool-call")
        return [made.tool_name, made.args_as_dict()]

    def schema() -> Any:
        parameters = ModelRequestParameters(
            output_mode="native", output_object=OutputObjectDefinition(json_schema=SIZE)
        )
        return json.loads(part(reply("size", model_request_parameters=parameters), "text").content)

    def stream() -> list[str]:
        with direct.model_request_stream_sync(models[MODEL], asked("hello")) as streamed:
            deltas = [getattr(event, "delta", None) or event for event in streamed]
            text = next(part for part in streamed.response.parts if part.part_kind == "text")
        return [*("" for _ in deltas), text.content]

    def leave() -> None:
        settings = OpenAIChatModelSettings(max_tokens=LONG)
        with direct.model_request_stream_sync(
            models[MODEL], asked("long"), model_settings=settings
        ) as streamed:
            next(iter(streamed))

    def thought() -> Any:
        said = reply("think")
        return [part(said, "thinking").content, part(said, "text").content]

    def tokens() -> list[str]:
        said = reply("hello", model_settings=OpenAIChatModelSettings(openai_logprobs=True))
        return [entry["token"] for entry in (said.provider_details or {})["logprobs"]]

    return {
        "stream": stream,
        "tools": call,
        "schema": schema,
        "reasoning": thought,
        "cancel": lambda: cancelled(leave),
        "error": lambda: refused(lambda: reply("x", "none"), lambda e: e.status_code),
        "logprobs": tokens,
    }


def smolagents() -> Features:
    def model(name: str) -> OpenAIModel:
        return OpenAIModel(name, api_base=URL, api_key=KEY, client_kwargs={"max_retries": 0})

    def messages(text: str) -> Any:
        return [{"role": "user", "content": [{"type": "text", "text": text}]}]

    def call() -> Any:
        (made,) = model(MODEL).generate(messages("call"), tools=[TOOL]).tool_calls
        return [made.function.name, json.loads(made.function.arguments)]

    return {
        "stream": lambda: [
            delta.content or "" for delta in model(MODEL).generate_stream(messages("hello"))
        ],
        "tools": call,
        "schema": lambda: json.loads(
            model(MODEL).generate(messages("size"), response_format=FORM).content
        ),
        "error": lambda: refused(
            lambda: model("none").generate(messages("x")), lambda e: e.status_code
        ),
    }


def lite_llm() -> Features:
    """What with_litellm.py does not ask, because it has no model that reasons."""

    def chat(text: str, **more: Any) -> Any:
        return litellm.completion(
            model=f"hosted_vllm/{MODEL}", messages=say(text), api_base=URL, api_key=KEY, **more
        )

    def thought() -> Any:
        message = chat("think").choices[0].message
        return [message.reasoning_content, message.content]

    def leave() -> None:
        stream = chat("long", stream=True, max_tokens=LONG)
        next(iter(stream))
        stream.close()

    return {"reasoning": thought, "cancel": lambda: cancelled(leave)}


def llm_command() -> Features:
    """What with_llm.py does not ask of it, for the same reason."""
    ask = [sys.executable, "-m", "llm", "openai", "endpoint", URL, "--key", KEY, "-m", MODEL]
    tool = 'def weather(city: str):\n    "The weather."\n    return f"rain over {city}"'

    def call() -> Any:
        """It runs the tool, and says so on the way to the answer."""
        words = [*ask, "--no-stream", "--functions", tool, "--td", "call"]
        told = subprocess.run(words, capture_output=True, text=True, check=True)
        assert told.stdout == "It rains.\n"
        name, arguments = re.findall(r"Tool call: (\w+)\((.*)\)", told.stderr)[0]
        return [name, ast.literal_eval(arguments)]

    def thought() -> Any:
        """It reads reasoning of /v1/responses only, and shows it beside the answer."""
        words = [*ask, "--responses", "think"]
        told = subprocess.run(words, capture_output=True, text=True, check=True)
        return [re.sub(r"\x1b\[\d*m", "", told.stderr).strip(), told.stdout.strip()]

    def leave() -> None:
        """As by Ctrl-C."""
        words = [*ask, "-o", "max_tokens", str(LONG), "long"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            process.stdout.read(1)
            process.send_signal(signal.SIGINT)

    return {"tools": call, "reasoning": thought, "cancel": lambda: cancelled(leave)}


def instructor_python() -> Features:
    """Without a `response_model` it passes on the answer as it came."""
    client = instructor.from_openai(
        openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0), mode=instructor.Mode.JSON_SCHEMA
    )

    def chat(text: str, *, model: str = MODEL, **more: Any) -> Any:
        return client.chat.completions.create(
            model=model, messages=say(text), max_retries=0, **{"response_model": None, **more}
        )

    def leave() -> None:
        with chat("long", stream=True, max_tokens=LONG) as stream:
            next(iter(stream))

    def thought() -> Any:
        message = chat("think").choices[0].message
        return [message.reasoning_content, message.content]

    return {
        "reasoning": thought,
        "cancel": lambda: cancelled(leave),
        "error": lambda: refused(lambda: chat("x", model="none"), lambda e: e.status_code),
        "logprobs": lambda: [
            entry.token for entry in chat("hello", logprobs=True).choices[0].logprobs.content
        ],
    }


CLIENTS: dict[str, Callable[[], Features]] = {
    "openai, Python": openai_python,
    "anthropic, Python": anthropic_python,
    "ollama, Python": ollama_python,
    "httpx": httpx_client,
    "curl": curl,
    "huggingface_hub": hugging_face,
    "langchain-openai": lang_chain_openai,
    "langchain-anthropic": lang_chain_anthropic,
    "langchain-ollama": lang_chain_ollama,
    "pydantic-ai": pydantic_ai,
    "smolagents": smolagents,
    "litellm": lite_llm,
    "llm": llm_command,
    "instructor": instructor_python,
}


def saw(feature: Callable[[], Any]) -> Any:
    try:
        return feature()
    except Exception as error:  # noqa: BLE001 - one feature must not hide the others
        return f"{type(error).__name__}: {error}"


print(
    json.dumps(
        {
            client: {feature: saw(see) for feature, see in features().items()}
            for client, features in CLIENTS.items()
        }
    )
)
