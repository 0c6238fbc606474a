"""What a model's text means: content, reasoning, tool calls.

Read `format` (the markers that a model uses, found by `markers` and `call_shape`), `reader` (text
as it streams), one module per way to write a call (`*_call`), `tokens` (which token belongs to
which part) and `grammar` (the same formats as constraints).
"""
