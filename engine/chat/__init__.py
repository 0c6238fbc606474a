"""Conversations: messages -> prompt, generated text -> reply.

Owns checked messages (`messages`), the prompt in which their text can never become a control token
(`prompt`, `masking`), tools (`tools`), the chat template (`template`) and the reader of replies
(`reply`). Knows no HTTP.
"""
