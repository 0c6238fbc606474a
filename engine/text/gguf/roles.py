"""Tokens with a role: what begins and ends a text, what ends an answer, what surrounds a gap.

Owns the keys that name such tokens by id.
"""

from collections.abc import Mapping

from ...gguf.metadata import Metadata
from .tokens import Tokens

# Roles of tokens, as files and as chat templates call them.
_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
# These end an answer.
_ENDS = ("eos", "eot", "eom")
# The roles for filling in the middle; older files call them otherwise.
_FILES = ("fim_rep", "fim_sep")
_FILL_IN = (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle"))


class Roles:
    """The ids that a file gives to roles, or `defaults` where it is silent."""

    def __init__(self, metadata: Metadata, tokens: Tokens, defaults: Mapping[str, int]) -> None:
        """Raises ModelLoadError for an id that no token has."""
        self._metadata = metadata
        self._tokens = tokens
        self._ids: dict[str, int] = {}
        for role in dict.fromkeys((*_ROLES, *_ENDS)):
            token_id = self._id(role)
            if token_id is None and defaults.get(role, len(tokens)) < len(tokens):
                token_id = defaults[role]
            if token_id is not None:
                self._ids[role] = token_id

    def texts(self) -> dict[str, str]:
        """By the names that chat templates use, such as bos_token."""
        texts = self._tokens.texts
        return {_ROLES[role]: texts[i] for role, i in self._ids.items() if role in _ROLES}

    def ends(self) -> set[int]:
        """The ids of the tokens that end an answer."""
        return {self._ids[role] for role in _ENDS if role in self._ids}

    def around(self, *, adds_bos: bool, heeds_file: bool = True) -> dict[str, int]:
        """`bos`, if it comes before each text, and `eos`, if it comes after it, with their ids.

        `adds_bos`: whether BOS does if the file does not say, or is not heeded. Raises
        ModelLoadError for a token that is to be added, but that the file does not name.
        """
        wanted: dict[str, int] = {}
        for role, default in (("bos", adds_bos and "bos" in self._ids), ("eos", False)):
            key = f"tokenizer.ggml.add_{role}_token"
            is_said = self._metadata.boolean(key, default=default)
            if is_said if heeds_file else default:
                if role not in self._ids:
                    allowed = f"false without tokenizer.ggml.{role}_token_id"
                    self._metadata.fail(key, True, allowed)
                wanted[role] = self._ids[role]
        return wanted

    def fill_in(self) -> tuple[str, str, str] | None:
        """The tokens before the prefix, before the suffix and before what belongs between them."""
        for roles in _FILL_IN:
            found = [self._id(role) for role in roles]
            prefix, suffix, middle = (None if i is None else self._tokens.texts[i] for i in found)
            if prefix and suffix and middle:
                return prefix, suffix, middle
        return None

    def files(self) -> tuple[str, str] | None:
        """The tokens before the name of a repository and before that of a file."""
        repository, file = (self._id(role) for role in _FILES)
        if repository is None or file is None:
            return None
        return self._tokens.texts[repository], self._tokens.texts[file]

    def _id(self, role: str) -> int | None:
        key = f"tokenizer.ggml.{role}_token_id"
        if not self._metadata.has(key):
            return None
        return self._metadata.integer(key, low=0, high=len(self._tokens) - 1)
