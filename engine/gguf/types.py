"""The types of tensors in GGUF files: their numbers, and the sizes of their blocks.

Owns the table. Which of them a device can multiply with, the device knows.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockType:
    """A row of a tensor is cut into blocks of `columns` weights, `n_bytes` each."""

    name: str
    id: int
    """Its number in a file."""
    columns: int
    n_bytes: int

    def row_bytes(self, n_in: int) -> int:
        """Bytes of a row; `n_in` is a multiple of `columns`."""
        return n_in // self.columns * self.n_bytes


# Source: ggml's type ids and block sizes (MIT), which the file format fixes.
READ = {
    each.name: each
    for each in (
        BlockType("F32", 0, 1, 4),
        BlockType("F16", 1, 1, 2),
        BlockType("Q4_0", 2, 32, 18),
        BlockType("Q4_1", 3, 32, 20),
        BlockType("Q5_0", 6, 32, 22),
        BlockType("Q5_1", 7, 32, 24),
        BlockType("Q8_0", 8, 32, 34),
        BlockType("Q2_K", 10, 256, 84),
        BlockType("Q3_K", 11, 256, 110),
        BlockType("Q4_K", 12, 256, 144),
        BlockType("Q5_K", 13, 256, 176),
        BlockType("Q6_K", 14, 256, 210),
        BlockType("IQ4_NL", 20, 32, 18),
        BlockType("IQ4_XS", 23, 256, 136),
        BlockType("BF16", 30, 1, 2),
        BlockType("MXFP4", 39, 32, 17),
    )
}
"""The types that can be read, by name."""
