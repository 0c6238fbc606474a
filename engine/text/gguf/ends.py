"""Which tokens end an answer.

Owns the texts that mean this in every model that has them, and their exceptions. Files name one or
two such tokens by id, and models write others too.
"""

from collections.abc import Collection

# Ends of turns, of messages and of texts, then what follows filled-in text.
ENDS = frozenset((
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "[e~[",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
))  # fmt: skip
# In these vocabularies <|end|> ends a message, and more of the answer may follow.
_MESSAGES_END = ({"<|return|>", "<|call|>"}, {"<|call|>", "<|flush|>"}, {"<|calls|>", "<|flush|>"})


def ending_texts(control: Collection[str]) -> frozenset[str]:
    """Those of the control tokens that end an answer."""
    found = ENDS.intersection(control)
    if any(pair <= found for pair in _MESSAGES_END):
        return found - {"<|end|>"}
    return found
