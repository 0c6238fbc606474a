"""Reads text corpora into documents and splits off the held-out ones.

Owns the corpus table, the hold-out rule and the chat rendering with its loss weights.
Knows nothing of token ids, batches or models.
"""

import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.own_chat import own_chats
from training.request_words import echoes
from training.story_filter import is_good_story

END_OF_TEXT = "<|endoftext|>"
END = "<|end|>"
ROLES = ("system", "user", "assistant")
_SPECIAL_TOKEN = re.compile(r"<\|\w+\|>")

LEARN = 1.0
"""Loss weight of text that the model should write: plain text and assistant turns."""
GLIMPSE = 0.1
"""Loss weight of text that the model only reads: system and user turns."""

ECHO = 2.5
"""Loss weight of the first time an answer names what the user asked for.

Following a request begins with naming its subject, which is one word in a hundred: without more
weight it is the last thing that such a small model learns. The files can store at most 2.55.
"""

HELD_OUT_PER_MILLE = 20
SHINGLE_WORDS = 16

OWN_CHAT_SEED = 2026
OWN_CHAT_COUNT = 17_000


class CorpusError(ValueError):
    """A corpus file is missing or does not have the expected form."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of text with one loss weight."""

    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class Document:
    """One story, chapter or dialogue, rendered with its special tokens."""

    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Source:
    """One corpus: its file, its share of the training tokens, and what it was made from."""

    name: str
    file: str | None
    """None for the project's own chat data, which is generated."""
    share: float
    derived_from: str | None = None
    late_share_factor: float = 1.0
    """Factor of the share in the last part of a run."""
    only_good_stories: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """One corpus after the hold-out."""

    name: str
    share: float
    train: tuple[Document, ...]
    held_out: tuple[Document, ...]
    late_share_factor: float = 1.0


DEFAULT_MIX = (
    Source("tinystories", "tinystories_subset.txt.xz", 0.27, only_good_stories=True),
    Source(
        "story_chat",
        "story_chat.jsonl.xz",
        0.30,
        derived_from="tinystories",
        late_share_factor=2.0,
        only_good_stories=True,
    ),
    Source("persona_chat", "persona_chat.jsonl.xz", 0.08, late_share_factor=2.0),
    Source("chitchat", "chitchat.jsonl.xz", 0.04, late_share_factor=2.0),
    Source("classics", "classics_children.txt.xz", 0.08),
    # Shares of the last two follow their sizes: about 0.75 and 0.41 million tokens.
    Source("fairytales", "fairytales.txt.xz", 0.065),
    Source("picture_books", "picture_books_ccby.txt.xz", 0.035),
    Source("own_chat", None, 0.13, late_share_factor=2.0),
)


def plain_document(text: str) -> Document:
    return Document((Segment(text + END_OF_TEXT, LEARN),))


def chat_document(messages: Sequence[dict[str, str]]) -> Document:
    """Renders a dialogue as the chat template does; the model learns to write assistant turns."""
    segments: list[Segment] = []
    request = ""
    for message in messages:
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise CorpusError(f"role {role!r} is not one of {', '.join(ROLES)}")
        segments.append(Segment(f"<|{role}|>", GLIMPSE))
        if role == "assistant":
            segments += _answer_segments(request, content)
        else:
            segments.append(Segment(f"{content}{END}", GLIMPSE))
        if role == "user":
            request = content
    segments.append(Segment(END_OF_TEXT, LEARN))
    return Document(tuple(segments))


def _answer_segments(request: str, answer: str) -> list[Segment]:
    """Cuts an answer so that the words it takes from its request weigh more."""
    segments = []
    done = 0
    for begin, end in echoes(request, answer):
        if begin > done:
            segments.append(Segment(answer[done:begin], LEARN))
        segments.append(Segment(answer[begin:end], ECHO))
        done = end
    segments.append(Segment(f"{answer[done:]}{END}", LEARN))
    return segments


