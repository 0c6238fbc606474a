"""Speculative decoding: tokens guessed before the model has computed them.

Owns the drafters (`ngram`, `model`, `prediction`, with the protocol in `drafter`), the choice
between them (`speculator`) and the length of drafts (`length`, `row_costs`). Drafts never change
the text: the stream samples every token itself and keeps the drafts that match.
"""
