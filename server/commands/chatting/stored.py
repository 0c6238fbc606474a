"""A chat as a file: /save and /load.

Owns the format: one JSON object whose `messages` are those of OpenAI's API.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..terminal import CommandError
from .answer import ChatSettings
from .conversation import Conversation
from .sampling import MAX_TOKENS, SETTINGS

_FORMAT = "soliton chat 1"
_MAX_BYTES = 16 * 2**20
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class StoredChat:
    """What a file holds."""

    conversation: Conversation
    settings: ChatSettings


def save(path: Path, model: str, chat: StoredChat) -> None:
    """Raises CommandError. Replaces a chat that was saved before, and no other file."""
    settings = chat.settings
    content = {
        "format": _FORMAT,
        "model": model,
        "settings": {**settings.sampling, "max_tokens": settings.max_tokens},
        "messages": chat.conversation.sent,
    }
    if path.exists() and not _is_chat(path):
        raise CommandError(f"{path} exists and is not a saved chat; choose another name")
    try:
        path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except (OSError, UnicodeEncodeError) as error:
        raise CommandError(f"{path}: {_reason(error)}") from error


def load(path: Path) -> StoredChat:
    """Raises CommandError with what is wrong with the file."""
    content = _read(path)
    if content.get("format") != _FORMAT:
        raise CommandError(f"{path} is not a saved chat: its format is not {_FORMAT!r}")
    messages = content.get("messages")
    if not isinstance(messages, list) or not all(_is_message(each) for each in messages):
        raise CommandError(f"{path}: messages must be a list of objects with role and content")
    settings = content.get("settings", {})
    if not isinstance(settings, dict):
        raise CommandError(f"{path}: settings must be an object")
    return StoredChat(Conversation.of_messages(messages), _settings(settings, path))


def _settings(values: dict[str, Any], path: Path) -> ChatSettings:
    unknown = next((name for name in values if name not in SETTINGS), None)
    if unknown is not None:
        raise CommandError(f"{path}: {unknown!r} is not a setting")
    max_tokens = values.pop(MAX_TOKENS, None)
    if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
        raise CommandError(f"{path}: max_tokens must be 1 or more, not {max_tokens!r}")
    try:  # JSON has no numbers as keys
        biases = {int(key): value for key, value in values.get("logit_bias", {}).items()}
    except (ValueError, AttributeError) as error:
        raise CommandError(f"{path}: logit_bias must have token ids as keys") from error
    return ChatSettings({**values, "logit_bias": biases} if biases else values, max_tokens)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CommandError(f"{path} is larger than {_MAX_BYTES} bytes: not a saved chat")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{path}: {_reason(error)}") from error
    except ValueError as error:
        raise CommandError(f"{path} is not a saved chat: it is not JSON") from error
    if not isinstance(content, dict):
        raise CommandError(f"{path} is not a saved chat: it is not a JSON object")
    return content


def _is_chat(path: Path) -> bool:
    try:
        return bool(_read(path).get("format") == _FORMAT)
    except CommandError:
        return False


def _is_message(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.get("role") in _ROLES
        and isinstance(value.get("content"), str)
    )


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
