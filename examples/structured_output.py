"""A reply that fits a JSON schema, as a pydantic model."""

from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field


class Animal(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["bird", "fish", "frog"]
    legs: int = Field(ge=0, le=8)


client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
model = client.models.list().data[0].id

reply = client.chat.completions.parse(
    model=model,
    messages=[{"role": "user", "content": "Invent an animal."}],
    response_format=Animal,
    seed=7,
)
print(reply.choices[0].message.parsed)
