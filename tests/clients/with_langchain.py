"""langchain-openai against a live server; prints what it saw as one line of JSON.

usage: python with_langchain.py BASE_URL MODEL
"""

import json
import sys
from typing import Annotated, Any

from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, ConfigDict, Field

URL, MODEL = sys.argv[1:]
PROMPT = "A story about a frog, please."
SERVER: dict[str, Any] = {
    "base_url": URL,
    "api_key": "key",
    "model": MODEL,
    "max_retries": 0,
    "temperature": 0,
}


class Animal(BaseModel):
    """Its size is bounded, so that every answer ends by itself."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(max_length=12)]
    legs: Annotated[int, Field(ge=0, le=8)]


def error_of(**options: Any) -> list[Any]:
    try:
        ChatOpenAI(**{**SERVER, "max_tokens": 4, **options}).invoke(PROMPT)
    except Exception as error:  # noqa: BLE001 - its class is what the test asks for
        return [type(error).__name__, getattr(error, "code", None)]
    return ["none", None]


seen: dict[str, Any] = {}
chat = ChatOpenAI(**SERVER, max_tokens=16, logprobs=True, top_logprobs=2, stream_usage=True)
whole = chat.invoke(PROMPT)
pieces = list(chat.stream(PROMPT))
together = pieces[0]
for piece in pieces[1:]:
    together = together + piece
seen["chat"] = {
    "whole": whole.content,
    "tokens": [entry["token"] for entry in whole.response_metadata["logprobs"]["content"]],
    "finish_reason": whole.response_metadata["finish_reason"],
    "usage": whole.usage_metadata["total_tokens"],
    "streamed": together.content,
    "streamed_usage": together.usage_metadata["total_tokens"],
    "streamed_tokens": [
        entry["token"] for entry in together.response_metadata["logprobs"]["content"]
    ],
}

legacy = OpenAI(**SERVER, max_tokens=16, logprobs=2)
answer = legacy.generate(["Once upon a time"])
generation = answer.generations[0][0]
seen["completion"] = {
    "whole": generation.text,
    "tokens": generation.generation_info["logprobs"]["tokens"],
    "usage": answer.llm_output["token_usage"]["total_tokens"],
    "streamed": "".join(legacy.stream("Once upon a time")),
}

newer = ChatOpenAI(**SERVER, max_tokens=16, use_responses_api=True)
parsed = ChatOpenAI(**{**SERVER, "temperature": 1}, use_responses_api=True)
whole = newer.invoke(PROMPT)
pieces = list(newer.stream(PROMPT))
seen["responses"] = {
    "whole": "".join(block["text"] for block in whole.content),
    "streamed": "".join(block.get("text", "") for piece in pieces for block in piece.content),
    "usage": whole.usage_metadata["output_tokens"],
    "parsed": parsed.with_structured_output(Animal).invoke(PROMPT).model_dump(),
}

ask = ChatOpenAI(**{**SERVER, "temperature": 1, "seed": 7, "max_tokens": 300})
caller = ask.bind_tools([Animal], tool_choice="Animal", parallel_tool_calls=False)
called = caller.invoke(PROMPT)
pieces = list(caller.stream(PROMPT))
together = pieces[0]
for piece in pieces[1:]:
    together = together + piece
seen["tools"] = {
    "calls": [[call["name"], call["args"]] for call in called.tool_calls],
    "streamed": [[call["name"], call["args"]] for call in together.tool_calls],
    "finish_reason": called.response_metadata["finish_reason"],
}
structured = ask.with_structured_output(Animal, method="json_schema")
seen["json"] = {
    "whole": structured.invoke(PROMPT).model_dump(),
    "streamed": list(structured.stream(PROMPT))[-1].model_dump(),
}
seen["errors"] = {
    "model": error_of(model="none"),
    "context": error_of(max_tokens=1_000_000),
    "value": error_of(top_p=-1),
    "key": error_of(api_key="wrong"),
}
print(json.dumps(seen))
