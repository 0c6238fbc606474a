"""LangChain: a streamed reply, and one that fits a JSON schema."""

from typing import Literal

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict


class Animal(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["bird", "fish", "frog"]


chat = ChatOpenAI(
    base_url="http://127.0.0.1:8000/v1",
    api_key="none",
    model="soliton-default",  # or what http://127.0.0.1:8000/v1/models lists
    max_tokens=60,
    seed=7,
)
for piece in chat.stream("A story about a frog, please."):
    print(piece.content, end="", flush=True)
print()

structured = chat.with_structured_output(Animal, method="json_schema")
print(structured.invoke("Name an animal."))
