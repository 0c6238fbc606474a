"""The devices that compute: memory, matrices and recorded passes, on a CPU or a GPU.

`ops` holds the protocols. `cpu` and `cuda` implement them natively, `torch_ops` with the reference
in plain torch (`reference`, `recurrent_reference`). `formats` says how weights, keys and values are
stored. The devices know neither each other nor the model that they compute.
"""
