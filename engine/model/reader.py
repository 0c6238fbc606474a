"""The reading of stored tensors into memory of the ops, with what was read before.

Owns how sources become a matrix or a vector, the panels that a cache holds, and the count of the
bytes. Knows no layer: `loading.py` asks for one weight after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..checkpoint.sources import Source
from ..checkpoint.stored import as_float32, plain_values
from ..device.arguments import Array, Matrix
from ..device.formats import Format
from ..device.ops import NotFiniteError, Ops, Stored
from ..errors import ModelLoadError
from ..stored_tensor import StoredTensor
from .calibration import Floats
from .weights import NO_MATRIX

if TYPE_CHECKING:
    from ..device.cpu.panel_cache import PanelCache

T = TypeVar("T")


class Progress:
    """Counts the bytes that are read, and reports them."""

    def __init__(self, total: int, on_progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total = 0.0, total
        self._on_progress = on_progress

    def add(self, n_bytes: float) -> None:
        self._done += n_bytes
        if self._on_progress is not None:
            self._on_progress(round(self._done), self._total)


class Reader:
    """Turns sources, several of them stacked by rows, into memory of the ops."""

    def __init__(
        self,
        tensors: Mapping[str, StoredTensor],
        ops: Ops,
        read: Callable[[StoredTensor], Stored],
        panels: "PanelCache | None",
        progress: Progress,
    ) -> None:
        self._tensors = tensors
        self._ops = ops
        self._stored = read
        self._panels = panels
        self._progress = progress
        self._read_before: dict[str, list[Stored]] = {}
        self._of_all_experts: dict[str, Stored] = {}

    def matrix(
        self,
        sources: Sequence[Source],
        format_: Format,
        *,
        gated: bool = False,
        importance: Floats | None = None,
    ) -> Matrix:
        """`importance`: of the columns, for ops that calibrate. NO_MATRIX without sources."""
        if not sources:
            return NO_MATRIX
        name = _name(sources)
        if self._panels is not None:
            shapes = [source.part_shape for source in sources]
            kept = self._panels.get(name, shapes, format_, gated=gated)
            if kept is not None:
                self._count(sources)
                return kept
        parts = self._read_before.pop(name, None) or self._parts(sources)
        matrix = self._converted(
            sources,
            lambda: self._ops.matrix(parts, format_, gated=gated, importance=importance),
        )
        self._count(sources)
        if self._panels is not None:
            self._panels.put(name, matrix)
        return matrix

    def copy(self, sources: Sequence[Source], format_: Format, *, gated: bool = False) -> Matrix:
        """A copy that comes before the matrix: it is not from the panels and does not go there."""
        if not sources:
            return NO_MATRIX
        parts = self._parts(sources)
        self._read_before[_name(sources)] = parts
        return self._converted(
            sources, lambda: self._ops.matrix(parts, format_, gated=gated, temporary=True)
        )

    def vector(self, sources: Sequence[Source]) -> Array | None:
        """None where there are no sources."""
        if not sources:
            return None
        return self._vector(sources, self._parts(sources))

    def numbers(self, sources: Sequence[Source]) -> list[float]:
        """Those of a vector, which ops take as they are."""
        self.vector(sources)  # refuses what is not finite
        stored = [as_float32(plain_values(self._tensors[source.name])) for source in sources]
        return [float(value) for values in stored for value in values.reshape(-1)]

    def optional_norm(self, sources: Sequence[Source]) -> Array | None:
        """None where there are no sources."""
        return self.norm(sources) if sources else None

    def norm(self, sources: Sequence[Source]) -> Array:
        """A vector that scales: all zeros mean a hole in the file, not weights."""
        parts = self._parts(sources)
        for source, part in zip(sources, parts, strict=True):
            if not (source.plus or part.any()):
                file = self._tensors[source.name].file
                raise ModelLoadError(
                    f"{file}: {source.name}: all zeros; the file may be incomplete"
                )
        return self._vector(sources, parts)

    def _vector(self, sources: Sequence[Source], parts: Sequence[Stored]) -> Array:
        plus, times = sources[0].plus, sources[0].times
        vector = self._converted(sources, lambda: self._ops.vector(parts, plus=plus, times=times))
        self._count(sources)
        return vector

    def _parts(self, sources: Sequence[Source]) -> list[Stored]:
        """Parts of one tensor are read together."""
        names = dict.fromkeys(source.name for source in sources)
        held = {source.name for source in sources if source.expert is not None}
        stored = {}
        for name in names:
            whole = self._of_all_experts.get(name)
            stored[name] = self._stored(self._tensors[name]) if whole is None else whole
            if name in held:
                self._of_all_experts[name] = stored[name]
        return [source.of(stored[source.name]) for source in sources]

    def forget(self) -> None:
        """The tensors that hold all experts of a layer, which are read once for all of them."""
        self._of_all_experts.clear()

    def _converted(self, sources: Sequence[Source], convert: Callable[[], T]) -> T:
        try:
            return convert()
        except NotFiniteError as error:
            raise self._refusal(sources, error.index) from error

    def _count(self, sources: Sequence[Source]) -> None:
        self._progress.add(
            sum(source.share * self._tensors[source.name].n_bytes for source in sources)
        )

    def _refusal(self, sources: Sequence[Source], index: tuple[int, ...]) -> ModelLoadError:
        """`index` of a NaN or infinity is counted through the stacked sources."""
        row, *rest = index
        for source in sources:
            n_rows = source.part_shape[0]
            if row < n_rows:
                break
            row -= n_rows
        place = list(source.stored_index((row, *rest)))
        file = self._tensors[source.name].file
        return ModelLoadError(f"{file}: {source.name}: not finite at {place}")


def _name(sources: Sequence[Source]) -> str:
    """Of a matrix that is made of these."""
    return " ".join(source.part for source in sources)
