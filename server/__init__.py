"""The HTTP server: OpenAI-compatible routes over the models. Never imports torch."""
