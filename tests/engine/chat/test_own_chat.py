"""The generated chat data: repeatable, true to its requests, right in its facts and articles."""

import re
from itertools import pairwise
from random import Random

import pytest

from training.own_chat import own_chats
from training.own_chat.dialogues import SYSTEM_MESSAGES
from training.own_chat.facts import NUMBERS, fact
from training.own_chat.grammar import article, fill, plural
from training.own_chat.refusals import refusal
from training.own_chat.requests import ask_for, wish_for
from training.own_chat.stories import HERO_KINDS, SUBJECTS, THING_KINDS, Story, Wish, tell

SPECIAL_TOKEN = re.compile(r"<\|")
SENTENCE_END = re.compile(r"[.!?]\"?$")
SHINGLE_WORDS = 16

# By sound, not by rule: the words whose article does not follow their first letter.
VOWEL_LETTER_BUT_A = {"unicorn", "ukulele"}


@pytest.fixture(scope="module")
def chats() -> list[list[dict[str, str]]]:
    return own_chats(11, 1_500)


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    rng = Random(12)
    return [tell(rng, wish_for(rng)) for _ in range(2_000)]


def first_sentences(text: str, n: int) -> str:
    return " ".join(re.split(r"(?<=[.!?])\s+", text)[:n])


def test_the_same_seed_makes_the_same_chats() -> None:
    assert own_chats(3, 40) == own_chats(3, 40)
    assert own_chats(3, 40) != own_chats(4, 40)


def test_there_are_enough_subjects() -> None:
    assert len(SUBJECTS) >= 400


def test_articles_follow_the_sound() -> None:
    for noun in SUBJECTS:
        first = noun.split()[0]
        vowel = first[0] in "aeiouAEIOU" and first not in VOWEL_LETTER_BUT_A
        assert article(noun) == ("an" if vowel else "a"), noun
    assert article("hour") == "an"
    assert article("old unicorn") == "an"


def test_no_text_has_a_wrong_article_or_an_open_template(
    chats: list[list[dict[str, str]]],
) -> None:
    for chat in chats:
        for message in chat:
            content = message["content"]
            assert not re.search(r"[{}|<>~^]|  ", content), content
            if message["role"] == "assistant":
                assert not re.search(r"\b[Aa] (?!uni|uku|use|one)[aeiou]\w", content), content
                assert not re.search(r"\b[Aa]n (?!hour|honest)[^aeiouAEIOU\W]\w", content), content


@pytest.mark.parametrize(
    ("noun", "expected"),
    [("otter", "otters"), ("fox", "foxes"), ("puppy", "puppies"), ("toy mouse", "toy mice")],
)
def test_plurals(noun: str, expected: str) -> None:
    assert plural(noun) == expected


def test_choices_slots_articles_and_capitals() -> None:
    text = fill(Random(1), '{one|one} came a~ <what>. "is it?" asked <what>.', {"what": "owl"})
    assert text == 'One came an owl. "Is it?" asked owl.'


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ('"{Who is it}," said the fox.', '"Who is it?" said the fox.'),
        ('"{Do not worry}," said the fox.', '"Do not worry," said the fox.'),
        ('"{What are you}," said the fox.', '"What are you?" said the fox.'),
        ('"{What a day}," said the fox.', '"What a day," said the fox.'),
    ],
)
def test_questions_in_quotes_get_their_mark(template: str, expected: str) -> None:
    assert fill(Random(1), template, {}) == expected


@pytest.mark.parametrize("noun", sorted(SUBJECTS))
def test_every_subject_gets_its_story(noun: str) -> None:
    rng = Random(noun)
    wishes = [wish for wish in (Wish(hero=noun), Wish(thing=noun)) if is_castable(wish)]
    assert wishes
    for wish in wishes:
        text = tell(rng, wish).text.lower()
        names = re.compile(rf"\b({re.escape(noun)}|{re.escape(plural(noun))})\b", re.IGNORECASE)
        assert names.search(first_sentences(text, 2)), text
        assert len(names.findall(text)) >= 3, text


def is_castable(wish: Wish) -> bool:
    kinds = HERO_KINDS if wish.hero else THING_KINDS
    return any((wish.hero or wish.thing) in nouns for nouns in kinds.values())


