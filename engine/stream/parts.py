"""What a completion is put together from, for its settings and options.

Owns how each part follows from the options: the sampler, the constraint, the stop tokens, the
healing, the conditions. Knows no running state.
"""

from collections.abc import Sequence

import numpy as np

from ..errors import InvalidInputError
from ..grammar.compiler import ConstraintCompiler
from ..grammar.constraint import Constraint
from ..grammar.spec import ConstraintSpec
from ..model.model import Model
from ..sampling.sampler import Sampler
from ..sampling.settings import SamplingSettings
from ..sampling.token_masks import SamplerVocabulary
from ..text.prefix_index import PrefixIndex
from ..text.vocabulary import Vocabulary
from .healing import Healing
from .options import StreamOptions
from .stop_when import StopConditions


class Parts:
    """Makes the parts of one generator's completions."""

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        *,
        eos_token_ids: Sequence[int],
        constraints: ConstraintCompiler | None,
    ) -> None:
        """`constraints`: None refuses every constraint."""
        self.vocabulary = vocabulary
        self.vocab_size = model.config.vocab_size
        self._draw = model.ops.sample
        self._eos_token_ids = frozenset(eos_token_ids)
        self._constraints = constraints
        self._sampler_vocabulary = SamplerVocabulary(vocabulary, self.vocab_size)
        self._prefix_index = PrefixIndex(vocabulary, self.vocab_size)
        self._sampler_work = np.empty(self.vocab_size, dtype=np.float32)

    def sampler(
        self, settings: SamplingSettings, prompt_ids: Sequence[int], options: StreamOptions
    ) -> Sampler:
        """Raises InvalidInputError for a token id outside the vocabulary."""
        return Sampler(
            settings,
            prompt_ids=prompt_ids,
            vocabulary=self._sampler_vocabulary,
            work=self._sampler_work,
            n_top=options.return_top_tokens,
            trace=options.return_trace,
            draw=self._draw,
        )

    def constraint(
        self,
        spec: ConstraintSpec | None,
        token_ids: Sequence[int] = (),
        *,
        healed: bytes | None = None,
    ) -> Constraint | None:
        """After a text of `token_ids`, the first of which adds only the bytes `healed`, if given.

        Raises InvalidInputError for one that cannot be compiled, or that forbids this text.
        """
        if spec is None:
            return None
        if self._constraints is None:
            raise InvalidInputError("this generator has no constraints", param=spec.param)
        constraint = self._constraints.compile(spec, param=spec.param)
        if healed is not None:
            constraint.accept_bytes(healed)
            token_ids = token_ids[1:]
        if token_ids:
            constraint.accept_all(token_ids)
        return constraint

    def stop_token_ids(self, options: StreamOptions) -> frozenset[int]:
        given = options.stop_token_ids
        stops = self._eos_token_ids if given is None else frozenset(given)
        if options.constraint is not None:
            # Under a constraint they are the only way to say that the text is complete.
            return stops | self._eos_token_ids
        return stops - self._eos_token_ids if options.ignore_eos else stops

    def conditions(self, sums: Sequence[float]) -> StopConditions:
        """`sums`: as those of an earlier completion that goes on here; () for a new one."""
        return StopConditions(sorted(self._eos_token_ids), sums)

    def healing(self, prompt_ids: Sequence[int], options: StreamOptions) -> Healing | None:
        """How to heal the last token of the prompt; None if it cannot be part of another token."""
        if not options.token_healing or len(prompt_ids) < 2:
            return None
        last = prompt_ids[-1]
        if self.vocabulary.is_control(last):
            return None
        prefix = self.vocabulary.token_bytes(last)
        return Healing(last, self._prefix_index, prefix) if prefix else None

    def token_ids_of(self, text: str) -> tuple[int, ...]:
        """All tokens of exactly this text; no control tokens."""
        return tuple(self._prefix_index.ids_equal_to(text.encode()).tolist())

    def shown(self, token_id: int, options: StreamOptions) -> bytes:
        """The bytes that a token adds to the text, healing aside."""
        if self.vocabulary.is_special(token_id) and not options.decode_special_tokens:
            return b""
        return self.vocabulary.token_bytes(token_id)
