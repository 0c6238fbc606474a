"""The HTTP server: OpenAI-compatible routes over one engine. Never imports torch."""