def test_wished_parts_are_in_the_story(stories: list[Story]) -> None:
    for story in stories:
        wish, text = story.wish, story.text
        for subject in (wish.hero, wish.thing, wish.virtue, wish.name, wish.trait, wish.colour):
            assert subject.lower() in text.lower(), (wish, text)
        if wish.moral:
            assert text.endswith(story.moral)


def test_stories_are_of_the_asked_length(stories: list[Story]) -> None:
    lengths: dict[str, list[int]] = {"short": [], "usual": [], "long": []}
    for story in stories:
        lengths[story.wish.length].append(len(story.text.split()))
    mean = {length: sum(counts) / len(counts) for length, counts in lengths.items()}
    assert mean["short"] < 70 < 100 < mean["usual"] < 150 < mean["long"] < 200
    assert max(lengths["short"]) < min(lengths["long"])


def test_requests_name_what_is_wished() -> None:
    rng = Random(5)
    named = 0
    for _ in range(500):
        wish = wish_for(rng)
        request = ask_for(rng, wish).lower()
        asked_for = (wish.virtue,) if wish.virtue else wish.subjects
        named += all(
            noun.lower() in request or plural(noun).lower() in request for noun in asked_for
        )
    assert named > 480, "only a typing mistake may hide a subject"


def test_sums_are_right() -> None:
    rng = Random(6)
    value = {name: number for number, name in enumerate(NUMBERS)}
    seen = 0
    for _ in range(4_000):
        _, answer = fact(rng)
        match = re.fullmatch(r"(\w+) (\+|-|plus|minus) (\w+) is (\w+)\.", answer)
        if not match:
            continue
        one, sign, two, result = match.groups()
        a, b, c = (value.get(x.lower()) if not x.isdigit() else int(x) for x in (one, two, result))
        assert a is not None
        assert b is not None
        assert c == (a + b if sign in ("+", "plus") else a - b), answer
        seen += 1
    assert seen > 200


def test_answers_about_a_story_are_true_to_it(stories: list[Story]) -> None:
    for story in stories:
        assert story.name in story.text
        assert story.hero.lower() in story.text.lower()
        assert story.name in story.short or story.hero in story.short
        others = story.trouble + story.ending + story.next
        assert not re.search(r"<\w+>", others)


def test_follow_ups_name_the_told_hero() -> None:
    asked = 0
    for chat in own_chats(13, 1_500):
        told = ""
        for question, answer in pairwise(chat):
            if answer["role"] != "assistant":
                continue
            if re.match(r"(?i)who (was|is) in|who was the story", question["content"]):
                name = re.search(r"named (\w+)|^(\w+) the ", answer["content"])
                assert name, answer
                assert (name[1] or name[2]) in told, (told, answer)
                asked += 1
            told += answer["content"]
    assert asked > 10


def test_every_answer_ends_properly(chats: list[list[dict[str, str]]]) -> None:
    for chat in chats:
        for message in chat:
            if message["role"] != "user":
                assert SENTENCE_END.search(message["content"]), message


def test_texts_are_plain_ascii_without_special_tokens(chats: list[list[dict[str, str]]]) -> None:
    for chat in chats:
        for message in chat:
            assert message["content"].strip() == message["content"] != ""
            assert message["content"].isascii()
            assert not SPECIAL_TOKEN.search(message["content"])


def test_turns_alternate_after_an_occasional_system_message(
    chats: list[list[dict[str, str]]],
) -> None:
    with_system = 0
    for chat in chats:
        turns = chat
        if chat[0]["role"] == "system":
            with_system += 1
            assert chat[0]["content"] in SYSTEM_MESSAGES
            turns = chat[1:]
        assert [m["role"] for m in turns] == ["user", "assistant"] * (len(turns) // 2)
    assert 0.06 < with_system / len(chats) < 0.14


def test_refusals_are_asked_in_many_ways() -> None:
    rng = Random(8)
    questions = {refusal(rng)[0].lower().rstrip("?.!") for _ in range(3_000)}
    assert len(questions) > 1_500


def test_stories_differ(stories: list[Story]) -> None:
    assert len({story.text for story in stories}) == len(stories)
    seen: dict[int, int] = {}
    for story in stories:
        words = story.text.lower().split()
        for run in {
            hash(tuple(words[i : i + SHINGLE_WORDS])) for i in range(len(words) - SHINGLE_WORDS + 1)
        }:
            seen[run] = seen.get(run, 0) + 1
    shared = sum(count for count in seen.values() if count > 1)
    assert shared / sum(seen.values()) < 0.25, "too much of the stories is word for word the same"
