"""Where the messages of a prompt begin, found from its tokens."""

import pytest

from engine.chat.prompt import ChatPrompt
from engine.chat.template.template import ChatTemplate
from engine.chat.turn_starts import turn_opener, turn_starts
from engine.text.tokenizer import Tokenizer
from tests.support.tiny_models import TEMPLATE, VOCAB_SIZE, byte_level_tokenizer

MARKED = (
    "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}"
)
SAID = [
    {"role": role, "content": f"text {index} <|user|>"}
    for index, role in enumerate(["system", *["user", "assistant"] * 5, "user"])
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer")
    byte_level_tokenizer().save(str(path / "tokenizer.json"))
    return Tokenizer.load(path, VOCAB_SIZE)


def of(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens={}, where="test")


def test_the_second_message_and_the_last_ones_are_found(tokenizer: Tokenizer) -> None:
    template = of(MARKED)
    opener = turn_opener(template, tokenizer)
    assert opener == tokenizer.added_token_id("<|user|>")
    ids = ChatPrompt.of(template, SAID).token_ids(tokenizer)
    starts = turn_starts(ids, opener)
    assert len(starts) == 5
    assert all(ids[at] == opener for at in starts)
    text = tokenizer.decode(ids[starts[0] :])
    assert text.startswith("<|user|>user\ntext 1 <|user|>"), "what is said opens no message"
    assert tokenizer.decode(ids[starts[-1] :]) == "<|user|>assistant\n"
    assert tokenizer.decode(ids[starts[-2] : starts[-1]]).startswith("<|user|>user\ntext 11")


def test_a_short_prompt_has_few(tokenizer: Tokenizer) -> None:
    template = of(MARKED)
    ids = ChatPrompt.of(template, SAID[1:2]).token_ids(tokenizer)
    (start,) = turn_starts(ids, turn_opener(template, tokenizer))
    assert tokenizer.decode(ids[start:]) == "<|user|>assistant\n"
    assert turn_starts([], 3) == ()


@pytest.mark.parametrize(
    "source",
    [
        TEMPLATE,  # it always opens a reply
        "{% for m in messages %}{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}Reply: {% endif %}",
        "{{ raise_exception('no') }}",
    ],
)
def test_other_templates_have_none(tokenizer: Tokenizer, source: str) -> None:
    assert turn_opener(of(source), tokenizer) is None
    assert turn_opener(None, tokenizer) is None
    assert turn_starts([1, 2, 3], None) == ()
