"""Model families as data: how each writes config.json, and where its tensors are.

One file per family, `family.py` for what they are made of, `known.py` for the list. Knows no file
format and no device.
"""
