"""The only door to compiled code.

`cpu` and `cuda` import the native modules, or say why there is none. Addresses and numbers go
through, nothing is checked: whoever calls a kernel checks dtype, shape and contiguity first.
"""
