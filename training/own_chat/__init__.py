"""The project's own chat data: seeded, generated dialogues for the built-in model.

Plain Python and word lists; knows nothing of tokens, corpora files or training.
"""

from .dialogues import own_chats

__all__ = ["own_chats"]
