"""Where byte-level vocabularies of GGUF files cut text, for every name in `tokenizer.ggml.pre`."""

import pytest

from engine.text.gguf.splits import SPLITS, cutter
from engine.text.token_bytes import ByteLevelSpelling

# Names that cut alike -> texts with numbers and contractions, code, blanks, marks, scripts and
# symbols, with | where they are cut. Checked against the patterns of llama.cpp (MIT), run by
# another matcher.
EXPECTED = {
    (
        "llama-bpe", "llama3", "llama-v3", "lfm2", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
        "glm4", "glm5", "chatglm-bpe", "dbrx", "smaug-bpe",
    ): (
        "It|'s| |123|456|7| DON|'T",
        "HTTPServer|'s| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai|\u0308ve| \u0939|\u093f| \xa3|3|.|50|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("minicpm5",): (
        "It|'s| |123|456|7| DON|'T",
        "HTTPServer|'s| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai|\u0308ve| \u0939|\u093f| \xa3|3|.|50|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    (
        "qwen2", "deepseek-r1-qwen", "stablelm2", "kormo", "megrez", "hunyuan", "solar-open",
        "grok-2",
    ): (
        "It|'s| |1|2|3|4|5|6|7| DON|'T",
        "HTTPServer|'s| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai|\u0308ve| \u0939|\u093f| \xa3|3|.|5|0|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("qwen35",): (
        "It|'s| |1|2|3|4|5|6|7| DON|'T",
        "HTTPServer|'s| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve| \u0939\u093f| \xa3|3|.|5|0|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("laguna",): (
        "It|'s| |1|2|3|4|5|6|7| DON|'T",
        "HTTPServer|'s| a|/b|//|\n\n| x",
        "a| | b|\n| |\n|c|   ",
        "nai|\u0308ve| \u0939|\u093f| \xa3|3|.|5|0|!!|\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("tekken",): (
        "It|'s| |1|2|3|4|5|6|7| DON|'T",
        "HTTPServer|'s| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve| \u0939\u093f| \xa3|3|.|5|0|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("gpt-4o", "llama4", "kanana2", "minimax-m2"): (
        "It's| |123|456|7| DON'T",
        "HTTPServer's| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve| \u0939\u093f| \xa3|3|.|50|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("tiny_aya", "cohere2moe"): (
        "It's| |1|234|567| DON'T",
        "HTTPServer's| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve| \u0939\u093f| \xa3|3|.|50|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("youtu",): (
        "It's| |1|2|3|4|5|6|7| DON'T",
        "HTTPServer's| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve| \u0939\u093f| \xa3|3|.|5|0|!!\n",
        "\u4f60\u597d|abc|\u3053\u3093| |\ud55c\uad6d| x|\u3002|y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    (
        "smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2",
        "command-r",
    ): (
        "It|'s| |1|2|3|4|5|6|7| DON|'|T",
        "HTTPServer|'s| a|/|b|//|\n\n| x",
        "a| | b|\n |\n|c|   ",
        "nai|\u0308|ve| \u0939|\u093f| \xa3|3|.|5|0|!!|\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002|y",
        "$|a|+|b|=|c| `|d|`| (|e|.|f|)",
    ),
    (
        "gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "trillion", "granite-docling",
        "exaone4", "mpt", "olmo",
    ): (
        "It|'s| 1234567| DON|'|T",
        "HTTPServer|'s| a|/|b|//|\n\n| x",
        "a| | b|\n |\n|c|   ",
        "nai|\u0308|ve| \u0939|\u093f| \xa3|3|.|50|!!|\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002|y",
        "$|a|+|b|=|c| `|d|`| (|e|.|f|)",
    ),
    ("falcon",): (
        "It|'|s| |123|456|7| DON|'|T",
        "HTTPServer|'|s| a|/|b|//|\n\n| x",
        "a| | b|\n |\n|c|   ",
        "nai|\u0308|ve| \u0939|\u093f| \xa3|3|.|50|!!|\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002|y",
        "$|a|+|b|=|c| |`|d|`| |(|e|.|f|)",
    ),
    ("exaone-moe",): (
        "It|'s| |1|2|3|4|5|6|7| DON|'T",
        "HTTPServer|'s| a|/b|//\n|\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve \u0939\u093f| \xa3|3|.|5|0|!!\n",
        "\u4f60\u597dabc\u3053\u3093 \ud55c\uad6d x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"): (
        "It|'s| |123|456|7| DON|'T",
        "HTTPServer|'s| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve| \u0939\u093f| \xa3|3|.|50|!!\n",
        "\u4f60\u597d|abc|\u3053\u3093| \ud55c\uad6d| x|\u3002|y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("deepseek-coder",): (
        "It|'|s| |1|2|3|4|5|6|7| DON|'|T",
        "HTTPServer|'|s| a|/|b|//|\n|\n| x",
        "a| | b|\n| |\n|c|   ",
        "nai|\u0308|ve| |\u0939|\u093f| \xa3|3|.|5|0|!!|\n",
        "\u4f60\u597d|abc|\u3053\u3093| |\ud55c\uad6d| x|\u3002|y",
        "$|a|+|b|=|c| `|d|`| (|e|.|f|)",
    ),
    ("deepseek-llm",): (
        "It|'|s| |1234567| DON|'|T",
        "HTTPServer|'|s| a|/|b|//|\n|\n| x",
        "a| | b|\n| |\n|c|   ",
        "nai|\u0308|ve| |\u0939\u093f| \xa3|3|.|50|!!|\n",
        "\u4f60\u597d|abc|\u3053\u3093| |\ud55c\uad6d| x|\u3002|y",
        "$|a|+|b|=|c| `|d|`| (|e|.|f|)",
    ),
    ("bailingmoe", "bailingmoe2", "llada-moe"): (
        "It|'s| |1|2|3|4|5|6|7| DON|'T",
        "HTTPServer|'s| a|/b|//\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai|\u0308ve| \u0939|\u093f| \xa3|3|.|5|0|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("seed-coder",): (
        "It|'s| |1|2|3|4|5|6|7| DON|'T",
        "HTTPServer|'s| a|/b|//|\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai|\u0308ve| \u0939|\u093f| \xa3|3|.|5|0|!!|\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002y",
        "$a|+b|=c| `|d|`| (|e|.f|)",
    ),
    ("viking",): (
        "It's| |1|2|3|4|5|6|7| DON'T",
        "HTTPServer's| a/b//|\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve| \u0939\u093f| \xa3|3|.|5|0|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002|y",
        "$a+b=c| `d`| (|e|.|f|)",
    ),
    ("bloom", "poro-chat", "gpt3-finnish"): (
        "It's| 1234567| DON'T",
        "HTTPServer's| a/b//|\n\n| x",
        "a| | b|\n \n|c|   ",
        "nai\u0308ve| \u0939\u093f| \xa33|.|50|!!\n",
        "\u4f60\u597dabc\u3053\u3093| \ud55c\uad6d| x|\u3002|y",
        "$a+b=c| `d`| (|e|.|f|)",
    ),
}  # fmt: skip


def cut(name: str, text: str) -> str:
    words = cutter(SPLITS[name]).pre_tokenize_str(text)
    return "|".join(ByteLevelSpelling().to_bytes(word).decode() for word, _ in words)


@pytest.mark.parametrize(
    ("name", "expected"),
    [(name, expected) for names, expected in EXPECTED.items() for name in names],
)
def test_text_is_cut_as_the_name_says(name: str, expected: tuple[str, ...]) -> None:
    assert tuple(cut(name, text.replace("|", "")) for text in expected) == expected


def test_every_name_is_tested() -> None:
    assert {name for names in EXPECTED for name in names} == SPLITS.keys()


def test_names_that_cut_alike_may_differ_in_other_things() -> None:
    assert SPLITS["llama-bpe"].whole_words, "its merges do not reach every token"
    assert SPLITS["llama-bpe"].adds_bos
    assert SPLITS["glm4"].whole_words
    assert not SPLITS["glm4"].adds_bos
    assert not SPLITS["dbrx"].whole_words
    assert SPLITS["qwen2"].composes
    assert not SPLITS["smollm"].composes
