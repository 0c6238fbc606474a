"""Where the corpora come from, and under which terms.

Owns the corpora's sources, licences and checksums as the card names them. Reads no text.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from training.corpus import DEFAULT_MIX


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a corpus comes from, and under which terms."""

    source: str
    licence: str


@dataclass(frozen=True, slots=True)
class CorpusFile:
    name: str
    file: str
    sha256: str


UNKNOWN = Origin("own text", "see its owner")
ORIGINS = {
    "tinystories": Origin(
        "A subset of TinyStories (Ronen Eldan and Yuanzhi Li, Microsoft Research, "
        "arXiv 2305.07759), 14,259 stories; written by GPT-3.5 and GPT-4, published by the authors",
        "CDLA-Sharing-1.0, whose section 3.5 puts no terms on results such as these weights",
    ),
    "story_chat": Origin(
        "Requests and answers derived from the stories above", "CDLA-Sharing-1.0, as above"
    ),
    "own_chat": Origin(
        "Written by this project's generator, `training/own_chat/`, which needs no file",
        "the project's own, Apache-2.0",
    ),
    "persona_chat": Origin(
        "google-research-datasets/Synthetic-Persona-Chat, validation and test parts, "
        "by Google Research",
        "CC-BY-4.0",
    ),
    "chitchat": Origin(
        "Microsoft's personality chat questions and answers (BotBuilder-PersonalityChat), filtered",
        "MIT",
    ),
    "classics": Origin(
        "34 children's books of 1812 to 1930, by way of mlschmitt/classic-books-markdown",
        "public domain (US)",
    ),
    "fairytales": Origin(
        "The tales of FairytaleQA (uci-soe/FairytaleQAData); from Project Gutenberg",
        "Apache-2.0; the tales are in the public domain",
    ),
    "picture_books": Origin(
        "Picture books of Pratham Books and the African Storybook Initiative and their authors "
        "(global-asp/pb-source, global-asp/asp-source), those marked CC-BY or CC-0",
        "CC-BY-4.0, CC-BY-3.0, CC-0",
    ),
}


def corpus_files(corpora: Path) -> tuple[CorpusFile, ...]:
    """Every file of the default mix; generated corpora have none."""
    files = []
    for source in DEFAULT_MIX:
        if source.file is not None:
            digest = hashlib.sha256((corpora / source.file).read_bytes()).hexdigest()
            files.append(CorpusFile(source.name, source.file, digest))
    return tuple(files)
