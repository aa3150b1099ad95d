"""The embedding tables of a module, and a copy of the module that looks its rows up elsewhere.

The copy is made by `copy.deepcopy` with a memo: wherever the module refers to a table's layer, in its tree or
in a list of its own, the copy refers to the layer that stands for it, and the values are never copied.
Refused is what needs a table as a whole, as no worker has one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import nn

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.lookups import Lookups, RowBag, RowLookup

if TYPE_CHECKING:
    from collections.abc import Iterable

    Layer = nn.Embedding | nn.EmbeddingBag

MOST_ROWS = 1 << 24  # of a table: ids reach the module among its numbers, which are float32


@dataclass(frozen=True, slots=True)
class Table:
    """An embedding table.

    Parameters
    ----------
    names
        All its names in the module's `state_dict`: several where layers share it.
    n_row, width
        Its shape.
    """

    names: tuple[str, ...]
    n_row: int
    width: int


@dataclass(frozen=True, slots=True)
class TakenModule:
    """A module without its tables.

    Parameters
    ----------
    module
        The copy; its layers look up through `lookups`.
    tables, weights
        Its tables, and their values.
    placeholders
        What stands in the copy for each of `weights`, where the module keeps it beside its layers.
    """

    module: nn.Module
    lookups: Lookups
    tables: tuple[Table, ...]
    weights: tuple[torch.Tensor, ...]
    placeholders: tuple[nn.Parameter, ...]


def take_tables(module: nn.Module) -> TakenModule:
    """Return a copy of a module whose trained embedding tables are elsewhere; the module is left as it is.

    Raises
    ------
    InvalidValueError
        When it has no such table, or one that cannot be taken.
    """
    of = type(module).__name__
    layers = [(f"{name}." if name else "", each) for name, each in _layers(module)]
    if not layers:
        raise InvalidValueError(
            f"{of} has no nn.Embedding or nn.EmbeddingBag to put on parameter servers; give the module that "
            "has them, or use dlrover_nb.trainable for a model on embedded columns"
        )
    for name, layer in layers:
        _check_layer(f"{name}weight of {of}", layer)
    weights = list({id(layer.weight): layer.weight for _, layer in layers}.values())
    number = {id(weight): i for i, weight in enumerate(weights)}
    lookups = Lookups(tuple(_first_name(layers, weight) for weight in weights))
    placeholders = [nn.Parameter(torch.empty(0, device="meta")) for _ in weights]
    memo: dict[int, Any] = {id(w): p for w, p in zip(weights, placeholders, strict=True)}
    memo |= {id(layer): _stand_in(layer, number[id(layer.weight)], lookups) for _, layer in layers}
    stripped = copy.deepcopy(module, memo)
    _check_whole(of, stripped, placeholders, lookups.names)
    tables = tuple(
        Table(tuple(f"{n}weight" for n, layer in layers if layer.weight is weight), *weight.shape)
        for weight in weights
    )
    return TakenModule(stripped, lookups, tables, tuple(w.detach() for w in weights), tuple(placeholders))


def _layers(module: nn.Module) -> Iterable[tuple[str, Layer]]:
    """Yield the layers with tables that are trained, by all their names."""
    for name, each in module.named_modules(remove_duplicate=False):
        if _is_layer(each) and each.weight.requires_grad:
            yield name, each


def _is_layer(module: nn.Module) -> TypeGuard[Layer]:
    return isinstance(module, nn.Embedding | nn.EmbeddingBag)


def _first_name(layers: list[tuple[str, Layer]], weight: torch.Tensor) -> str:
    return next(f"{name}weight" for name, layer in layers if layer.weight is weight)


def _check_layer(name: str, layer: Layer) -> None:
    if type(layer) not in {nn.Embedding, nn.EmbeddingBag}:
        raise InvalidValueError(
            f"{name} belongs to a {type(layer).__name__}, whose own code may need the whole table; use "
            "nn.Embedding or nn.EmbeddingBag itself"
        )
    for option, words in (("max_norm", "renormalizes rows"), ("scale_grad_by_freq", "scales gradients")):
        if getattr(layer, option):
            raise InvalidValueError(
                f"{name} has {option}={getattr(layer, option)}, which {words} in a way that no optimizer of "
                f"the parameter servers does; build it without {option}"
            )
    weight = layer.weight
    if weight.dtype is not torch.float32 or weight.device.type != "cpu":
        raise InvalidValueError(
            f"{name} must be float32 on the CPU, got {weight.dtype} on {weight.device}; use .float().cpu()"
        )
    if len(weight) > MOST_ROWS:
        raise InvalidValueError(
            f"{name} must have at most {MOST_ROWS:,} rows, got {len(weight):,}: ids are given to the module "
            "among float32 numbers; use dlrover_nb.trainable, which hashes ids of any number"
        )


def _stand_in(layer: Layer, table: int, lookups: Lookups) -> nn.Module:
    shape = layer.num_embeddings, layer.embedding_dim
    if isinstance(layer, nn.Embedding):
        return RowLookup(lookups, table, shape, layer.padding_idx)
    return RowBag(
        lookups, table, shape, layer.padding_idx, mode=layer.mode, include_last=layer.include_last_offset
    )


def _check_whole(
    of: str, stripped: nn.Module, placeholders: list[nn.Parameter], names: tuple[str, ...]
) -> None:
    """Refuse a module that has a table's values beside its layer, such as tied output weights."""
    number = {id(each): i for i, each in enumerate(placeholders)}
    for name, parameter in stripped.named_parameters():
        if id(parameter) in number:
            raise InvalidValueError(
                f"{of} uses the table {names[number[id(parameter)]]} as its parameter {name}, too, which no "
                "worker has as a whole; give the two weights of their own"
            )
