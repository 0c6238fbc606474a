"""The families that can be loaded, by their name in config.json."""

from . import llama, mistral, qwen2, qwen3

FAMILIES = {
    family.architecture: family
    for family in (llama.FAMILY, mistral.FAMILY, qwen2.FAMILY, qwen3.FAMILY)
}
