"""Words for asking for a story.

Owns what can be wished for and how people say it. Knows nothing of how stories are told.
"""

from random import Random

from . import words
from .grammar import fill, plural
from .stories import HERO_KINDS, THING_KINDS, Wish
from .typed import typed

_KINDS = {
    "animal": 36,
    "sea animal": 9,
    "person": 14,
    "living thing": 7,
    "object": 14,
    "vehicle": 5,
    "fruit": 2,
    "dish": 2,
    "mass food": 2,
    "place": 5,
    "event": 3,
    "sky": 2,
    "virtue": 3,
}
_ASK = (
    "{Tell me|Please tell me|Can you tell me|Could you tell me|Will you tell me|Would you tell "
    "me} a~ <kind>story about <what>",
    "{Write|Please write|Can you write|Could you write} {me |}a~ <kind>story about <what>",
    "{I want|I would like|I'd like|I'd love|I want to hear|I need} a~ <kind>story about <what>",
    "{Can you make up|Make up|Please make up|Invent|Create} a~ <kind>story about <what>",
    "a~ <kind>story about <what>{, please| please|}",
    "<kind>story about <what>{, please| please|}",
    "{Do you know|Have you got|Do you have} a~ <kind>story about <what>",
    "{Let's hear|Give me|Tell us} a~ <kind>story about <what>",
    "{How about|What about|Maybe} a~ <kind>story {about|with} <what>",
    "Tell {me|us} about <what>",
    "{My {son|daughter|little brother|little sister} wants|My children want|We want|My class "
    "would like} a~ <kind>story about <what>",
    "{Hi|Hello|Hey}{,|!} {can you tell me|please tell me|tell me} a~ <kind>story about <what>",
    "I {like|love} <whats>. {Tell me a~ <kind>story about one|Do you have a~ <kind>story with "
    "<what>}",
    "once upon a time there was <what>. {go on|tell the story}",
)
_KIND_WORDS = ("", "", "", "", "little ", "bedtime ", "nice ", "funny ", "new ", "good ", "cute ")


def wish_for(rng: Random) -> Wish:
    """Draws a subject, and sometimes a trait, a name, a second subject, a moral or a length."""
    kind = rng.choices(tuple(_KINDS), tuple(_KINDS.values()))[0]
    moral = rng.random() < 0.06
    length = rng.choices(("usual", "short", "long"), (82, 10, 8))[0]
    if kind == "virtue":
        hero = rng.choice(words.LAND_ANIMALS)
        return Wish(hero=hero, virtue=rng.choice(words.VIRTUES), moral=moral, length=length)
    if kind in HERO_KINDS:
        hero = rng.choice(HERO_KINDS[kind])
        trait = rng.choice(tuple(words.TRAITS)) if rng.random() < 0.35 else ""
        extra = rng.random()
        if extra < 0.15 and kind != "sea animal":
            thing = rng.choice(words.OBJECTS + words.VEHICLES)
            if thing != hero:
                colour = (
                    rng.choice(words.COLOURS) if rng.random() < 0.5 and " " not in thing else ""
                )
                return Wish(hero=hero, thing=thing, trait=trait, colour=colour, moral=moral)
        if extra < 0.25:
            friend = rng.choice(words.WATER_ANIMALS if kind == "sea animal" else words.LAND_ANIMALS)
            if friend != hero:
                return Wish(hero=hero, friend=friend, trait=trait, moral=moral)
        name = _name(rng, hero) if extra > 0.85 else ""
        return Wish(hero=hero, trait=trait, name=name, moral=moral, length=length)
    thing = rng.choice(THING_KINDS[kind])
    simple = kind in ("object", "vehicle") and " " not in thing
    colour = rng.choice(words.COLOURS) if simple and rng.random() < 0.4 else ""
    if rng.random() < 0.2:
        hero = rng.choice(("girl", "boy"))
        return Wish(hero=hero, thing=thing, colour=colour, name=_name(rng, hero), length=length)
    return Wish(thing=thing, colour=colour, moral=moral, length=length)


def _name(rng: Random, hero: str) -> str:
    if hero in words.FEMALE_PEOPLE:
        return rng.choice(words.GIRLS)
    if hero in words.MALE_PEOPLE:
        return rng.choice(words.BOYS)
    return rng.choice(words.GIRLS + words.BOYS + words.PET_BOYS + words.PET_GIRLS)


def what_is_wanted(wish: Wish) -> str:
    """The subjects with their articles: "a brave otter named Pip and a red kite"."""
    if wish.virtue:
        return wish.virtue
    parts = []
    if wish.hero:
        named = f" named {wish.name}" if wish.name else ""
        parts.append(f"a~ {wish.trait} {wish.hero}{named}")
    if wish.thing in words.SKY:
        parts.append(f"the {wish.thing}")
    elif wish.thing in words.MASS_FOODS:
        parts.append(wish.thing)
    elif wish.thing:
        parts.append(f"a~ {wish.colour} {wish.thing}")
    if wish.friend:
        parts.append(f"a~ {wish.friend}")
    return " and ".join(parts)


def ask_for(rng: Random, wish: Wish) -> str:
    kind = rng.choice(_KIND_WORDS)
    if wish.length == "short":
        kind = rng.choice(("short ", "very short ", "tiny "))
    elif wish.length == "long":
        kind = rng.choice(("long ", "longer "))
    what = what_is_wanted(wish)
    single = (
        not wish.virtue and what.count("a~") == 1 and not wish.name and wish.thing not in words.SKY
    )
    whats = plural(what.replace("a~ ", "")) if single else ""
    if single and not wish.trait and not wish.colour and rng.random() < 0.12:
        what = whats
    templates = [t for t in _ASK if single or "<whats>" not in t]
    if what == whats:
        templates = [t for t in templates if "there was" not in t]
    if wish.moral:
        templates = [t for t in templates if "<kind>" in t and "." not in t and "please|" not in t]
    text = fill(rng, rng.choice(templates), {"kind": kind, "what": what, "whats": whats})
    if wish.moral:
        text += rng.choice((" with a moral", " that has a moral", " and tell me the moral"))
    return typed(rng, text)
