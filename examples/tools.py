"""A tool call that a grammar forces, and the reply to the tool's result."""

import json

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
model = client.models.list().data[0].id


def weather(city: str) -> str:
    return f"It is warm in {city}."


tool = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
messages = [{"role": "user", "content": "Is it warm in Rome?"}]

asked = client.chat.completions.create(
    model=model,
    messages=messages,
    tools=[tool],
    tool_choice="required",
    parallel_tool_calls=False,
    seed=6,
)
message = asked.choices[0].message
messages.append(message.model_dump(exclude_none=True))
for call in message.tool_calls:
    print("call:", call.function.name, call.function.arguments)
    result = weather(**json.loads(call.function.arguments))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

reply = client.chat.completions.create(
    model=model, messages=messages, max_completion_tokens=20, seed=7
)
print("reply:", reply.choices[0].message.content)
