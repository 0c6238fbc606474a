"""Where the messages of a prompt begin, from its token ids alone.

Owns that reading: chat templates open every message with the same control token, as they open the
reply. Knows no cache.
"""

from collections.abc import Sequence

from ..errors import EngineError
from ..text.tokenizer import Tokenizer
from .prompt import ChatPrompt
from .template.template import ChatTemplate

# Where the next prompt may differ: at the reply, at the message before it, and at those before
# that, which an agent's results of several tools are.
_N_LAST = 4


def turn_opener(template: ChatTemplate | None, tokenizer: Tokenizer) -> int | None:
    """The control token with which the template opens a message; None if there is none."""
    if template is None:
        return None
    message = {"role": "user", "content": "Hello"}
    try:
        closed, opened = (
            ChatPrompt.of(template, [message], add_generation_prompt=wanted).token_ids(tokenizer)
            for wanted in (False, True)
        )
    except EngineError:
        return None
    reply = opened[len(closed) :]
    if opened[: len(closed)] != closed or not reply or not tokenizer.is_control(reply[0]):
        return None
    return reply[0]


def turn_starts(prompt_ids: Sequence[int], opener: int | None) -> tuple[int, ...]:
    """The positions at which other prompts are likely to differ: where the second message begins,
    after what several conversations may share, and where the last ones do, the reply included.
    """
    starts = [at for at, token_id in enumerate(prompt_ids) if token_id == opener]
    _, *others = starts or [0]
    return tuple(dict.fromkeys((*others[:1], *others[-_N_LAST:])))
