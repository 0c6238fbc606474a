"""The only place that imports compiled code.

`cpu` and `cuda` import the native modules, or say why they are missing. Kernels take addresses and
numbers and check nothing: the caller checks dtype, shape and contiguity first.
"""
