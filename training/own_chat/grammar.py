"""Expands text templates and keeps English right: choices, slots, articles, plurals, capitals.

Owns the template notation. Knows nothing of what is said.

In a template `{one|other|}` chooses (choices may nest), `<name>` is a slot, and `a~ ` is the
article that fits the next word. Sentences get their capitals at the end.
"""

import re
from collections.abc import Mapping, Sequence
from random import Random

_CHOICE = re.compile(r"\{([^{}]*)\}")
_SLOT = re.compile(r"<(\w+)>")
_ARTICLE = re.compile(r"\b([aA])~ (?=(\w+))")
_SENTENCE_START = re.compile(r"(^|[.!?]\"? |\n|: )(\"?)([a-z])")
_QUOTED_END = re.compile(r"[!?]\" $")

_UNMARKED_QUESTION = re.compile(
    r"\"((?:Who|Whose|What(?! a )|Why|Where|Is|Can|May|Shall|Would|Do(?! not)|Does|Did|Have|"
    r"Could)\b[^\".!?]*),\""
)

_VOWEL_SOUND = re.compile(r"(?!uni|use|uk|eu|one\b|once\b|ewe\b)[aeiou]|hour|honest|x-ray")

IRREGULAR_PLURALS = {
    "mouse": "mice",
    "goose": "geese",
    "wolf": "wolves",
    "calf": "calves",
    "leaf": "leaves",
    "elf": "elves",
    "thief": "thieves",
    "loaf": "loaves",
    "knife": "knives",
    "scarf": "scarves",
    "shelf": "shelves",
    "child": "children",
    "man": "men",
    "woman": "women",
    "snowman": "snowmen",
    "postman": "postmen",
    "fisherman": "fishermen",
    "sheep": "sheep",
    "deer": "deer",
    "reindeer": "reindeer",
    "fish": "fish",
    "goldfish": "goldfish",
    "starfish": "starfish",
    "clownfish": "clownfish",
    "jellyfish": "jellyfish",
    "pufferfish": "pufferfish",
    "angelfish": "angelfish",
    "moose": "moose",
    "bison": "bison",
    "squid": "squid",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "hero": "heroes",
}


def article(word: str) -> str:
    """The indefinite article that fits the sound at the beginning of a word."""
    return "an" if _VOWEL_SOUND.match(word.lower()) else "a"


def plural(noun: str) -> str:
    head, _, last = noun.rpartition(" ")
    if last in IRREGULAR_PLURALS:
        last = IRREGULAR_PLURALS[last]
    elif re.search(r"(s|x|z|ch|sh)$", last):
        last += "es"
    elif re.search(r"[^aeiou]y$", last):
        last = last[:-1] + "ies"
    else:
        last += "s"
    return f"{head} {last}".strip()


def choose(rng: Random, template: str) -> str:
    """Replaces every choice, innermost first."""
    while "{" in template:
        template = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)
    return template


def fill(rng: Random, template: str, slots: Mapping[str, str | Sequence[str]]) -> str:
    """Expands a template; a slot with several values takes one of them at each place."""

    def value(match: re.Match[str]) -> str:
        slot = slots[match[1]]
        return slot if isinstance(slot, str) else rng.choice(slot)

    text = _SLOT.sub(value, choose(rng, template))
    return polish(text)


def polish(text: str) -> str:
    """Settles articles, spaces and the capitals of sentences."""
    text = re.sub(r" +", " ", text).replace(" ,", ",").replace(" .", ".").strip()
    text = re.sub(r" ?\n ?", "\n", text)
    text = _ARTICLE.sub(
        lambda m: (article(m[2]) if m[1] == "a" else article(m[2]).title()) + " ", text
    )

    def capital(match: re.Match[str]) -> str:
        # After a question or a cry in quotes the sentence often goes on: "Who?" asked the owl.
        if _QUOTED_END.search(match[1]) or match[1] == ": ":
            return match[0]
        return match[1] + match[2] + match[3].upper()

    text = _SENTENCE_START.sub(capital, text)
    text = _UNMARKED_QUESTION.sub(r'"\1?"', text)
    return re.sub(r"\^(\"?)([a-zA-Z])", lambda m: m[1] + m[2].upper(), text)
