"""Speculative decoding: tokens drafted before the model has computed them.

Owns the drafters (`ngram`, `model`, `mtp` for blocks that follow the model, `prediction`, all with
the protocol in `drafter`), the choice among them (`speculator`), and how long a draft pays
(`length`, `row_costs`). Drafts never change the text: the stream samples every token itself and
keeps the drafted tokens that match.
"""
