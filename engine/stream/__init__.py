"""One stream: prompt in, tokens and text out.

Read `generator` (begin and step), then `completion` (one step: sample, text, stop), `decoding` and
`sequence` (the model's next logits, drafts, rewinds), `held` (text that may still be taken back)
and `result` (what a step returns); `branching` has completions that share their passes.
Knows no chat and no wire format.
"""
