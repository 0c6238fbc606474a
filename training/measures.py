"""The results of an evaluation, as plain values.

Owns the shape of the measurements and the file that keeps them, so that the card can be written
again without measuring again. Knows nothing of how they were taken or how they are shown.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Loss:
    """A corpus's held-out loss and how much text it was measured on."""

    nats_per_token: float
    bits_per_byte: float
    n_tokens: int


@dataclass(frozen=True, slots=True)
class FormatLosses:
    """The weights in one format: their size, and the loss of each corpus."""

    name: str
    n_bytes: int
    losses: dict[str, Loss]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote in one go."""

    text: str
    n_tokens: int
    """Includes the stop token."""
    ended: bool
    """Whether by a stop token, not by the limit."""
    n_control: int
    """Control tokens other than the final stop token; a server does not show them."""


@dataclass(frozen=True, slots=True)
class Completion:
    prompt: str
    seed: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Turn:
    user: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Conversation:
    """The user's turns are fixed; the model answers each with its earlier answers before it."""

    turns: tuple[Turn, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class StoryAnswer:
    request: str
    subject: str
    named: bool
    seed: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Overlap:
    """The longest runs of words, sample by sample, that a training text has word for word."""

    n_samples: int
    median: float
    longest: int
    words: str
    """The longest run itself."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """The result of speculative decoding of greedy text."""

    drafter: str
    text: str
    draft_length: int
    n_tokens: int
    n_passes: int
    """Forward passes of the target."""
    n_proposed: int
    n_accepted: int

    @property
    def accepted_share(self) -> float:
        return self.n_accepted / max(1, self.n_proposed)

    @property
    def tokens_per_pass(self) -> float:
        return self.n_tokens / max(1, self.n_passes)


@dataclass(frozen=True, slots=True)
class Measures:
    """Everything that the model card says about the finished weights."""

    weights_sha256: dict[str, str]
    """By path in the model directory."""
    formats: tuple[FormatLosses, ...]
    """The format that ships comes first."""
    draft: dict[str, Loss]
    agreement: float | None
    """Share of held-out story tokens for which draft and target have the same most likely token."""
    speculation: tuple[Speculation, ...]
    overlap: Overlap
    completions: tuple[Completion, ...]
    chats: tuple[Conversation, ...]
    stories: tuple[StoryAnswer, ...]
    chat_prompts: tuple[Conversation, ...]
    chat_limit: int
    """Token limit of an answer to a chat prompt."""


_FILE = TypeAdapter(Measures)


def save_measures(measures: Measures, path: Path) -> None:
    path.write_bytes(_FILE.dump_json(measures, indent=2) + b"\n")


def load_measures(path: Path) -> Measures:
    return _FILE.validate_json(path.read_bytes())
