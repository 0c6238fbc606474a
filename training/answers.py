"""Writes ANSWERS.md: every answer to the fixed prompts, with its verdict.

Owns the layout of that file, and how answers are quoted. Judges nothing itself.
"""

from pathlib import Path

from training.goals import ended, is_clean
from training.measures import Answer, Conversation, Measures, StoryAnswer


def write_answers(measures: Measures, path: Path) -> None:
    n_named = sum(story.named for story in measures.stories)
    n_ended = sum(map(ended, measures.chat_prompts))
    n_clean = sum(map(is_clean, measures.chat_prompts))
    n_stories, n_chats = len(measures.stories), len(measures.chat_prompts)
    sections = [
        "# What the built-in model answers",
        "Every answer to the fixed prompts of `training/prompts.py`, uncurated: one draw each "
        "with the settings that the model ships with, the seed being the prompt's number.",
        f"## Stories\n\n{n_named} of {n_stories} name their subject.",
        *(_story(number, story) for number, story in enumerate(measures.stories, start=1)),
        f"## Chat\n\n{n_ended} of {n_chats} end by themselves within {measures.chat_limit} tokens "
        f"an answer; {n_chats - n_clean} show control tokens or roles. Earlier answers of the same "
        "conversation are the model's own.",
        *(_chat(number, chat) for number, chat in enumerate(measures.chat_prompts, start=1)),
    ]
    path.write_text("\n\n".join(sections) + "\n", "utf-8")


def quoted(text: str) -> str:
    """The text as a Markdown block quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip("\n").split("\n"))


def how_it_ended(answer: Answer) -> str:
    return f"{answer.n_tokens} tokens, " + ("ended by itself" if answer.ended else "cut")


def _story(number: int, story: StoryAnswer) -> str:
    verdict = "named" if story.named else "not named"
    return (
        f"**{number}.** `{story.request}`\n\n{quoted(story.answer.text)}\n\n"
        f"{story.subject}: {verdict}; {how_it_ended(story.answer)}"
    )


def _chat(number: int, chat: Conversation) -> str:
    parts = [f"**{number}.**"]
    for turn in chat.turns:
        parts[-1] += f" `{turn.user}`"
        parts += [quoted(turn.answer.text), f"{how_it_ended(turn.answer)};"]
    parts[-1] = parts[-1].removesuffix(";")
    verdict = "" if is_clean(chat) else "; shows control tokens or roles"
    return "\n\n".join(parts) + verdict
