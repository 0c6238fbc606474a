"""Tells stories about what was asked for, and remembers what can be asked about them.

Owns the casting of a plot and the frame around it. Knows nothing of dialogues.
"""

import re
from dataclasses import dataclass
from random import Random

from . import words
from .grammar import fill, plural, polish
from .plots import HERO_PLOTS, Plot
from .thing_plots import (
    EVENT_PLOTS,
    FOOD_PLOTS,
    OBJECT_PLOTS,
    PLACE_PLOTS,
    SKY_PLOTS,
    VEHICLE_PLOTS,
)
from .word_list import spaced

HERO_KINDS = {
    "animal": words.LAND_ANIMALS,
    "sea animal": words.WATER_ANIMALS,
    "person": words.PEOPLE + words.MALE_PEOPLE + words.FEMALE_PEOPLE,
    "living thing": words.THING_HEROES,
}
THING_KINDS = {
    "object": words.OBJECTS,
    "vehicle": words.VEHICLES,
    "fruit": words.FRUITS,
    "dish": words.DISHES,
    "mass food": words.MASS_FOODS,
    "place": words.PLACES,
    "event": words.EVENTS,
    "sky": words.SKY,
}
SUBJECTS = frozenset(
    noun for nouns in (*HERO_KINDS.values(), *THING_KINDS.values()) for noun in nouns
)

NAMED_AT_LEAST = 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
FRIENDS = spaced(
    "badger hedgehog owl rabbit squirrel mole tortoise robin fox mouse goat duck beaver deer "
    "crow frog bear cat dog donkey goose hen horse lamb pig snail sparrow toad turtle wolf bee"
)
WATER_FRIENDS = spaced(
    "crab dolphin starfish seahorse turtle whale seal octopus jellyfish clownfish lobster walrus"
)
FRIEND_LOOKS = (
    "old",
    "kind",
    "little",
    "wise",
    "young",
    "friendly",
    "gray",
    "round",
    "quiet",
    "small",
)

