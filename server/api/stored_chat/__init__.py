"""OpenAI's stored chat completions, over the kept streams. Knows no other route."""
