"""Models of DeepCTR-Torch (0.3): one matrix of all columns goes in, probabilities come out.

Its own training sums the loss over the rows of a batch, and adds L2 penalties of tables and layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.inputs import InputColumns
from dlrover_nb.core.models.elastic.net import Face

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dlrover_nb.core.models.elastic.inputs import RowColumns
    from dlrover_nb.core.models.elastic.tables import TakenModule


@dataclass(frozen=True, slots=True)
class Matrix:
    """Makes the one argument: columns side by side, in the order of the model's features."""

    names: tuple[str, ...]

    def __call__(self, columns: RowColumns) -> torch.Tensor:
        """Return float32 [n, width of all features]."""
        return columns.matrix(self.names)


def face_of(source: TakenModule) -> Face:
    """Return how a model is called, and let it return logits instead of probabilities.

    Raises
    ------
    InvalidValueError
        When it has several outputs, is no binary classifier, or takes vectors of numbers.
    """
    model: Any = source.module
    if getattr(model.out, "task", None) != "binary" or getattr(model, "num_tasks", 1) != 1:
        raise InvalidValueError(
            f"{type(model).__name__} must have one binary output, got task "
            f"{getattr(model.out, 'task', None)}; build it with task='binary'"
        )
    model.out.task = "regression"  # its last layer adds a bias, and no sigmoid then
    for name in ("optim", "loss_func", "metrics"):  # of its own training
        if hasattr(model, name):
            delattr(model, name)
    row_penalties = _take_penalties(source)
    return Face(
        _columns(model),
        Matrix(tuple(model.feature_index)),
        sums_loss=True,
        penalty=_penalty,
        row_penalties=row_penalties,
    )


def _columns(model: Any) -> InputColumns:  # noqa: ANN401 - a model of the library, which is not imported
    linear = model.linear_model
    features = (
        *model.dnn_feature_columns,
        *linear.sparse_feature_columns,
        *linear.dense_feature_columns,
        *linear.varlen_sparse_feature_columns,
    )
    by_name = {feature.name: feature for feature in features}
    ids, numbers, lists = list[str](), list[str](), dict[str, int]()
    for name, (start, stop) in model.feature_index.items():
        kind = type(by_name[name]).__name__ if name in by_name else "length"
        if kind == "VarLenSparseFeat":
            lists[name] = stop - start
        if kind in {"SparseFeat", "VarLenSparseFeat"}:
            ids.append(name)
        elif stop - start == 1:
            numbers.append(name)
        else:
            raise InvalidValueError(
                f"feature {name} of {type(model).__name__} is a vector of {stop - start} numbers, and a "
                "column of the data is one number; give each of them a DenseFeat of its own"
            )
    return InputColumns(tuple(ids), tuple(numbers), tuple(lists.items()))


def _take_penalties(source: TakenModule) -> tuple[float, ...]:
    """Return the L2 factors of the tables, and leave those of other parameters to the model itself."""
    model: Any = source.module
    number = {id(each): i for i, each in enumerate(source.placeholders)}
    factors, left = [0.0] * len(number), []
    for weights, l1, l2 in model.regularization_weight:
        own = [each[1] if isinstance(each, tuple) else each for each in weights]
        tables = [number[id(each)] for each in own if id(each) in number]
        if tables and l1 > 0:
            raise InvalidValueError(
                f"the tables of {type(model).__name__} have an L1 penalty, which would have to change all "
                "rows in each step; leave it out"
            )
        for table in tables:
            factors[table] += l2
        left.append(([each for each in own if id(each) not in number], l1, l2))
    model.regularization_weight = left
    return tuple(factors)


def _penalty(module: nn.Module) -> torch.Tensor:
    """Return the penalty of the model's own parameters, and its auxiliary loss."""
    model: Any = module
    penalty: torch.Tensor = model.get_regularization_loss() + model.aux_loss
    return penalty
