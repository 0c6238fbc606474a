"""The ids of a prompt as a caller gives them. Owns what is refused, and how it is told."""

from collections.abc import Sequence
from operator import index

from ..errors import ContextLengthError, InvalidInputError
from ..text.token_ids import check_token_ids
from .options import IdArray


def checked_prompt(
    input_ids: Sequence[int] | IdArray, name: str, *, param: str, vocab_size: int, most: int
) -> list[int]:
    """The ids of a sequence, or of an array (n,) or (1, n).

    `name`: of the prompt, for errors; `most`: tokens that fit, of which one must be left to
    generate. Raises InvalidInputError and ContextLengthError.
    """
    if isinstance(input_ids, IdArray):
        shape = tuple(input_ids.shape)
        if len(shape) != 1 and (len(shape) != 2 or shape[0] != 1):
            raise InvalidInputError(
                f"the {name} must have shape (n,) or (1, n), not {shape}", param=param
            )
        values = input_ids.tolist()
        values = values[0] if len(shape) == 2 else values
    else:
        values = input_ids
    try:
        token_ids = [index(token_id) for token_id in values]
    except TypeError as error:
        raise InvalidInputError(f"the {name} must hold token ids: {error}", param=param) from None
    if not token_ids:
        raise InvalidInputError(f"the {name} is empty: it needs at least one token", param=param)
    check_token_ids(param, token_ids, vocab_size)
    if len(token_ids) >= most:
        raise ContextLengthError(len(token_ids), most, param=param)
    return token_ids
