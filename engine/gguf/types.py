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

UNREAD = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0",
    36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}  # fmt: skip
"""The names of the types that cannot be read, for the errors that say so."""
