"""The errors that the engine raises: one tree, so that a caller can translate them in one place.

EngineError
 ├─ ModelLoadError          a model directory cannot be used
 ├─ InvalidInputError       a prompt or a setting is wrong (also a ValueError)
 │   ├─ ContextLengthError  the prompt does not fit the context
 │   └─ NoTokenError        biases, bans and constraints leave no token to choose
 ├─ TemplateError           the chat template is missing, fails, or writes too much
 └─ NumericsError           the model produced NaN or infinite logits

An abort is not an error: the stream ends with `eos_reason` "aborted".
"""

_MAX_CHARACTERS = 2000


class EngineError(Exception):
    """Everything that the engine raises on purpose."""


class ModelLoadError(EngineError):
    """A model directory cannot be used. The message names file, tensor or key, and the reason.

    It is one line of bounded length without control characters, whatever the file contains.
    """

    def __init__(self, message: str) -> None:
        shown = message[:_MAX_CHARACTERS]
        if not shown.isprintable():
            shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
        super().__init__(shown)


class InvalidInputError(EngineError, ValueError):
    """A prompt, an option or a setting is wrong; `param` is its name in the engine."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextLengthError(InvalidInputError):
    """The prompt leaves no room for a completion."""

    def __init__(
        self,
        n_prompt: int,
        max_seq_len: int,
        *,
        param: str | None = "input_ids",
        at_least: bool = False,
    ) -> None:
        """`at_least`: `n_prompt` is a lower bound."""
        n_said = f"at least {n_prompt}" if at_least else str(n_prompt)
        super().__init__(
            # Clients look for these words: litellm maps them to an error class.
            f"this model's maximum context length is {max_seq_len} tokens; the prompt has "
            f"{n_said}, and at least one must be left for the completion",
            param=param,
        )
        self.n_prompt = n_prompt
        self.max_seq_len = max_seq_len


class TemplateError(EngineError):
    """The chat template is missing, fails on these messages, or writes too much."""


class NumericsError(EngineError):
    """The model's own logits hold NaN or infinity; the message says at which position.

    If only the settings spoil sound logits, that is an InvalidInputError.
    """


class NoTokenError(InvalidInputError):
    """Allowed and banned tokens, biases or a constraint leave no token to choose."""


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust has panicked, for which PyO3 raises a BaseException that
    cannot be imported. Uncaught it would end a thread or the event loop.
    """
    return type(error).__name__ == "PanicException"
