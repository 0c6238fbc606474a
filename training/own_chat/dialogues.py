"""Puts exchanges together into dialogues.

Owns the mix of kinds and the follow-ups after a story.
"""

from collections.abc import Callable
from random import Random

from .facts import fact
from .grammar import article, fill
from .identity import about_itself
from .refusals import refusal
from .requests import ask_for, what_is_wanted, wish_for
from .small_talk import chat, goodbye, greeting, liked, thanks
from .stories import Story, Wish, tell
from .typed import typed

Messages = list[dict[str, str]]
Exchange = tuple[str, str]

SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "You tell short stories.",
    "You are a friendly storyteller.",
    "You are a helpful, honest and kind assistant.",
    "Be kind.",
    "Answer briefly.",
    "You are talking to a child.",
    "You are a helpful AI assistant. Answer the user's questions.",
    "You are Soliton's built-in model.",
)
SYSTEM_SHARE = 0.1

_SHORTER = (
    "{make it shorter|shorter please|can you make it shorter|that was too long, make it "
    "shorter|tell it shorter|in two sentences, please|give me a short version|can you tell that "
    "in two or three sentences|sum up the story}"
)
_WHO = (
    "{who was in it|who is in the story|who was in the story|who was the story about|tell me who "
    "was in it}"
)
_WHERE = (
    "{where did it happen|where was that|where did <name> live|where does the story happen|where "
    "was the <hero>'s home}"
)
_NAME = (
    "{what was the <hero>'s name|what was the name of the <hero>|what is the <hero> called|what "
    "do they call the <hero>}"
)
_ENDING = (
    "{how did it end|what happened at the end|how does the story end|what happened in the "
    "end|and how did it end}"
)
_TROUBLE = "{what was the problem|what went wrong|what was the trouble in the story|what was wrong}"
_NEXT = (
    "{what happened next|what happens next|and then|what happened after that|go on|tell me "
    "more|continue the story|then what}"
)
_MORAL = (
    "{what is the moral|what is the moral of the story|what can we learn from it|what did we "
    "learn|is there a moral}"
)
_HELPER = "{who helped|who helped <name>|who was the other one in the story|who was with <name>}"
_ANOTHER = (
    "{another one|one more|another story|tell me another one|another one please|tell me one "
    "more|again|more|one more story please|can I have another one|next}"
)
_INTROS = (
    "",
    "",
    "",
    "{Sure|Of course|Gladly|With pleasure}! {Here is a story about <what>.|}\n\n",
    "Here is a story about <what>.\n\n",
    "A story about <what>? {Gladly!|Here it is.}\n\n",
)


def own_chats(seed: int, n: int) -> list[Messages]:
    """Makes `n` dialogues; the same seed makes the same ones."""
    rng = Random(seed)
    return [_dialogue(rng) for _ in range(n)]


def _dialogue(rng: Random) -> Messages:
    make = rng.choices((_story_dialogue, _story_only, _chain, _single), (12, 12, 38, 38))[0]
    messages: Messages = []
    if rng.random() < SYSTEM_SHARE:
        messages.append({"role": "system", "content": rng.choice(SYSTEM_MESSAGES)})
    for question, answer in make(rng):
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    return messages


def _single(rng: Random) -> list[Exchange]:
    return [_short_exchange(rng)]


def _short_exchange(rng: Random) -> Exchange:
    makers: tuple[Callable[[Random], Exchange], ...] = (
        about_itself,
        refusal,
        fact,
        chat,
        greeting,
        thanks,
        goodbye,
    )
    return rng.choices(makers, (24, 32, 22, 14, 9, 2, 2))[0](rng)


def _chain(rng: Random) -> list[Exchange]:
    """Two to five turns of mixed small talk."""
    exchanges = [greeting(rng)] if rng.random() < 0.45 else []
    makers: tuple[Callable[[Random], Exchange], ...] = (about_itself, refusal, fact, chat)
    for _ in range(rng.randrange(1, 4)):
        exchanges.append(rng.choices(makers, (25, 30, 25, 20))[0](rng))
    if rng.random() < 0.12:
        exchanges.append(_told(rng, wish_for(rng))[0])
    if rng.random() < 0.35 or len(exchanges) < 2:
        exchanges.append(rng.choice((thanks, goodbye))(rng))
    return exchanges


def _story_only(rng: Random) -> list[Exchange]:
    if rng.random() < 0.1:
        return [_any_story(rng)]
    return [_told(rng, wish_for(rng))[0]]


def _any_story(rng: Random) -> Exchange:
    """A story that nobody named a subject for."""
    question = fill(
        rng,
        "{tell me a story|write a story|a story please|story|tell me a story please|can you tell "
        "me a story|I want a story|tell a {short|bedtime|nice|funny} story|can you write a "
        "{short|} story|please tell me a bedtime story|make up a story|write me a story|once "
        "upon a time|surprise me|you choose}",
        {},
    )
    wish = wish_for(rng)
    return typed(rng, question), tell(rng, wish).text


