"""What has been said: the system message, questions and answers. Knows no terminal and no model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .answer import Answer, Message


@dataclass(frozen=True)
class Conversation:
    """Values only: every change makes a new one, so that an earlier one can come back."""

    system: str | None = None
    messages: tuple[Message, ...] = ()
    """Without the system message."""
    answer: Answer | None = None
    """The last message with its tokens; None if there is none, or if it came from a file."""

    @property
    def sent(self) -> list[Message]:
        """What the model gets."""
        first: list[Message] = []
        if self.system is not None:
            first = [{"role": "system", "content": self.system}]
        return [*first, *self.messages]

    def with_question(self, text: str) -> "Conversation":
        return replace(
            self, messages=(*self.messages, {"role": "user", "content": text}), answer=None
        )

    def with_answer(self, answer: Answer) -> "Conversation":
        """The answer to the last question, instead of the one that it may have already."""
        messages = self.messages
        if messages and messages[-1]["role"] == "assistant":
            messages = messages[:-1]
        said = {"role": "assistant", "content": answer.text}
        return replace(self, messages=(*messages, said), answer=answer)

    def with_system(self, text: str | None) -> "Conversation":
        return replace(self, system=text)

    def cleared(self) -> "Conversation":
        return Conversation(self.system)

    def before_last_question(self) -> tuple["Conversation", str] | None:
        """The conversation without its last question, and that question; None without any."""
        for index in range(len(self.messages) - 1, -1, -1):
            message = self.messages[index]
            if message["role"] == "user":
                before = replace(self, messages=self.messages[:index], answer=None)
                return before, str(message["content"])
        return None

    @classmethod
    def of_messages(cls, messages: Sequence[Message]) -> "Conversation":
        if messages and messages[0]["role"] == "system":
            return cls(str(messages[0]["content"]), tuple(messages[1:]))
        return cls(None, tuple(messages))
