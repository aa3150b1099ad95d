"""Models of FuxiCTR (2.3): a mapping from features to tensors goes in, one with probabilities comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.inputs import InputColumns
from dlrover_nb.core.models.elastic.net import Face

if TYPE_CHECKING:
    from dlrover_nb.core.models.elastic.inputs import RowColumns
    from dlrover_nb.core.models.elastic.tables import TakenModule


@dataclass(frozen=True, slots=True)
class Features:
    """Makes the one argument: each feature by its name."""

    names: tuple[str, ...]

    def __call__(self, columns: RowColumns) -> dict[str, torch.Tensor]:
        """Return ids and numbers as the library's own loaders do."""
        return {name: columns[name] for name in self.names}


def face_of(source: TakenModule) -> Face:
    """Return how a model is called, and let it return logits instead of probabilities.

    Raises
    ------
    InvalidValueError
        When it is no binary classifier, or takes other features than ids, lists of ids and numbers.
    """
    model: Any = source.module
    if not isinstance(model.output_activation, nn.Sigmoid):
        raise InvalidValueError(
            f"{type(model).__name__} must be a binary classifier, got the output activation "
            f"{type(model.output_activation).__name__}; build it with task='binary_classification'"
        )
    model.output_activation = nn.Identity()
    model.optimizer = model.loss_fn = None  # of its own training
    columns = _columns(model)
    return Face(
        columns,
        Features((*columns.ids, *columns.numbers)),
        _predicted,
        penalty=_penalty,
        row_penalties=_take_penalties(source),
    )


def _columns(model: Any) -> InputColumns:  # noqa: ANN401 - a model of the library, which is not imported
    ids, numbers, lists = list[str](), list[str](), dict[str, int]()
    for name, spec in model.feature_map.features.items():
        match spec["type"]:
            case "meta":
                continue
            case "numeric":
                numbers.append(name)
            case "categorical":
                ids.append(name)
            case "sequence":
                ids.append(name)
                lists[name] = int(spec["max_len"])
            case other:
                raise InvalidValueError(
                    f"feature {name} of {type(model).__name__} has the type {other}; expected categorical, "
                    "sequence or numeric"
                )
    return InputColumns(tuple(ids), tuple(numbers), tuple(lists.items()))


def _predicted(output: Any) -> torch.Tensor:  # noqa: ANN401 - what the model returns
    predicted: torch.Tensor = output["y_pred"]
    return predicted


def _take_penalties(source: TakenModule) -> tuple[float, ...]:
    """Return the L2 factors of the tables; the library has lambda / 2 times the square."""
    model: Any = source.module
    regularizer = model._embedding_regularizer  # noqa: SLF001 - the library has no other name for it
    if not regularizer:
        return ()
    try:
        factor = float(regularizer)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"embedding_regularizer of {type(model).__name__} must be a number, the factor of an L2 penalty, "
            f"got {regularizer!r}"
        ) from None
    return (factor / 2,) * len(source.tables)


def _penalty(module: nn.Module) -> torch.Tensor:
    """Return the penalty of the parameters that are no tables."""
    model: Any = module
    return torch.as_tensor(model.regularization_loss())
