"""The routes: a module or a folder for each family of them.

`completions` and `chat` do not know each other; they share `respond` (queue, first event, status
line). `contract`, `examples` and `docs` publish openapi.yaml.
"""
