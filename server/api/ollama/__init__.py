"""Ollama's wire: /api/chat and /api/generate, line by line, and the routes that describe the model.

Owns the way from its bodies to those of the chat route (`bodies`), its lines (`answer`) and its
shape of errors (`errors`).
"""
