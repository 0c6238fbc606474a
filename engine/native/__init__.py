"""The only imports of compiled code.

`cpu` and `cuda` import the native modules, or say why one is missing. Addresses and numbers pass
through unchecked: the caller of a kernel checks dtype, shape and contiguity first.
"""
