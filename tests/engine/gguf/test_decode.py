"""The reference of every type, against the `gguf` package."""

import gguf
import numpy as np
import pytest

from engine.gguf.blocks import BlockRows
from engine.gguf.decode import dequantize
from engine.gguf.types import READ, UNREAD


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_mean_the_same_numbers_bit_for_bit(name: str, seed: int) -> None:
    """Random bytes hold every code, every scale, NaN and infinity."""
    type_ = READ[name]
    rng = np.random.default_rng(seed)
    n_bytes = type_.row_bytes(512)
    rows = BlockRows(type_, rng.integers(0, 256, (700, n_bytes), np.uint8))
    ours = dequantize(rows)
    with np.errstate(all="ignore"):
        theirs = gguf.quants.dequantize(rows.rows, gguf.GGMLQuantizationType[name])
    theirs = theirs.view(np.float32).reshape(700, 512) if name == "F32" else theirs
    assert ours.dtype == np.float32
    assert ours.shape == rows.shape == (700, 512)
    same = (ours.view(np.uint32) == theirs.astype(np.float32).view(np.uint32)) | (
        np.isnan(ours) & np.isnan(theirs)
    )
    assert same.all(), np.argwhere(~same)[:3]


def test_rows_that_are_not_next_to_each_other_are_decoded() -> None:
    type_ = READ["Q6_K"]
    data = np.random.default_rng(0).integers(0, 256, (12, type_.row_bytes(256)), np.uint8)
    every_second = dequantize(BlockRows(type_, data[::2]))
    assert np.array_equal(every_second, dequantize(BlockRows(type_, data))[::2], equal_nan=True)


def test_types_have_the_numbers_and_sizes_of_the_package() -> None:
    for name, type_ in READ.items():
        theirs = gguf.GGMLQuantizationType[name]
        assert type_.id == theirs.value
        assert (type_.columns, type_.n_bytes) == gguf.GGML_QUANT_SIZES[theirs]
    read = {type_.id for type_ in READ.values()}
    for theirs in gguf.GGMLQuantizationType:
        assert theirs.value in read or UNREAD[theirs.value] == theirs.name
    assert not read & UNREAD.keys()
