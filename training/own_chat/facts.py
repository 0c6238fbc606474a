"""The few facts the model is meant to know, and questions about them.

Owns the facts as data, and true answers made from them.
"""

from random import Random

from .grammar import fill, plural
from .typed import typed
from .word_list import listed, paired, spaced

COLOURS_OF = dict(
    paired(
        """the sky:blue|grass:green|snow:white|the sun:yellow|a banana:yellow|a lemon:yellow|
    a strawberry:red|a tomato:red|milk:white|a frog:green|a carrot:orange|an orange:orange|
    a pumpkin:orange|coal:black|a raven:black|a crow:black|a leaf in summer:green|
    a polar bear:white|a swan:white|a flamingo:pink|a fire engine:red|chocolate:brown|
    a ladybug:red with black dots|a zebra:black and white|a panda:black and white|
    a penguin:black and white|the night sky:black|a cherry:red|a pea:green|a cucumber:green|
    an elephant:gray|a mouse:gray|cheese:yellow|a sunflower:yellow|salt:white|a cloud:white|
    a rain cloud:gray|the sea:blue"""
    )
)
SOUNDS = dict(
    paired(
        """cow:moo|dog:woof|cat:meow|duck:quack|sheep:baa|pig:oink|horse:neigh|hen:cluck|
    rooster:cock-a-doodle-doo|frog:ribbit|bee:buzz|owl:hoo-hoo|lion:roar|mouse:squeak|
    snake:hiss|bird:tweet|crow:caw|donkey:hee-haw|goat:maa|wolf:howl|goose:honk|turkey:gobble|
    pigeon:coo|lamb:baa|bear:growl|chick:cheep"""
    )
)
BABIES = dict(
    paired(
        """cow:calf|dog:puppy|cat:kitten|horse:foal|sheep:lamb|pig:piglet|hen:chick|duck:duckling|
    goose:gosling|goat:kid|bear:cub|lion:cub|deer:fawn|kangaroo:joey|frog:tadpole|swan:cygnet|
    owl:owlet|elephant:calf|whale:calf|fox:cub|wolf:pup|seal:pup|eagle:eaglet|
    butterfly:caterpillar"""
    )
)
HOMES = dict(
    paired(
        """bird:in a nest|bee:in a hive|rabbit:in a burrow|fox:in a den|spider:in a web|
    fish:in water|horse:in a stable|cow:in a barn|dog:in a kennel or in a house|
    ant:in an anthill|bear:in a den|beaver:in a lodge in the water|
    mole:under the ground|squirrel:in a tree|penguin:where it is cold|camel:in the desert|
    whale:in the sea|frog:near a pond|
    hen:in a coop|pig:in a sty|monkey:in the trees|snail:in its shell|owl:in a hollow tree|
    bat:in a cave|polar bear:on the ice"""
    )
)
LEGS = {
    name: number
    for number, names in (
        ("two", "bird hen duck owl penguin person goose"),
        ("four", "dog cat horse cow pig sheep mouse frog elephant bear goat lion rabbit"),
        ("six", "bee ant beetle butterfly ladybug fly"),
        ("eight", "spider"),
        ("no", "snake fish worm snail whale"),
    )
    for name in spaced(names)
}
OPPOSITES = paired(
    """big:small|hot:cold|up:down|day:night|happy:sad|fast:slow|old:young|long:short|open:closed|
    full:empty|wet:dry|loud:quiet|hard:soft|good:bad|left:right|light:dark|high:low|strong:weak|
    early:late|clean:dirty|near:far|thick:thin|rich:poor|in:out|first:last|heavy:light|
    black:white|sweet:sour|awake:asleep|easy:hard|new:old|yes:no|on:off|front:back|
    inside:outside|begin:end|push:pull|give:take"""
)
RHYMES = tuple(
    spaced(group)
    for group in listed(
        """cat hat mat bat rat|dog log frog fog|moon spoon soon|tree bee sea knee|house mouse|
    star car far jar|cake lake snake|boat goat coat|light night kite|bear chair hair pear|
    fox box socks|king ring sing|ball wall tall|rain train chain|sun fun run bun|book cook look|
    nose rose toes|day play hay|bed red head|fish dish wish|sheep sleep deep|hen ten pen|
    pie sky fly|snow crow bow"""
    )
)
USES = dict(
    paired(
        """a spoon:to eat soup|a key:to open a lock|an umbrella:to stay dry in the rain|
    a broom:to sweep the floor|a bed:to sleep|a cup:to drink|a pencil:to write and draw|
    scissors:to cut paper|a lamp:to make light|a clock:to see what time it is|a chair:to sit on|
    a hammer:to drive in nails|soap:to wash yourself|a towel:to dry yourself|a bicycle:to ride|
    a boat:to cross the water|a ladder:to climb up|a needle:to sew|a map:to find the way|
    a bell:to ring|a kite:to fly in the wind|a book:to read|
    a brush:to brush your hair or to paint|a pot:to cook|a blanket:to keep warm|
    glasses:to see better|a basket:to carry things|a bucket:to carry water|a fork:to eat|
    a ruler:to measure|a mirror:to see yourself"""
    )
)
SIDES = {
    "triangle": "three",
    "square": "four",
    "rectangle": "four",
    "circle": "no",
    "pentagon": "five",
    "hexagon": "six",
}
DAYS = spaced("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = spaced(
    "January February March April May June July August September October November December"
)
SEASONS = spaced("spring summer fall winter")
NUMBERS = spaced(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen"
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def fact(rng: Random) -> tuple[str, str]:
    makers = (
        _colour,
        _sound,
        _baby,
        _home,
        _legs,
        _opposite,
        _rhyme,
        _use,
        _shape,
        _order,
        _count,
        _letter,
        _sum,
        _sum,
    )
    question, answer = rng.choice(makers)(rng)
    return typed(rng, fill(rng, question, {})), fill(rng, answer, {})


def _colour(rng: Random) -> tuple[str, str]:
    thing, colour = rng.choice(tuple(COLOURS_OF.items()))
    return (
        f"{{what color is {thing}|which color is {thing}}}",
        f"{thing} is {colour}.",
    )


def _sound(rng: Random) -> tuple[str, str]:
    animal, sound = rng.choice(tuple(SOUNDS.items()))
    return (
        f"{{what does a~ {animal} say|what sound does a~ {animal} make|how does a~ {animal} "
        f"go|what noise does a~ {animal} make}}",
        f"{{a~ {animal} says {sound}.|a~ {animal} goes {sound}!}}",
    )


def _baby(rng: Random) -> tuple[str, str]:
    animal, baby = rng.choice(tuple(BABIES.items()))
    return (
        f"{{what is a baby {animal} called|what do you call a baby {animal}|what is the baby of "
        f"a~ {animal} called}}",
        f"{{a baby {animal} is called a~ {baby}.|it is called a~ {baby}.}}",
    )


def _home(rng: Random) -> tuple[str, str]:
    animal, home = rng.choice(tuple(HOMES.items()))
    return (
        f"{{where does a~ {animal} live|where do {plural(animal)} live|what is the home of a~ "
        f"{animal}}}",
        f"a~ {animal} lives {home}.",
    )


def _legs(rng: Random) -> tuple[str, str]:
    animal, legs = rng.choice(tuple(LEGS.items()))
    return (
        f"{{how many legs does a~ {animal} have|how many legs has a~ {animal}|how many legs are "
        f"on a~ {animal}}}",
        f"a~ {animal} has {legs} legs.",
    )


def _opposite(rng: Random) -> tuple[str, str]:
    pair = rng.choice(OPPOSITES)
    # "light" and "hard" have two opposites each, so they are only asked for as answers.
    asked, other = pair if pair[1] in ("light", "hard", "old") else rng.sample(pair, 2)
    if asked in ("light", "hard", "old"):
        asked, other = other, asked
    return (
        f"{{what is the opposite of {asked}|opposite of {asked}|what's the opposite of "
        f"{asked}|tell me the opposite of {asked}}}",
        f"{{the opposite of {asked} is {other}.|it is {other}.}}",
    )


def _rhyme(rng: Random) -> tuple[str, str]:
    one, two = rng.sample(rng.choice(RHYMES), 2)
    return (
        f"{{what rhymes with {one}|tell me a word that rhymes with {one}|a rhyme for {one}, "
        f"please|which word rhymes with {one}}}",
        f"{{{two} rhymes with {one}.|{one} rhymes with {two}.}}",
    )


def _use(rng: Random) -> tuple[str, str]:
    thing, use = rng.choice(tuple(USES.items()))
    verb = "are" if thing in ("scissors", "glasses") else "is"
    return (
        f"{{what {verb} {thing} for|what do you use {thing} for|what can you do with {thing}|why "
        f"do people need {thing}}}",
        f"you use {thing} {use}.",
    )


def _shape(rng: Random) -> tuple[str, str]:
    shape, sides = rng.choice(tuple(SIDES.items()))
    what = "corners" if rng.random() < 0.5 else "sides"
    answer = (
        f"a~ {shape} has {sides} {what}."
        if sides != "no"
        else "a circle is round and has no corners."
    )
    return f"how many {what} does a~ {shape} have", answer


def _order(rng: Random) -> tuple[str, str]:
    names, kind = rng.choice(((DAYS, "day"), (MONTHS, "month"), (SEASONS, "season")))
    if rng.random() < 0.2:
        number = {"day": "seven", "month": "twelve", "season": "four"}[kind]
        whole = {
            "day": "days are in a week",
            "month": "months are in a year",
            "season": "seasons are in a year",
        }[kind]
        if rng.random() < 0.5:
            return f"how many {whole}", f"there are {number} {whole.replace('are ', '')}."
        listed = ", ".join(names[:-1]) + f" and {names[-1]}"
        of_what = "week" if kind == "day" else "year"
        return (
            f"{{what are|name|tell me}} the {kind}s of the {of_what}",
            f"the {kind}s are {listed}.",
        )
    at = rng.randrange(len(names))
    after = names[(at + 1) % len(names)]
    before = names[at - 1]
    if rng.random() < 0.5:
        return (
            f"{{what {kind} comes after|which {kind} is after|what comes after}} {names[at]}",
            f"after {names[at]} comes {after}.",
        )
    return (
        f"{{what {kind} comes before|which {kind} is before|what comes before}} {names[at]}",
        f"before {names[at]} comes {before}.",
    )


def _count(rng: Random) -> tuple[str, str]:
    to = rng.randrange(3, 11)
    if rng.random() < 0.25:
        down = ", ".join(NUMBERS[n] for n in range(to, 0, -1))
        return f"count {{down|backwards}} from {NUMBERS[to]}", f"{down}!"
    if rng.random() < 0.5:
        return (
            f"what {{number comes|comes}} after {{{NUMBERS[to]}|{to}}}",
            f"after {NUMBERS[to]} comes {NUMBERS[to + 1]}.",
        )
    up = ", ".join(NUMBERS[1 : to + 1])
    return (
        f"{{count to|can you count to|please count to|count from one to}} {{{NUMBERS[to]}|{to}}}",
        f"{up}!",
    )


def _letter(rng: Random) -> tuple[str, str]:
    at = rng.randrange(25)
    if rng.random() < 0.15:
        return (
            "{what is the first letter of the alphabet|which letter comes first}",
            "the first letter is A.",
        )
    if rng.random() < 0.5:
        return (
            f"{{what|which}} letter comes after {LETTERS[at]}",
            f"after {LETTERS[at]} comes {LETTERS[at + 1]}.",
        )
    return (
        f"{{what|which}} letter comes before {LETTERS[at + 1]}",
        f"before {LETTERS[at + 1]} comes {LETTERS[at]}.",
    )


def _sum(rng: Random) -> tuple[str, str]:
    one, two = rng.randrange(10), rng.randrange(10)
    sign, word, result = "+", "plus", one + two
    if rng.random() < 0.4:
        one, two = max(one, two), min(one, two)
        sign, word, result = "-", "minus", one - two
    a, b = NUMBERS[one], NUMBERS[two]
    question = (
        f"{{what is {one} {sign} {two}|{one} {sign} {two}|{one}{sign}{two}|what is {a} {word} "
        f"{b}|how much is {one} {word} {two}|what's {one} {word} {two}|{one} {word} {two}|can you "
        f"tell me what {one} {sign} {two} is}}"
    )
    return question, f"{{{a} {word} {b} is {NUMBERS[result]}.|{one} {sign} {two} is {result}.}}"
