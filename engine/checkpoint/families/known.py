"""The families that can be loaded, by their name in config.json, and the architectures of GGUF
files, by their name in the metadata.
"""

from . import llama, mistral, qwen2, qwen3
from .architecture import Architecture

FAMILIES = {
    family.architecture: family
    for family in (llama.FAMILY, mistral.FAMILY, qwen2.FAMILY, qwen3.FAMILY)
}
ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture(name="llama", rope_pairs=True),  # Mistral too
        Architecture(name="qwen2", qkv_bias=True),
        Architecture(name="qwen3", qk_norm=True),
    )
}
