"""Multiple choice by score: how likely each answer is after the question, computed once."""

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")

question = "Tom was very thirsty, so he drank some"
choices = [" water", " sand", " books"]

answer = client.post(
    "/score",
    body={"prompt": question, "continuations": choices},
    cast_to=dict,
)
for score in sorted(answer["scores"], key=lambda score: -score["mean_logprob"]):
    print(f"{score['mean_logprob']:7.2f} per token  {question}{score['text']}")