def _told(rng: Random, wish: Wish) -> tuple[Exchange, Story]:
    story = tell(rng, wish)
    intro = fill(rng, rng.choice(_INTROS), {"what": what_is_wanted(wish)})
    answer = f"{intro}\n\n{story.text}" if intro else story.text
    return (ask_for(rng, wish), answer), story


def _story_dialogue(rng: Random) -> list[Exchange]:
    """A story, then talk about it."""
    exchanges = [greeting(rng)] if rng.random() < 0.25 else []
    told, story = _told(rng, wish_for(rng))
    exchanges.append(told)
    follow_ups = rng.sample(_FOLLOW_UPS, rng.choice((1, 1, 2, 2, 3)))
    exchanges += [follow_up(rng, story) for follow_up in follow_ups]
    if rng.random() < 0.22:
        exchanges.append(_another(rng, story))
    if rng.random() < 0.3:
        exchanges.append(rng.choice((thanks, liked, goodbye))(rng))
    return exchanges


def _ask(rng: Random, question: str, answer: str, story: Story) -> Exchange:
    slots = {
        "name": story.name,
        "hero": story.hero,
        "a_hero": f"{article(story.hero)} {story.hero}",
        "friend": f"the {story.friend}",
        "a_friend": f"{article(story.friend)} {story.friend}",
        "where": story.where,
    }
    return typed(rng, fill(rng, question, slots)), fill(rng, answer, slots)


def _shorter(rng: Random, story: Story) -> Exchange:
    return _ask(rng, _SHORTER, story.short, story)


def _who(rng: Random, story: Story) -> Exchange:
    if rng.random() < 0.4:
        return _ask(
            rng,
            _NAME,
            "{the <hero>'s name was <name>|the <hero> was called <name>|the name was <name>}.",
            story,
        )
    if rng.random() < 0.3 and f"the {story.friend}" in story.text.lower():
        return _ask(
            rng,
            _HELPER,
            "{it was <friend>|the other one was <a_friend>|<name> was with <a_friend>}.",
            story,
        )
    answer = (
        "{it was about <a_hero> named <name>|the story was about <name> the <hero>|<name> the "
        "<hero> was in it}"
    )
    if story.friend in story.text.lower():
        answer = (
            "{it was about <a_hero> named <name> and <a_friend>|<name> the <hero> and <a_friend> "
            "were in it}"
        )
    return _ask(rng, _WHO, answer + ".", story)


def _where(rng: Random, story: Story) -> Exchange:
    if story.where not in story.text.lower():
        return _ending(rng, story)
    return _ask(rng, _WHERE, "{it happened <where>|<name> lived <where>|it was <where>}.", story)


def _ending(rng: Random, story: Story) -> Exchange:
    return _ask(
        rng,
        _ENDING,
        rng.choice(("{At the end|In the end}, ", "")) + _inner(story.ending, story),
        story,
    )


def _trouble(rng: Random, story: Story) -> Exchange:
    return _ask(
        rng,
        _TROUBLE,
        rng.choice(("The problem was that ", "")) + _inner(story.trouble, story),
        story,
    )


def _next(rng: Random, story: Story) -> Exchange:
    return _ask(rng, _NEXT, story.next, story)


def _moral(rng: Random, story: Story) -> Exchange:
    return _ask(rng, _MORAL, story.moral, story)


def _liked(rng: Random, story: Story) -> Exchange:
    return liked(rng)


def _another(rng: Random, story: Story) -> Exchange:
    """Another one about the same subject, or about something else by name."""
    if rng.random() < 0.4:
        wish = Wish(hero=story.wish.hero, thing=story.wish.thing)
        return typed(rng, fill(rng, _ANOTHER, {})), tell(rng, wish).text
    wish = wish_for(rng)
    what = what_is_wanted(wish)
    question = fill(
        rng,
        "{{now|and} {one|a story} about <what>|now tell me {one|a story} about <what>|"
        "another one about <what>|and one about <what>, please|can you tell one about <what>}",
        {"what": what},
    )
    return typed(rng, question), tell(rng, wish).text


def _inner(sentence: str, story: Story) -> str:
    """The sentence as the second half of another, its capital kept for a name alone."""
    if sentence.startswith(story.name):
        return sentence
    return sentence[0].lower() + sentence[1:]


_FOLLOW_UPS = (
    _shorter,
    _who,
    _who,
    _where,
    _ending,
    _trouble,
    _next,
    _next,
    _moral,
    _liked,
    _another,
)
