"""How another thread stops a running stream.

Owns the flag. Knows no thread: the server sets it from its event loop, a command from a signal.
"""

import numpy as np
import numpy.typing as npt


class AbortFlag:
    """Set once, from any thread; the generator looks at it before every token.

    A long prefill runs inside native code, which sees no Python object. So the flag is also
    written to a word of the running step, which that code reads before each op.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._word: npt.NDArray[np.int64] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._word is not None:
            self._word[0] = 1

    def write_to(self, word: npt.NDArray[np.int64]) -> None:
        """From now on `word` (1,) is 1 when the flag is set. Nothing else may use the word: it may
        be written at any later time.
        """
        self._word = word
        # Only now, so that no call of `set` is missed.
        if self._is_set:
            word[0] = 1
