"""The decoder: token ids and positions in, logits out.

Owns the forward pass, recorded once per number of rows (`model`), its weights (`weights`) and the
rotary tables (`rope`). Knows no sampling and no device, only the protocols of `device.ops`.
"""
