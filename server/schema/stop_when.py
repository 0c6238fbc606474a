"""The wire of `stop_when`. Ranges are the engine's to check."""

from pydantic import Field

from .parts import RequestModel

MAX_SECONDS = 86_400


class Repeat(RequestModel):
    """The text ends with the same tokens again and again."""

    window: int = Field(description="1 to 256: at most so many tokens are repeated.")
    times: int | None = Field(
        default=None, description="2 to 64; 3. So many times they stand one after another."
    )


class StopWhen(RequestModel):
    """The text ends before the first token at which one of these holds, not before `min_tokens`.
    `stop_detail` says which; the finish reason is `stop`, after `seconds` `length`.
    """

    entropy_gt: float | None = Field(
        default=None, description="0 to 100: the entropy of the raw distribution, in nats."
    )
    mean_logprob_lt: float | None = Field(
        default=None,
        description="-1000 to 0: the mean of the logprobs of all tokens so far, this one included.",
    )
    p_eos_gt: float | None = Field(
        default=None, description="0 to 1: the raw probability of the model's own end tokens."
    )
    repeat: Repeat | None = Field(default=None, description="A loop.")
    seconds: float | None = Field(
        default=None,
        gt=0,
        le=MAX_SECONDS,
        description="Since the first token was begun. The same as `t_max_predict_ms`.",
    )
