"""The tokenizer of a Hugging Face directory: tokenizer.json, and texts from tokenizer_config.json.

Owns the files and the errors about them. Knows not what the tokenizer does.
"""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import tokenizers

from ..errors import ModelLoadError, is_panic
from ..files import JsonObject, is_there, read_file
from .assembled_bpe import assembled

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
# Older formats that are not supported, and the packages that convert them.
_OLDER_FORMS = {
    "tokenizer.model": "transformers sentencepiece protobuf",
    "vocab.json": "transformers",
}
_MAX_TOKENIZER_BYTES = 64 * 1024 * 1024
_MAX_REASON = 500


def open_tokenizer(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, int]]:
    """Opens `path`/tokenizer.json; beside it the ids by piece. Raises ModelLoadError."""
    _refuse_older_forms(path)
    file = path / TOKENIZER_FILE
    data = read_file(file, _MAX_TOKENIZER_BYTES)
    where = f"{file}: damaged"
    parts = assembled(data)
    if parts is not None:
        return checked(lambda: parts.backend, where), parts.vocabulary
    backend = checked(lambda: tokenizers.Tokenizer.from_buffer(data), where)
    return backend, backend.get_vocab(with_added_tokens=True)


def checked(build: Callable[[], tokenizers.Tokenizer], where: str) -> tokenizers.Tokenizer:
    """What `build` returns, once it has encoded a text: a broken part shows now and not in a
    request. Raises ModelLoadError that begins with `where`.
    """
    try:
        backend = build()
        backend.no_truncation()
        backend.no_padding()
        backend.encode("a", add_special_tokens=True)
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        reason = " ".join(str(error)[:_MAX_REASON].split())
        raise ModelLoadError(f"{where}: {reason}") from error
    return backend


def special_tokens(path: Path) -> dict[str, str]:
    """The texts of bos_token, eos_token and so on, from tokenizer_config.json if it exists."""
    if not is_there(path / CONFIG_FILE):
        return {}
    texts: dict[str, str] = {}
    for key, value in JsonObject.read(path / CONFIG_FILE).values.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            texts[key] = text
    return texts


def _refuse_older_forms(path: Path) -> None:
    """If there is only an older format, raises a ModelLoadError that says how to convert it."""
    if os.path.lexists(path / TOKENIZER_FILE):
        return
    for name, packages in _OLDER_FORMS.items():
        if (path / name).exists():
            place = json.dumps(str(path.absolute()), ensure_ascii=False)
            code = (
                f"from transformers import AutoTokenizer; "
                f"AutoTokenizer.from_pretrained({place}).save_pretrained({place})"
            )
            raise ModelLoadError(
                f"{path / TOKENIZER_FILE}: does not exist, and {name} is not supported. "
                f"Convert it with transformers: `pip install {packages}`, then "
                f"`python -c {shlex.quote(code)}`"
            )
