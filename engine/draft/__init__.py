"""Speculative decoding: tokens guessed before the model has computed them.

Owns who guesses (`ngram`, `model`, `prediction`, behind the protocol in `drafter`), which guess is
taken (`speculator`) and how long it pays (`length`, `row_costs`). Drafts never change the text:
the stream samples every token itself and keeps the drafts that match.
"""
