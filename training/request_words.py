"""Finds where an answer first names what its request asked for.

Owns what counts as a word of a request. Knows nothing of loss weights or tokens.
"""

import re

_WORD = re.compile(r"[^\W\d_]+")

COMMON_WORDS = frozenset(
    _WORD.findall(
        """a about after again all also always am an and another any are ask asked at back be been
        before bedtime began begin being but by came can continue could create cute day did do
        does doing don end ever every finish first for from funny gave get give go going good
        got had happen happened happens has have hear hello her here hers him his how i if in
        into is it its just know knew let like liked little long longer look looked looking lot
        love loved made make many may me more most much must my name named need new next nice no
        not now of off often old on once one only or other our out over own people please read
        really said say saw see she short should so some somebody something soon sentence
        sentences start story stories such sure take tell than thank thanks that the their them
        then there these they thing things think this those time tiny to told too two up upon us
        use used very want wanted wants was way we well went were what when where which while
        who whose why will with word words would write wrote yes yet you your"""
    )
)


def echoes(request: str, answer: str) -> list[tuple[int, int]]:
    """Spans of the answer where a content word of the request occurs for the first time.

    A span begins with the space before its word, as a token of the word does. Where whitespace or
    an apostrophe would make a cut there change the tokens, the word is passed over.
    """
    wanted = {word for word in _words(request) if len(word) > 2} - COMMON_WORDS
    spans = []
    for match in _WORD.finditer(answer):
        word = match[0].lower()
        if word not in wanted:
            continue
        wanted.discard(word)
        begin = match.start()
        before = answer[max(0, begin - 2) : begin]
        if before[-1:] == " ":
            begin -= 1
            before = before[:-1]
        if (
            not before[-1:].isspace()
            and before[-1:] not in ("'", "_")
            and answer[match.end() :][:1] != "_"
        ):
            spans.append((begin, match.end()))
    return spans


def _words(text: str) -> list[str]:
    return [match[0].lower() for match in _WORD.finditer(text)]
