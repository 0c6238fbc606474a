"""What the default model should reach, and whether it does.

Owns the goals and the rules by which single answers are judged. Measures nothing itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from training.measures import Answer, Conversation, Measures, Speculation

STORIES = "tinystories"
MOST_NATS = 1.75
NAMING_SHARE = 0.8
ACCEPTED_SHARE = 0.6
ENDING_SHARE = 0.9
MOST_SHARED_WORDS = 30
DRAFT_LENGTH = 4

_TEMPLATE = re.compile(
    r"<\|[^|\n]*\|>|^\s*(?:user|assistant|system|human)\s*:", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Goal:
    words: str
    measured: str
    reached: bool


def names(text: str, subject: str) -> bool:
    """Whether the text has the subject as a word, in the singular or the plural."""
    forms = {subject, f"{subject}s", f"{subject}es"}
    if subject.endswith("y"):
        forms.add(f"{subject[:-1]}ies")
    if subject.endswith("f"):
        forms.add(f"{subject[:-1]}ves")
    if subject == "mouse":
        forms.add("mice")
    wanted = "|".join(re.escape(form) for form in sorted(forms))
    return re.search(rf"\b(?:{wanted})\b", text, re.IGNORECASE) is not None


def shows_template(answer: Answer) -> bool:
    """Whether it contains a control token, or a line that begins with a role as in a transcript."""
    return answer.n_control > 0 or _TEMPLATE.search(answer.text) is not None


def ended(conversation: Conversation) -> bool:
    """Whether every answer ended by itself."""
    return all(turn.answer.ended for turn in conversation.turns)


def is_clean(conversation: Conversation) -> bool:
    return not any(shows_template(turn.answer) for turn in conversation.turns)


def story_speculation(measures: Measures) -> Speculation | None:
    """The draft model's figures on stories, at the draft length of the goal."""
    for speculation in measures.speculation:
        of_draft = speculation.drafter == "draft model" and speculation.text == "stories"
        if of_draft and speculation.draft_length == DRAFT_LENGTH:
            return speculation
    return None


def goals(measures: Measures) -> list[Goal]:
    """Every goal that applies to the run; without held-out stories some do not."""
    return [*_story_goals(measures), *_answer_goals(measures), _overlap_goal(measures)]


def _story_goals(measures: Measures) -> Iterator[Goal]:
    shipped = measures.formats[0]
    if STORIES in shipped.losses:
        nats = shipped.losses[STORIES].nats_per_token
        wanted = f"held-out stories: at most {MOST_NATS} nats/token"
        yield Goal(wanted, f"{nats:.3f}", nats <= MOST_NATS)
    speculation = story_speculation(measures)
    if speculation is not None:
        share = speculation.accepted_share
        yield Goal(
            f"stories, greedy, draft length {DRAFT_LENGTH}: at least {ACCEPTED_SHARE:.0%} of the "
            "draft's tokens accepted",
            f"{share:.1%}",
            share >= ACCEPTED_SHARE,
        )


def _answer_goals(measures: Measures) -> Iterator[Goal]:
    n_stories = len(measures.stories)
    n_named = sum(story.named for story in measures.stories)
    wanted = _at_least(NAMING_SHARE, n_stories)
    yield Goal(
        f"at least {wanted} of {n_stories} requested stories name their subject",
        f"{n_named}",
        n_named >= wanted,
    )
    n_chats = len(measures.chat_prompts)
    n_ended = sum(map(ended, measures.chat_prompts))
    wanted = _at_least(ENDING_SHARE, n_chats)
    yield Goal(
        f"at least {wanted} of {n_chats} chat prompts: the answer ends by itself within "
        f"{measures.chat_limit} tokens",
        f"{n_ended}",
        n_ended >= wanted,
    )
    n_clean = sum(map(is_clean, measures.chat_prompts))
    yield Goal(
        "no answer to them shows control tokens or roles",
        f"{n_chats - n_clean} do",
        n_clean == n_chats,
    )


def _overlap_goal(measures: Measures) -> Goal:
    longest = measures.overlap.longest
    return Goal(
        f"{measures.overlap.n_samples} samples share no run of more than {MOST_SHARED_WORDS} "
        "words with the corpora",
        f"longest: {longest}",
        longest <= MOST_SHARED_WORDS,
    )


def _at_least(share: float, n: int) -> int:
    return round(share * n)
