"""From a request to the jobs of the engine: one for each prompt.

Owns that a prompt has tokens of the vocabulary, and that what is asked for fits the context. Knows
no route: it is given what only a route can know.
"""

from collections.abc import Sequence
from dataclasses import replace

from engine import ContextLengthError, Engine, InvalidInputError, StreamOptions

from ..errors import RequestError
from ..schema.sampling import SamplingFields
from ..stream.jobs import CompletionJob
from .options import Options
from .sampling import check_token_ids, sampling_settings


def completion_jobs(
    engine: Engine,
    body: SamplingFields,
    options: Options,
    prompts: Sequence[Sequence[int]],
    *,
    stream: StreamOptions,
    prompt_param: str,
    default_max_tokens: int | None,
    token_by_token: bool = False,
    progress: bool = False,
) -> list[CompletionJob]:
    """One job for each prompt, with the settings of the body.

    `stream`: `options.stream`, with what the route adds. `default_max_tokens`: cut short by the
    context if need be; None means up to its end. What the request itself asks for must fit.
    Raises InvalidInputError and ContextLengthError.
    """
    vocab_size = engine.config.vocab_size
    for input_ids in prompts:
        _check_prompt(input_ids, vocab_size, param=prompt_param)
    default = None if options.fills_context else default_max_tokens
    budgets = [
        _budget(
            len(input_ids),
            options.max_tokens,
            default,
            max_seq_len=engine.max_seq_len,
            param=prompt_param,
        )
        for input_ids in prompts
    ]
    settings = sampling_settings(
        body,
        engine.default_settings,
        vocab_size=vocab_size,
        eos_token_ids=engine.eos_token_ids,
    )
    stream = replace(
        stream,
        stop_token_ids=(*engine.eos_token_ids, *(stream.stop_token_ids or ())),
        max_tokens_per_call=1 if token_by_token else None,
    )
    return [
        CompletionJob(
            index=0,
            input_ids=input_ids,
            settings=settings,
            options=replace(stream, max_new_tokens=budget),
            token_by_token=token_by_token,
            progress=progress,
            include_stop=options.include_stop,
            max_seconds=options.max_seconds,
        )
        for input_ids, budget in zip(prompts, budgets, strict=True)
    ]


def _check_prompt(input_ids: Sequence[int], vocab_size: int, *, param: str) -> None:
    if not input_ids:
        raise InvalidInputError("the prompt is empty: it needs at least one token", param=param)
    check_token_ids(input_ids, vocab_size, param=param)


def _budget(
    n_prompt: int, requested: int | None, default: int | None, *, max_seq_len: int, param: str
) -> int:
    """How many tokens to generate after a prompt of `n_prompt`."""
    room = max_seq_len - n_prompt
    if room <= 0:
        raise ContextLengthError(n_prompt, max_seq_len, param=param)
    if requested is None:
        return room if default is None else min(default, room)
    if requested > room:
        raise RequestError(
            # Begins like ContextLengthError, for clients that look for its words.
            f"this model's maximum context length is {max_seq_len} tokens; the request asks for "
            f"{n_prompt + requested}: {n_prompt} in the prompt, {requested} to generate",
            param=param,
            code="context_length_exceeded",
        )
    return requested