def read_documents(path: Path) -> list[Document]:
    """Reads `*.jsonl(.xz)` as dialogues, anything else as texts separated by END_OF_TEXT."""
    if not path.is_file():
        raise CorpusError(f"corpus file {path} does not exist")
    if path.suffix == ".xz":
        text = lzma.decompress(path.read_bytes()).decode("utf-8")
    else:
        text = path.read_text("utf-8")
    if ".jsonl" in path.suffixes:
        return [chat_document(json.loads(line)["messages"]) for line in text.splitlines() if line]
    stories = (story.strip() for story in text.split(END_OF_TEXT))
    return [plain_document(story) for story in stories if story]


def is_held_out(document: Document) -> bool:
    """Depends only on the document's words, not on its place or on other documents."""
    digest = hashlib.sha256(" ".join(_words(document.text)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 1000 < HELD_OUT_PER_MILLE


def shingles(document: Document) -> Iterator[int]:
    """Hashes of every run of SHINGLE_WORDS words: two documents share some if one quotes the other.

    Python's string hash is salted per process, which is harmless: the values never leave it.
    """
    words = _words(document.text)
    for start in range(len(words) - SHINGLE_WORDS + 1):
        yield hash(tuple(words[start : start + SHINGLE_WORDS]))


def split_documents(
    documents: Iterable[Document], parent_held_out: Sequence[Document] | None = None
) -> tuple[list[Document], list[Document]]:
    """Splits documents into (train, held out).

    A derived corpus follows its parent: every document that shares a run of words with a held-out
    parent document is held out too, so no held-out story is ever trained on.
    """
    train: list[Document] = []
    held_out: list[Document] = []
    if parent_held_out is None:
        for document in documents:
            (held_out if is_held_out(document) else train).append(document)
        return train, held_out
    quoted = {shingle for parent in parent_held_out for shingle in shingles(parent)}
    for document in documents:
        seen = any(shingle in quoted for shingle in shingles(document))
        (held_out if seen else train).append(document)
    return train, held_out


def load_splits(corpora: Path, mix: Sequence[Source] = DEFAULT_MIX) -> list[Split]:
    """Reads every corpus of the mix; parents must come before the corpora derived from them."""
    splits: dict[str, Split] = {}
    for source in mix:
        parent = None
        if source.derived_from is not None:
            parent = splits[source.derived_from].held_out
        train, held_out = split_documents(source_documents(corpora, source), parent)
        if source.only_good_stories:
            # Filters only the training documents, so that held-out losses cover the whole corpus.
            train = [document for document in train if is_good_story(plain_text(document))]
        if not train:
            raise CorpusError(f"corpus {source.name} has no training documents")
        splits[source.name] = Split(
            source.name, source.share, tuple(train), tuple(held_out), source.late_share_factor
        )
    return list(splits.values())


def source_documents(corpora: Path, source: Source) -> list[Document]:
    """Reads or generates the documents of one corpus."""
    if source.file is None:
        return [chat_document(chat) for chat in own_chats(OWN_CHAT_SEED, OWN_CHAT_COUNT)]
    return read_documents(corpora / source.file)


def load_text_splits(files: Sequence[Path]) -> list[Split]:
    """Reads the user's own text files, each with a share proportional to its size."""
    mix = []
    for file in files:
        if not file.is_file():
            raise CorpusError(f"text file {file} does not exist")
        mix.append((file, file.stat().st_size))
    total = sum(size for _, size in mix)
    splits = []
    for file, size in mix:
        train, held_out = split_documents(read_documents(file))
        if not train:
            raise CorpusError(f"text file {file} has no training documents")
        splits.append(Split(file.stem, size / total, tuple(train), tuple(held_out)))
    return splits


def plain_text(document: Document) -> str:
    """The document without its special tokens."""
    return _SPECIAL_TOKEN.sub(" ", document.text).strip()


def _words(text: str) -> list[str]:
    return re.findall(r"[\w']+", _SPECIAL_TOKEN.sub(" ", text.lower()))
