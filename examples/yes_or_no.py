"""A yes or no by `watch`: one token is generated, and both answers are read in its place."""

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
model = client.models.list().data[0].id

WATCH = [{"name": "yes", "strings": ["Yes"]}, {"name": "no", "strings": ["No"]}]


def probability_of_yes(question: str) -> float:
    """Of the two answers, whatever else the model would rather say."""
    reply = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_completion_tokens=1,
        temperature=0,
        logprobs=True,
        extra_body={"watch": WATCH, "min_tokens": 1},
    )
    watched = reply.choices[0].logprobs.content[0].watch
    return watched["yes"] / (watched["yes"] + watched["no"])


for question in ("Is the sun warm? Yes or no?", "Is snow warm? Yes or no?"):
    print(f"{probability_of_yes(question):.3f}  {question}")
