"""How a model marks reasoning and tool calls in its replies.

Owns how the format of a model is found: from its chat template and its added tokens, never from its
name; and what a prompt leaves open. Knows no stream and no grammar.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..template.template import ChatTemplate
from .call_shape import probe
from .reasoning_format import ReasoningFormat, reasoning_format
from .tool_format import HARMONY_TAGS, ToolFormat, harmony, named_in, shown_by
from .written import Marker, ReplyTokenizer

# Texts of a template in OpenAI's Harmony format.
_HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "analysis", "commentary")
# What ends a reply in a style, whether or not the checkpoint says so.
_ENDS = {"harmony": ("<|call|>", "<|return|>"), "gemma": ("<|tool_response>",)}


@dataclass(frozen=True)
class ReplyFormat:
    """How one model marks reasoning and tool calls."""

    reasoning: ReasoningFormat | None
    tools: ToolFormat
    _tokenizer: ReplyTokenizer = field(repr=False)

    @classmethod
    def of(cls, template_source: str | None, tokenizer: ReplyTokenizer) -> "ReplyFormat":
        """`template_source`: of the chat template; None if the model has none."""
        source = template_source or ""
        if _is_harmony(source):
            return cls._of_harmony(tokenizer)
        return cls(reasoning_format(source, tokenizer), named_in(source, tokenizer), tokenizer)

    @classmethod
    def of_template(
        cls, template: ChatTemplate, tokenizer: ReplyTokenizer, eos_token_ids: Sequence[int] = ()
    ) -> "ReplyFormat":
        """The format in which the template writes calls, found by rendering some."""
        if _is_harmony(template.source):
            return cls._of_harmony(tokenizer)
        ends = [
            tokenizer.token_bytes(token_id).decode(errors="replace") for token_id in eos_token_ids
        ]
        shown = probe(template, ends)
        if shown.reply is None:
            tools = named_in(template.tool_source, tokenizer)
        else:
            tools = shown_by(template.tool_source, shown, tokenizer)
        return cls(reasoning_format(template.source, tokenizer), tools, tokenizer)

    @classmethod
    def _of_harmony(cls, tokenizer: ReplyTokenizer) -> "ReplyFormat":
        tools = harmony(tokenizer)
        reasoning = ReasoningFormat(tools.open, _harmony_tag(tools, "<|end|>"))
        return cls(reasoning, tools, tokenizer)

    def ends(self, eos_token_ids: Sequence[int]) -> tuple[int, ...]:
        """The tokens that end a reply; `eos_token_ids`: those that the checkpoint names.

        A model whose style says how a call ends the reply stops there. The end of one message of
        Harmony ends nothing.
        """
        ids = set(eos_token_ids)
        for text in _ENDS.get(self.tools.style, ()):
            token_id = self._tokenizer.added_token_id(text)
            ids |= set() if token_id is None else {token_id}
        if self.tools.style == "harmony":
            ids -= {_harmony_tag(self.tools, "<|end|>").token_id}
        return tuple(eos_token_ids) if ids == set(eos_token_ids) else tuple(sorted(ids))

    def needs_reader(self, *, reads_tools: bool) -> bool:
        """Whether a reply can hold anything but content. If not, it needs no ReplyReader."""
        return reads_tools or self.reasoning is not None

    def opens_in_reasoning(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the reply to this prompt begins within the reasoning.

        It does if the turn that the prompt leaves open holds an opening tag without its end. A turn
        begins after the last control token. Without any, the prompt must end with the tag, because
        the text of a user may hold one.
        """
        if self.reasoning is None:
            return False
        if self.tools.style == "harmony":
            return self._opens_in_analysis(prompt_ids)
        opening, closing, label = self.reasoning
        turn, is_turn = self._open_turn(prompt_ids, (opening.token_id, closing.token_id))
        start = turn.rfind(opening.text)
        if start < 0 or start < turn.rfind(closing.text):
            return False
        return is_turn or not turn[start + len(opening.text) :].removeprefix(label).strip()

    def _open_turn(
        self, prompt_ids: Sequence[int], tags: tuple[int | None, ...]
    ) -> tuple[str, bool]:
        """The text after the last control token that is not a tag, and whether there is one."""
        start = len(prompt_ids)
        while start and not self._divides(prompt_ids[start - 1], tags):
            start -= 1
        data = b"".join(map(self._tokenizer.token_bytes, prompt_ids[start:]))
        return data.decode(errors="replace"), start > 0

    def _opens_in_analysis(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the last message of the prompt is in the channel of the reasoning, and open."""
        begins = _harmony_tag(self.tools, "<|start|>").token_id
        ids = list(prompt_ids)
        if begins in ids:
            ids = ids[len(ids) - 1 - ids[::-1].index(begins) :]
        data = b"".join(map(self._tokenizer.token_bytes, ids))
        message = data.decode(errors="replace").rpartition("<|start|>")[2]
        header, begun, text = message.partition("<|message|>")
        return bool(begun) and "<|channel|>analysis" in header and "<|end|>" not in text

    def _divides(self, token_id: int, tags: tuple[int | None, ...]) -> bool:
        return token_id not in tags and self._tokenizer.is_control(token_id)


def _is_harmony(source: str) -> bool:
    return all(text in source for text in _HARMONY)


def _harmony_tag(tools: ToolFormat, tag: str) -> Marker:
    return tools.inner[HARMONY_TAGS.index(tag)]
