"""openai-agents against a live server: an agent that calls a tool, whole and streamed, with and
without what the server stores; prints what it saw as one line of JSON.

usage: python with_openai_agents.py BASE_URL MODEL
"""

import asyncio
import json
import sys
from typing import Any, Literal

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.result import RunResultBase

URL, MODEL = sys.argv[1:]
set_tracing_disabled(True)
asked: list[str] = []


@function_tool  # type: ignore[untyped-decorator]
def clock(zone: Literal["UTC", "CET"]) -> str:
    """The time in a zone."""
    asked.append(zone)
    return "noon"


def agent(**settings: Any) -> Agent[None]:
    client = openai.AsyncOpenAI(base_url=URL, api_key="key", max_retries=0)
    return Agent(
        name="Clock",
        instructions="Tell the time.",
        model=OpenAIResponsesModel(model=MODEL, openai_client=client),
        tools=[clock],
        model_settings=ModelSettings(
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=0,
            extra_body={"stop": [".", "!", "?"]},
            **settings,
        ),
    )


def told(result: RunResultBase) -> dict[str, Any]:
    return {
        "text": result.final_output,
        "items": [item.type for item in result.new_items],
        "responses": len({response.response_id for response in result.raw_responses}),
        "tokens": sum(response.usage.output_tokens for response in result.raw_responses),
    }


async def main() -> None:
    seen: dict[str, Any] = {}
    question = "What time is it?"
    seen["whole"] = told(await Runner.run(agent(), question))
    streamed = Runner.run_streamed(agent(), question)
    deltas = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    seen["streamed"] = {**told(streamed), "deltas": "".join(deltas)}
    seen["stateless"] = told(await Runner.run(agent(store=False), question))
    stored = await Runner.run(agent(), question, auto_previous_response_id=True)
    seen["stored"] = told(stored)
    again = await Runner.run(agent(), "And now?", previous_response_id=stored.last_response_id)
    seen["again"] = told(again)
    seen["asked"] = asked
    print(json.dumps(seen))


asyncio.run(main())
