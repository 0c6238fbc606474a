"""The decoder: token ids and positions in, logits out.

Owns the forward pass, recorded once per number of rows (`model`), its weights (`weights`), the
rotary tables (`rope`), the ops of recurrent layers (`recurrent`), and passes whose rows are
branches of one sequence (`branches`). Knows no sampling and no device, only the protocols of
`device.ops`.
"""
