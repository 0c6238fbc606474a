"""How byte-level vocabularies cut text into words, by the name in `tokenizer.ggml.pre`.

Owns the table. A pattern cuts every piece that the pattern before it left, into what it matches and
what lies between. Where llama.cpp writes a pattern in other words, because its own matcher knows
fewer of them, this is the one of the model's tokenizer.json, which is what the model was trained
with.
"""

from typing import NamedTuple


class Split(NamedTuple):
    """What a name stands for."""

    patterns: tuple[str, ...]
    """Oniguruma's syntax."""
    whole_words: bool = False
    """A word that is a token becomes that token, whatever the merges say."""
    adds_bos: bool = False
    """Whether a text begins with BOS if the file does not say."""
    composes: bool = False
    """Whether text is brought into Unicode's composed form (NFC) first."""


_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_SYMBOLS_OR_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_BLANKS}"
_MINICPM5 = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}+|{_SYMBOLS}|{_BLANKS}"
_QWEN2 = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}|{_SYMBOLS}|{_BLANKS}"
_QWEN35 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}"
)
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_SYMBOLS_OR_SLASHES}|{_BLANKS}"
_GPT4O = (
    rf"{_CASED[0]}{_ENDINGS}?|{_CASED[1]}{_ENDINGS}?|\p{{N}}{{1,3}}"
    rf"|{_SYMBOLS_OR_SLASHES}|{_BLANKS}"
)
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}"
)
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED_CODER = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}"
_EXAONE_MOE = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_YOUTU_EAST_ASIAN = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_YOUTU = rf"{_CASED[0]}{_ENDINGS}?|{_CASED[1]}{_ENDINGS}?|\p{{N}}|{_SYMBOLS_OR_SLASHES}|{_BLANKS}"
_CHINESE_OR_JAPANESE = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_CHINESE_OR_KOREAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# The cased letters of the Unicode version that the vocabulary was made with.
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134"
    "\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
_DEEPSEEK_SYMBOLS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"

_SPLITS = {
    ("llama-bpe", "llama3", "llama-v3", "lfm2", "falcon3", "falcon-h1", "pixtral", "midm-2.0"):
        Split((_LLAMA3,), whole_words=True, adds_bos=True),
    ("glm4", "glm5"): Split((_LLAMA3,), whole_words=True),
    ("chatglm-bpe", "dbrx", "smaug-bpe"): Split((_LLAMA3,)),
    ("minicpm5",): Split((r"\p{N}{1,3}", _MINICPM5), whole_words=True),
    ("qwen2", "deepseek-r1-qwen"): Split((_QWEN2,), composes=True),
    ("stablelm2", "kormo", "megrez", "hunyuan", "solar-open", "grok-2"): Split((_QWEN2,)),
    ("qwen35",): Split((_QWEN35,), composes=True),
    ("laguna",): Split((r"[^\n]+|[\n]+", _QWEN2)),
    ("tekken",): Split((_TEKKEN,), whole_words=True, adds_bos=True),
    ("gpt-4o", "llama4", "kanana2", "minimax-m2"): Split((_GPT4O,)),
    ("tiny_aya", "cohere2moe"): Split((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O)),
    ("youtu",): Split((_YOUTU_EAST_ASIAN, _YOUTU), whole_words=True),
    ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"):
        Split((r"\p{N}", _GPT2)),
    ("command-r",): Split((r"\p{N}", _GPT2), composes=True),
    ("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "trillion", "granite-docling", "exaone4"):
        Split((_GPT2,)),
    ("mpt", "olmo"): Split((_GPT2,), composes=True),
    ("falcon",): Split((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    ("exaone-moe",): Split((_EXAONE_MOE,)),
    ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"):
        Split((r"\p{N}{1,3}", _CHINESE_OR_JAPANESE, _DEEPSEEK3)),
    ("deepseek-coder",):
        Split((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE_OR_KOREAN, r"\p{N}")),
    ("deepseek-llm",): Split((
        r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+", rf"\s?[{_DEEPSEEK_SYMBOLS}]+", r"\s+$",
        _CHINESE_OR_KOREAN, r"\p{N}+",
    )),
    ("bailingmoe", "bailingmoe2", "llada-moe"): Split((_BAILING,)),
    ("seed-coder",): Split((_SEED_CODER,)),
    ("viking",): Split((_BLOOM, r"\p{N}")),
    ("bloom", "poro-chat", "gpt3-finnish"): Split((_BLOOM,)),
}  # fmt: skip

SPLITS = {name: split for names, split in _SPLITS.items() for name in names}
"""By name."""
