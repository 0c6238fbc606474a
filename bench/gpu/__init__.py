"""Measurements on an NVIDIA GPU: `python -m bench.gpu`, which scripts/gpu_check.py starts."""
