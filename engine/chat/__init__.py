"""Conversations: messages -> prompt, generated text -> reply.

Owns checked messages (`messages`), prompts in which a message's text can never become a control
token (`prompt`, `masking`), tools (`tools`), the chat template (`template`) and the reader of
replies (`reply`). Knows no wire format.
"""
