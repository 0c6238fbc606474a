"""What a model's text means: content, reasoning, tool calls.

Read `format` (which markers a model uses, found by `markers` and `call_shape`), `reader` (text as
it streams), one module for each way to write a call (`*_call`), `tokens` (which token belongs to
what) and `grammar` (the same formats as constraints).
"""
