"""What may be done with a stream between two tokens. Each is made on the engine thread, and says so
among the events of the stream.

Owns what each does and when it may be done. Knows no wire.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine import SamplingSettings

from ..errors import RequestError, StreamStateError
from ..stream.job_run import JobRun
from ..stream.jobs import Controlled

Control = Callable[[JobRun], Controlled]


def pause(*, reason: str | None = None) -> Control:
    """It gives the engine away, and goes on with `resume` as if nothing had been. `reason`: why, if
    no client asked for it.
    """

    def work(run: JobRun) -> Controlled:
        if run.is_paused:
            raise StreamStateError("the stream is paused already")
        run.is_paused = True
        return run.control("pause", {} if reason is None else {"reason": reason})

    return work


def resume() -> Control:
    def work(run: JobRun) -> Controlled:
        if not run.is_paused:
            raise StreamStateError("the stream is running: only a paused one can be resumed")
        run.is_paused = False
        return run.control("resume", {})

    return work


def stop() -> Control:
    """It ends before the next token, also if it is paused."""

    def work(run: JobRun) -> Controlled:
        run.stop()
        run.is_paused = False
        return run.control("stop", {})

    return work


def rewind(n_tokens: int) -> Control:
    """Take so many tokens back. They come again unless something else changes."""

    def work(run: JobRun) -> Controlled:
        n_most = run.stream.mark()
        if n_tokens > n_most:
            raise RequestError(
                f"tokens must be at most {n_most}, the tokens so far, not {n_tokens}",
                param="tokens",
            )
        run.stream.rewind(n_tokens)
        return run.control("rewind", {"tokens": n_tokens}, goes_back=True)

    return work


def inject(token_ids: Sequence[int], *, action: str = "inject", text: str = "") -> Control:
    """The next tokens are these."""

    def work(run: JobRun) -> Controlled:
        run.stream.inject(token_ids)
        said = {"text": text} if text else {}
        return run.control(action, {**said, "token_ids": list(token_ids)})

    return work


def force(token_id: int) -> Control:
    """The next token is this one."""

    def work(run: JobRun) -> Controlled:
        run.stream.force(token_id)
        return run.control("force", {"token_id": token_id})

    return work


def set_settings(
    changed: Callable[[SamplingSettings], SamplingSettings], said: dict[str, Any]
) -> Control:
    """`changed`: of the settings in force; `said`: what is told of it."""

    def work(run: JobRun) -> Controlled:
        run.stream.set(changed(run.stream.settings))
        return run.control("set", {"settings": said})

    return work


def ban(token_ids: Sequence[int], strings: Sequence[str]) -> Control:
    """From now on these do not come."""

    def work(run: JobRun) -> Controlled:
        run.stream.ban(token_ids, strings)
        return run.control("ban", {"token_ids": list(token_ids), "strings": list(strings)})

    return work


def extend(max_tokens: int) -> Control:
    """The most tokens of the completion are now so many."""

    def work(run: JobRun) -> Controlled:
        run.stream.extend(max_tokens)
        return run.control("extend", {"max_tokens": max_tokens})

    return work
