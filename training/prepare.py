"""Makes a run directory's tokenizer and encoded corpora.

Owns the layout of those files. Knows nothing of models or training.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from training.corpus import Document, Split
from training.data import TokenCorpus, encode_documents
from training.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer

TOKENIZER_CHARACTERS = 3_000_000
"""Most text of each corpus used for the vocabulary, so that long novels do not crowd out chat."""


@dataclass(frozen=True, slots=True)
class PreparedData:
    """Everything a training run reads."""

    tokenizer: Tokenizer
    shares: dict[str, float]
    late_shares: dict[str, float]
    train: dict[str, TokenCorpus]
    held_out: dict[str, TokenCorpus]


def prepare(splits: Sequence[Split], run_dir: Path) -> None:
    """Trains the tokenizer and encodes every corpus; the index is written last.

    A tokenizer that is there already is kept: a model may have been trained with it, and corpora
    are added to its run by preparing again.
    """
    data_dir = run_dir / "data"
    data_dir.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(splits, run_dir / "tokenizer")
    index = {}
    for split in splits:
        for kind, documents in (("train", split.train), ("held_out", split.held_out)):
            if documents:
                encode_documents(documents, tokenizer).save(data_dir / f"{split.name}.{kind}.npz")
        index[split.name] = {
            "share": split.share,
            "late_share": split.share * split.late_share_factor,
            "held_out": bool(split.held_out),
        }
    (data_dir / "index.json").write_text(json.dumps(index, indent=2) + "\n", "utf-8")


def is_prepared(run_dir: Path) -> bool:
    return (run_dir / "data" / "index.json").is_file()


def load_prepared(run_dir: Path) -> PreparedData:
    data_dir = run_dir / "data"
    index = json.loads((data_dir / "index.json").read_text("utf-8"))
    return PreparedData(
        tokenizer=load_tokenizer(run_dir / "tokenizer"),
        shares={name: entry["share"] for name, entry in index.items()},
        late_shares={name: entry["late_share"] for name, entry in index.items()},
        train={name: TokenCorpus.load(data_dir / f"{name}.train.npz") for name in index},
        held_out={
            name: TokenCorpus.load(data_dir / f"{name}.held_out.npz")
            for name, entry in index.items()
            if entry["held_out"]
        },
    )


def _tokenizer(splits: Sequence[Split], directory: Path) -> Tokenizer:
    if not (directory / "tokenizer.json").is_file():
        texts = [text for split in splits for text in _sample_texts(split.train)]
        save_tokenizer(train_tokenizer(texts), directory)
    return load_tokenizer(directory)


def _sample_texts(documents: Sequence[Document]) -> list[str]:
    """The documents' plain words: special tokens are never part of a merge."""
    texts: list[str] = []
    n_characters = 0
    for document in documents:
        if n_characters > TOKENIZER_CHARACTERS:
            break
        for segment in document.segments:
            text = segment.text
            for token in ("<|endoftext|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"):
                text = text.replace(token, "")
            texts.append(text)
            n_characters += len(text)
    return texts
