"""What Soliton reports of every token: `include` lists it, and the SDK keeps it."""

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
model = client.models.list().data[0].id

reply = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "A story about a frog, please."}],
    max_completion_tokens=12,
    seed=7,
    logprobs=True,
    top_logprobs=3,
    extra_body={"include": ["probs", "rank", "draft"]},
)
for token in reply.choices[0].logprobs.content:
    others = [other.token for other in token.top_logprobs if other.token != token.token]
    print(
        f"{token.token!r:12} model {token.p_raw:.3f}  drawn {token.p_sampled:.3f}"
        f"  rank {token.rank}  from {token.draft['origin']:6}  others {others}"
    )
