"""Makes the small language model that ships with Soliton; the server imports nothing of this."""
