"""Pydantic models of requests and answers, one module per family of routes."""
