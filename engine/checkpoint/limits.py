"""Sizes beyond which a config.json is refused: no memory has room for what they ask."""

MAX_CONTEXT = 2**27
MAX_LAYERS = 1024
MAX_HEADS = 4096
MAX_WIDTH = 2**20
MAX_EXPERTS = 2**14
MAX_VOCAB = 2**24
