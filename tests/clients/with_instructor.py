"""instructor against a live server: objects by forced tool calls and by JSON schema; prints what it
saw as one line of JSON.

usage: python with_instructor.py BASE_URL MODEL
"""

import json
import sys
from typing import Annotated, Any, Literal

import instructor
import openai
from pydantic import BaseModel, ConfigDict, Field

URL, MODEL = sys.argv[1:]
Word = Annotated[str, Field(max_length=12)]


class Animal(BaseModel):
    """Its size is bounded, so that every answer ends by itself."""

    model_config = ConfigDict(extra="forbid")
    name: Word
    legs: Annotated[int, Field(ge=0, le=8)]
    mood: Literal["happy", "sad"]
    friends: Annotated[list[Word], Field(max_length=2)]


ASK: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me about a frog."}],
    "max_tokens": 300,
    "temperature": 1,
    "seed": 7,
    "max_retries": 0,
}
seen: dict[str, Any] = {}
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    own = openai.OpenAI(base_url=URL, api_key="key", max_retries=0)
    client = instructor.from_openai(own, mode=mode)
    animal, answer = client.chat.completions.create_with_completion(response_model=Animal, **ASK)
    *_, last = client.chat.completions.create_partial(response_model=Animal, **ASK)
    seen[mode.value] = {
        "whole": animal.model_dump(mode="json"),
        "finish_reason": answer.choices[0].finish_reason,
        "partial": last.model_dump(mode="json"),
    }
print(json.dumps(seen))
