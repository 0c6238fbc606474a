"""Makes the small language model that ships with Soliton; nothing of the server imports it."""
