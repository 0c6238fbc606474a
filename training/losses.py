"""Measures held-out losses of a model, and how often two models agree.

Owns the rows that are measured and the arithmetic. Knows nothing of what the numbers are for.
"""

import math

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from training.corpus import Split
from training.data import Batch, encode_documents, held_out_batch
from training.measures import Loss
from training.model import Llama

CONTEXT = 256
ROWS_AT_ONCE = 16


def held_out_rows(split: Split, tokenizer: Tokenizer, max_rows: int) -> Batch:
    """About one pass over the held-out documents, at most `max_rows` rows."""
    corpus = encode_documents(split.held_out, tokenizer)
    n_rows = max(1, min(max_rows, len(corpus.token_ids) // CONTEXT))
    return held_out_batch(corpus, tokenizer, n_rows=n_rows, context=CONTEXT)


@torch.no_grad()
def loss(model: Llama, batch: Batch, tokenizer: Tokenizer) -> Loss:
    """Mean loss over what the model should write; bytes are those of the same tokens."""
    nats = 0.0
    for begin in range(0, len(batch.token_ids), ROWS_AT_ONCE):
        rows = torch.from_numpy(batch.token_ids[begin : begin + ROWS_AT_ONCE])
        weights = torch.from_numpy(batch.weights[begin : begin + ROWS_AT_ONCE])
        logits = model(rows[:, :-1])  # (B, T, V)
        losses = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
        nats += float((losses * weights.flatten()).sum())
    counted = batch.token_ids[:, 1:][batch.weights > 0]
    n_bytes = int(token_lengths(tokenizer)[torch.from_numpy(counted)].sum())
    return Loss(nats / len(counted), nats / math.log(2) / n_bytes, len(counted))


@torch.no_grad()
def agreement(target: Llama, draft: Llama, batch: Batch) -> float:
    """The share of positions where the draft's most likely token is the target's too."""
    agreed = total = 0
    for begin in range(0, len(batch.token_ids), ROWS_AT_ONCE):
        rows = torch.from_numpy(batch.token_ids[begin : begin + ROWS_AT_ONCE, :-1])
        same = target(rows).argmax(-1) == draft(rows).argmax(-1)
        agreed += int(same.sum())
        total += same.numel()
    return agreed / total


def token_lengths(tokenizer: Tokenizer) -> torch.Tensor:
    """Bytes of text of every token; special tokens have none."""
    lengths = torch.zeros(tokenizer.get_vocab_size(), dtype=torch.long)
    special = set(tokenizer.get_added_tokens_decoder())
    for token, token_id in tokenizer.get_vocab().items():
        # A byte-level token is spelled with one character for each of its bytes.
        lengths[token_id] = 0 if token_id in special else len(token)
    return lengths