_HERO_OPENINGS = (
    "{Once upon a time|Long ago|Once|Many years ago}, there {was|lived} <a_hero> named <name>. "
    "{<he> lived <at_home>.|<name>'s home was <at_home>.}",
    "{Once upon a time, |Long ago, |}<at_home> lived <a_hero> {named|called} <name>.",
    "{This is the story of|Let me tell you about} <name>, <a_hero> who lived <at_home>.",
    "<name> was <a_hero>. {<he> lived <at_home>|<he> had a {cozy|snug|small} home <at_home>}.",
    "There was once <a_hero> who lived <at_home>. {<his> name was <name>|Everyone called <him> "
    "<name>}.",
    "{Far, far away,|Not very long ago,|Not far from here,} <a_hero> named <name> lived <at_home>.",
)
_THING_OPENINGS = {
    "object": "{Once upon a time, there was|Once there was|There once was} <a_hero> named "
    "<name>, and this is the story of <name> and <a_thing>.|This is a story about "
    "<name> and <a_thing>. <name> was <a_hero> who lived <at_home>.|<name> was "
    "<a_hero>. This is how <he> and <a_thing> came to have an adventure <at_home>.",
    "vehicle": "{Once upon a time|Long ago}, there was <a_hero> named <name>, who had "
    "<a_thing>.|This is a story about <name> and <a_thing>. <name> was <a_hero> who "
    "lived <at_home>.|<name> was <a_hero>. {The thing <he> loved most was|<he> was "
    "very proud of} <his> <thing>.",
    "food": "{Once upon a time|Long ago}, there was <a_hero> named <name>. {More than anything, "
    "<he> loved <things>|There was nothing <he> liked more than <things>}.|This is a "
    "story about <name> and <a_thing>. <name> was <a_hero> who lived <at_home>.|<name> "
    "was <a_hero> who {dreamed of <things>|loved <things> very much}.",
    "place": "{Once upon a time|Long ago}, there was <a_hero> named <name>, who lived {not far "
    "from|near} <a_thing>.|This is a story about <name> and <a_thing>. <name> was "
    "<a_hero>.|<name> was <a_hero>. Near <his> home there was <a_thing>.",
    "event": "{Once upon a time|Long ago}, there was <a_hero> named <name>. {Soon there would be "
    "<a_thing>|Everyone was getting ready for <a_thing>}.|This is a story about <name> "
    "and <a_thing>. <name> was <a_hero> who lived <at_home>.",
    "sky": "{Once upon a time|Long ago}, there was <a_hero> named <name>, who {liked to look "
    "at|often thought about} <the_thing>.|This is a story about <name> and <the_thing>. "
    "<name> was <a_hero> who lived <at_home>.",
}
_HABITS = (
    "{Every morning|Each day}, <N> {had a good breakfast|said hello to the sun|hummed a little "
    "tune}.",
    "<N> liked {to look at the clouds|warm days|to laugh|to tell jokes}.",
    "{<he> had a soft blanket and a blue cup|<his> home was small but warm}.",
    "{Everyone around knew <him>|<he> was known for <his> funny hat}.",
    "",
    "",
)
_LONG = (
    "{But first there was lunch|They had a rest}. <N> {had bread and cheese|ate an apple}, and "
    '{the wind played with the leaves|a bird sang above}. "{What a day|This is quite an '
    'adventure}," said <hero>. {It was not over yet|And there was more to come}.',
    "{For a while it was very quiet|Nobody spoke for a moment}. {A butterfly passed by|A cloud "
    'hid the sun}. <hero> {took a deep breath|scratched <his> head}. "{Now I understand|One '
    'thing after another}," <he> said.',
    "<N> told {the whole story to everyone|all the neighbors}. {They asked many questions|They "
    "listened with open mouths}, and <hero> {answered them all|had to tell it three times}.",
)
_CLOSINGS = (
    "",
    "",
    "",
    "The end.",
    "{It had been a good day|What a day it had been}.",
    "That night, <hero> slept {very well|with a smile}.",
    "And <name> never forgot {that day|it}.",
    "{<name> was happy|<hero> felt warm inside}.",
)
_NEXT = (
    "{The next day|In the morning}, <N> and <friend> met again. {They had a big breakfast "
    "together|They went for a walk} and {laughed about what had happened|talked about it all}. "
    "{Then they made a plan for a new adventure|<hero> was glad to have such a friend}.",
    "{After that|A week later}, <hero> {gave a small party|invited everyone}. <friend> {brought "
    "a cake|played music}, and they {danced until late|told the story to all the guests}. <N> "
    "{was very happy|had never been so happy}.",
    "{The next day|Later} it {rained|was sunny}. <hero> {visited|went to see} <friend> {and "
    "brought a small gift|with a basket of good things}. They {sat together|had tea} and {were "
    "glad|told each other stories}.",
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a story was asked to be; empty parts are free."""

    hero: str = ""
    thing: str = ""
    friend: str = ""
    trait: str = ""
    colour: str = ""
    name: str = ""
    virtue: str = ""
    moral: bool = False
    length: str = "usual"

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.hero, self.thing, self.friend, self.virtue)))


@dataclass(frozen=True, slots=True)
class Story:
    """A told story and the true answers about it."""

    wish: Wish
    text: str
    short: str
    hero: str
    name: str
    friend: str
    where: str
    trouble: str
    ending: str
    moral: str
    next: str


@dataclass(frozen=True, slots=True)
class Cast:
    """Who and what is in a story, as the slots of its templates."""

    hero: str
    name: str
    friend: str
    where: str
    slots: dict[str, str | tuple[str, ...]]


def kind_of(noun: str, kinds: dict[str, tuple[str, ...]]) -> str:
    return next(kind for kind, nouns in kinds.items() if noun in nouns)


def tell(rng: Random, wish: Wish) -> Story:
    """Tells until the story keeps to the wish; most first tellings do."""
    while True:
        story = _tell_once(rng, wish)
        if _keeps_to(wish, story.text):
            return story


def _keeps_to(wish: Wish, text: str) -> bool:
    """Every subject is named at once and often enough, and so are trait and colour."""
    begin = " ".join(_SENTENCE_END.split(text)[:2])
    often = NAMED_AT_LEAST - (wish.length == "short")
    return (
        all(_times_named(noun, text) >= often for noun in wish.subjects)
        and all(_times_named(noun, begin) for noun in wish.subjects)
        and all(_times_named(word, text) for word in (wish.trait, wish.colour) if word)
    )


def _times_named(noun: str, text: str) -> int:
    return len(
        re.findall(rf"\b({re.escape(noun)}|{re.escape(plural(noun))})\b", text, re.IGNORECASE)
    )


def _tell_once(rng: Random, wish: Wish) -> Story:
    cast = _cast(rng, wish)
    plot = rng.choice(_plots_for(wish, cast.hero))
    slots = cast.slots

    def tell_of(template: str) -> str:
        return fill(rng, template, slots)

    moral = tell_of(plot.moral)
    if wish.length == "short":
        begun = slots | {"who": (cast.name, f"the {cast.hero}")}
        close = "{<hero> was {glad|happy}|<hero> never forgot it|It was a good day for <hero>}."
        text = fill(rng, f"{_opening(rng, wish)} {_introduced(plot.short)} {close}", begun)
    else:
        text = tell_of(_body(rng, wish, plot))
    if wish.virtue:
        text += tell_of(
            f" {{And that is what {wish.virtue} {{is|means}}|This is how <name> learned about "
            f"{wish.virtue}}}."
        )
    if wish.moral:
        text += (
            "\n\n"
            + rng.choice(("The moral of the story: ", "The moral is: ", "Remember: "))
            + moral
        )
    elif rng.random() < 0.12:
        text += " " + moral
    return Story(
        wish=wish,
        text=polish(text),
        short=tell_of(_introduced(plot.short)),
        hero=cast.hero,
        name=cast.name,
        friend=cast.friend,
        where=cast.where,
        trouble=tell_of(plot.trouble),
        ending=tell_of(plot.ending),
        moral=moral,
        next=tell_of(rng.choice(_NEXT)),
    )


def _introduced(short: str) -> str:
    """The friend is met for the first time in a short version too."""
    return short if "<a_friend>" in short else short.replace("<friend>", "<a_friend>", 1)


def _body(rng: Random, wish: Wish, plot: Plot) -> str:
    first = [_opening(rng, wish)]
    if wish.trait:
        first.append(words.TRAITS[wish.trait])
    elif not wish.thing:
        first.append(rng.choice(_HABITS))
    middle = list(plot.middle)
    end = [*plot.end, rng.choice(_CLOSINGS)]
    if wish.length == "long":
        middle.append("\n\n" + _LONG[rng.randrange(2)])
        end.insert(1, _LONG[2])
    cut = rng.randrange(2, len(plot.middle))
    joint = rng.choice((" ", "\n\n"))
    paragraphs = [
        " ".join(first),
        " ".join(middle[:cut]) + joint + " ".join(middle[cut:]),
        " ".join(end),
    ]
    return "\n\n".join(paragraphs)


def _opening(rng: Random, wish: Wish) -> str:
    if wish.friend:
        return (
            "{This is a story about <a_hero> named <name> and a~ <friend_noun>. They lived "
            "<at_home>.|Once upon a time, there was <a_hero> named <name>. Not far away there "
            "was a~ <friend_noun>.|<at_home> lived <a_hero> named <name> and a~ <friend_noun>.}"
        )
    if wish.virtue:
        return (
            f"This is a story about {wish.virtue}. {rng.choice(_HERO_OPENINGS)} {{<he> {{did not "
            f"know much about|had never thought about}} {wish.virtue}|One day <he> would learn "
            f"what {wish.virtue} is}}."
        )
    if wish.thing:
        kind = kind_of(wish.thing, THING_KINDS)
        kind = "food" if kind in ("fruit", "dish", "mass food") else kind
        return "{" + _THING_OPENINGS[kind] + "}"
    return rng.choice(_HERO_OPENINGS)


def _plots_for(wish: Wish, hero: str) -> tuple[Plot, ...]:
    if not wish.thing:
        return tuple(p for p in HERO_PLOTS if hero not in words.WATER_ANIMALS or not p.on_land)
    kind = kind_of(wish.thing, THING_KINDS)
    if kind == "object":
        heavy = wish.thing in words.HEAVY_OBJECTS
        return tuple(p for i, p in enumerate(OBJECT_PLOTS) if not heavy or i not in (0, 2, 7))
    if kind == "fruit":
        return FOOD_PLOTS[:2] + FOOD_PLOTS[3:]
    if kind == "place" and wish.thing in words.WET_PLACES:
        return PLACE_PLOTS[:2] + PLACE_PLOTS[3:]
    return {
        "vehicle": VEHICLE_PLOTS,
        "dish": FOOD_PLOTS,
        "mass food": FOOD_PLOTS,
        "place": PLACE_PLOTS,
        "event": EVENT_PLOTS,
        "sky": SKY_PLOTS,
    }[kind]


def _cast(rng: Random, wish: Wish) -> Cast:
    hero = wish.hero or rng.choice(("girl", "boy", rng.choice(FRIENDS)))
    female = hero in words.FEMALE_PEOPLE + words.FEMALE_ANIMALS
    male = hero in words.MALE_PEOPLE + words.MALE_ANIMALS
    girl = female or (not male and rng.random() < 0.5)
    is_person = kind_of(hero, HERO_KINDS) == "person" if hero in SUBJECTS else False
    if wish.name and not (female or male):
        girl = wish.name in words.GIRLS or wish.name in words.PET_GIRLS
    name = wish.name or rng.choice(
        (words.GIRLS if girl else words.BOYS)
        if is_person
        else (words.PET_GIRLS if girl else words.PET_BOYS)
    )
    in_water = hero in words.WATER_ANIMALS and not wish.thing
    friend = wish.friend
    while friend in ("", hero, wish.thing):
        friend = rng.choice(WATER_FRIENDS if in_water else FRIENDS)
    at_home, home = rng.choice(words.WATER_HOMES if in_water else words.LAND_HOMES)
    looks = words.COLOURS if hero in words.THING_HEROES else words.LOOKS
    look = wish.trait or rng.choice(("", "", rng.choice(looks), rng.choice(tuple(words.TRAITS))))
    if hero in words.MALE_PEOPLE + words.FEMALE_PEOPLE and not wish.trait:
        look = rng.choice(("", "little")) if hero in ("girl", "boy") else ""
    a_hero = f"a~ {look} {hero}"
    thing = wish.thing
    is_mass = thing in words.MASS_FOODS
    a_thing = f"some {thing}" if is_mass else f"a~ {wish.colour} {thing}"
    if thing in words.SKY:
        a_thing = f"the {thing}"
    young = hero in ("girl", "boy")
    who = f"a~ {look} {hero} named {name}"
    pronouns = ("she", "her", "her", "herself") if girl else ("he", "him", "his", "himself")
    slots: dict[str, str | tuple[str, ...]] = {
        "hero": f"the {hero}",
        "a_hero": a_hero,
        "name": name,
        "N": (name, name, f"the {hero}"),
        "who": who if young else (who, f"{name} the {hero}"),
        "he": pronouns[0],
        "him": pronouns[1],
        "his": pronouns[2],
        "himself": pronouns[3],
        "friend": f"the {friend}",
        "friend_noun": friend,
        "a_friend": f"the {friend}" if wish.friend else f"a~ {rng.choice(FRIEND_LOOKS)} {friend}",
        "at_home": at_home,
        "home": f"the {home}",
        "went": "swam" if in_water else "went",
        "thing": thing,
        "things": thing if is_mass else plural(thing) if thing else "",
        "a_thing": a_thing,
        "the_thing": f"the {thing}",
    }
    return Cast(hero, name, friend, at_home, slots)
