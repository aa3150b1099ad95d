"""The built-in models by name, and their sizes without importing torch.

A model is added by one line in `MODELS`: its number of dense parameters, and the place of its module. The
number is a formula and not a built module, because the job master and the PS need it without the 200 MiB of
torch; a test compares formula and module.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.trainable import CUSTOM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.structs.data.features import SequenceInput
    from dlrover_nb.core.structs.job.job import ModelSpec


@dataclass(frozen=True, slots=True)
class ModelKind:
    """One kind of model.

    Parameters
    ----------
    count
        (spec, n_categorical, n_numeric) -> number of dense parameters.
    module
        ``package.module:Class`` of its torch module, built as ``Class(spec, n_categorical, n_numeric)`` and
        called with `embedded` [batch, n_categorical, row_width] and `dense` [batch, n_numeric].
    takes_history
        Whether it is built with a sequence as well, which has the embeddings of a column of single ids.
    """

    count: Callable[[ModelSpec, int, int], int]
    module: str
    takes_history: bool = False


def _count_deep(model: ModelSpec, n_categorical: int, n_numeric: int) -> int:
    widths = (n_categorical * model.embedding_dim + n_numeric, *model.hidden, 1)
    return sum(a * b + b for a, b in pairwise(widths))


def _count_wide_deep(model: ModelSpec, n_categorical: int, n_numeric: int) -> int:
    return _count_deep(model, n_categorical, n_numeric) + n_numeric + 1


def _count_dcn_v2(model: ModelSpec, n_categorical: int, n_numeric: int) -> int:
    width = n_categorical * model.embedding_dim + n_numeric
    cross = model.cross_layers * (width * width + width)
    return _count_deep(model, n_categorical, n_numeric) + cross + width + 1


def _count_xdeepfm(model: ModelSpec, n_categorical: int, n_numeric: int) -> int:
    cin = sum(before * after for before, after in pairwise((n_categorical, *model.cin))) * n_categorical
    return _count_wide_deep(model, n_categorical, n_numeric) + cin + sum(model.cin) + 1


def _count_din(model: ModelSpec, n_categorical: int, n_numeric: int) -> int:
    unit = sum(a * b + b for a, b in pairwise((4 * model.embedding_dim, *model.attention, 1)))
    return _count_deep(model, n_categorical, n_numeric) + unit + len(model.attention)


MODELS = {
    "wide_deep": ModelKind(_count_wide_deep, "dlrover_nb.core.models.wide_deep:WideDeep"),
    "dcn_v2": ModelKind(_count_dcn_v2, "dlrover_nb.core.models.dcn_v2:DcnV2"),
    "xdeepfm": ModelKind(_count_xdeepfm, "dlrover_nb.core.models.xdeepfm:XDeepFm"),
    "din": ModelKind(_count_din, "dlrover_nb.core.models.din:Din", takes_history=True),
}


def model_kind(name: str) -> ModelKind:
    """Return the kind of model called `name`.

    Raises
    ------
    InvalidValueError
        When there is none.
    """
    if name not in MODELS:
        names = ", ".join(sorted(MODELS))
        raise InvalidValueError(f"model must be one of {names}, or custom with code, got {name!r}")
    return MODELS[name]


def histories_of(name: str, sequences: Sequence[SequenceInput]) -> tuple[SequenceInput, ...]:
    """Return the sequence that a built-in model is built with; none for those that take bags alone.

    Raises
    ------
    InvalidValueError
        When the data has none of this kind, or several.
    """
    if not model_kind(name).takes_history:
        return ()
    histories = [each for each in sequences if each.target is not None]
    if len(histories) != 1:
        got = " and ".join(each.name for each in histories) or "none"
        raise InvalidValueError(
            f"model {name} weighs one history by the item that is scored, got {got}; name one column of "
            "lists in data.sequences with embedding_of, the column of that item"
        )
    return tuple(histories)


def dense_parameter_count(model: ModelSpec, n_categorical: int, n_numeric: int) -> int:
    """Return the length of the flat vector of dense parameters; M of Eq. 4 is four bytes for each."""
    if model.name == CUSTOM:
        return model.n_dense
    return model_kind(model.name).count(model, n_categorical, n_numeric)
