"""Reads a model directory: its tensors, and what it says about itself.

Owns config.json (`config`, `rope_keys`, `families`), generation_config.json and the safetensors
files (`safetensors`, `sample`). Knows no device: values are read, not converted.
"""
