"""A user's own module: built, and checked on a few rows before a job starts with it.

Every error that one batch shows is one line at submit instead of a failed job: a wrong shape, a parameter
that cannot be flattened, a buffer that changes and is no running average, an error of the user's own code.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parameter import is_lazy

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.batch_norms import BatchNorms
from dlrover_nb.core.models.elastic.net import ElasticNet
from dlrover_nb.core.models.inputs import TAKES, takes_sequences
from dlrover_nb.core.models.trainable import LOSS, Columns
from dlrover_nb.core.usercode import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.structs.job.job import Averages

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

SEED = 1
N_SCORED = 64  # random rows of each scale
SCALES = (1.0, 30.0, 1000.0)


@dataclass(frozen=True, slots=True)
class Checked:
    """A module that keeps to the contract, and what looks like a mistake.

    Parameters
    ----------
    n_dense, averages
        As of `ModelSpec`.
    warnings
        One line each.
    """

    n_dense: int
    warnings: tuple[str, ...] = ()
    averages: tuple[Averages, ...] = ()


@dataclass(frozen=True, slots=True)
class Built:
    """A module and its loss."""

    module: nn.Module
    loss: Loss


def build(factory: object, columns: Columns) -> Built:
    """Call a user's factory.

    Raises
    ------
    InvalidValueError
        When it fails, gives no module, or its parameters cannot live on a PS.
    """
    name = name_of(factory)
    if not callable(factory):
        raise InvalidValueError(f"expected a class or function that makes a module, got {name}")
    _check_takes(name, factory, "(columns)", columns)
    module = _guarded(f"{name}(columns)", lambda: factory(columns))
    if not isinstance(module, nn.Module):
        raise InvalidValueError(f"{name}(columns) must return a torch.nn.Module, got {type(module).__name__}")
    if not isinstance(module, ElasticNet):
        more = dict.fromkeys([TAKES] if takes_sequences(module) else [])
        _check_takes(f"forward of {name}", module.forward, "(embedded, dense)", None, None, **more)
    _check_parameters(name, module)
    return Built(module, getattr(factory, LOSS, None) or _own_loss(module))


def _check_takes(
    name: str, function: Callable[..., object], wanted: str, *arguments: object, **more: object
) -> None:
    """Refuse what is not made for these arguments, as models of other libraries are not."""
    try:
        parameters = signature(function)
    except (TypeError, ValueError):  # not known: the call will show
        return
    try:
        parameters.bind(*arguments, **more)
    except TypeError as error:
        raise InvalidValueError(
            f"{name} must take {wanted}: {error}; wrap it in a module of your own that does"
        ) from error


def _own_loss(module: nn.Module) -> Loss:
    own = getattr(module, "loss", None)
    return own if callable(own) else functional.binary_cross_entropy_with_logits


def _check_parameters(name: str, module: nn.Module) -> None:
    for tensor_name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise InvalidValueError(f"{tensor_name} of {name} has no size yet; initialize lazy layers first")
    for parameter_name, parameter in module.named_parameters():
        if parameter.dtype is not torch.float32 or parameter.device.type != "cpu":
            raise InvalidValueError(
                f"parameter {parameter_name} of {name} must be float32 on the CPU, got {parameter.dtype} on "
                f"{parameter.device}"
            )


def check(factory: object, columns: Columns, n_rows: Iterable[int]) -> Checked:
    """Train one batch of each size and score rows, on random input.

    Raises
    ------
    InvalidValueError
        When the module violates the contract of `trainable`; it says how.
    """
    name = name_of(factory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        built = build(factory, columns)
        for n_row in n_rows:
            _try_training(name, built, columns, n_row)
        built.module.eval()
        with torch.inference_mode():
            _logits(name, built.module, columns, 1)
            warnings = (_PROBABILITIES.format(name=name),) if _are_probabilities(built, columns) else ()
    norms = BatchNorms(built.module)
    n_dense = sum(each.numel() for each in (*built.module.parameters(), *norms.buffers))
    return Checked(n_dense, warnings, norms.averages)


_PROBABILITIES = (
    "{name} seems to return probabilities: all outputs for random rows lie between 0 and 1; return logits "
    "(leave out the last sigmoid), as the loss and the predictions apply it"
)


def _are_probabilities(built: Built, columns: Columns) -> bool:
    """Whether outputs stay between 0 and 1 however large the inputs are, and are not all alike."""
    outputs = torch.cat([_on_random(built.module, columns, N_SCORED, scale) for scale in SCALES])
    return bool(((outputs >= 0) & (outputs <= 1)).all() and outputs.std() > 0)


def _try_training(name: str, built: Built, columns: Columns, n_row: int) -> None:
    before = {key: buffer.clone() for key, buffer in built.module.named_buffers()}
    norms = BatchNorms(built.module)
    logits = _logits(name, built.module, columns, n_row)
    labels = (torch.arange(n_row) % 2).float()
    loss = _guarded(f"the loss of {name}", lambda: built.loss(logits, labels))
    if not isinstance(loss, torch.Tensor) or loss.shape != ():
        raise InvalidValueError(f"the loss of {name} must be one number as a tensor, got {_shown(loss)}")
    if not torch.isfinite(loss):
        raise InvalidValueError(
            f"the loss of {name} on random rows must be finite, got {float(loss.detach())}"
        )
    _guarded(f"the backward pass of {name}", lambda: torch.autograd.backward(loss))
    sparse = [key for key, p in built.module.named_parameters() if p.grad is not None and p.grad.is_sparse]
    if sparse:
        raise InvalidValueError(
            f"gradients of {name} must be dense, but {sparse[0]} has sparse ones; use sparse=False"
        )
    _check_buffers(name, built.module, before, norms.may_change())


def _check_buffers(
    name: str, module: nn.Module, before: dict[str, torch.Tensor], may_change: set[int]
) -> None:
    changed = [
        key
        for key, buffer in module.named_buffers()
        if id(buffer) not in may_change and (key not in before or not torch.equal(buffer, before[key]))
    ]
    if changed:
        raise InvalidValueError(
            f"{name} changes its buffer {changed[0]} in training, which would differ between workers; only "
            "running_mean and running_var of nn.BatchNorm1d, 2d and 3d may change; make it a parameter, or "
            "compute it from the batch alone"
        )


def _logits(name: str, module: nn.Module, columns: Columns, n_row: int) -> torch.Tensor:
    logits = _guarded(f"{name} on {n_row} sample rows", lambda: _on_random(module, columns, n_row))
    if not isinstance(logits, torch.Tensor) or logits.shape != (n_row,) or logits.dtype is not torch.float32:
        raise InvalidValueError(
            f"{name} must return float32 logits of shape ({n_row},) for {n_row} rows, got {_shown(logits)}"
            + ("; add .squeeze(1)" if getattr(logits, "shape", ()) == (n_row, 1) else "")
            + ("; return the logits alone" if isinstance(logits, dict | tuple | list) else "")
        )
    return logits


def _on_random(module: nn.Module, columns: Columns, n_row: int, scale: float = 1.0) -> Any:  # noqa: ANN401 - as below
    """Return what a module makes of random rows, of which the first has empty lists."""
    if isinstance(module, ElasticNet):
        return module.on_random(n_row, scale)
    embedded = (scale * torch.randn(n_row, columns.n_categorical, columns.row_width)).requires_grad_()
    dense = scale * torch.randn(n_row, columns.n_numeric)
    if not takes_sequences(module):
        return module(embedded, dense)
    items = {}
    for sequence in columns.sequences:
        n_item = torch.arange(n_row) % (sequence.length + 1)
        is_item = torch.arange(sequence.length) < n_item[:, None]
        values = (scale * torch.randn(n_row, sequence.length, columns.row_width)).requires_grad_()
        items[sequence.name] = values * is_item[:, :, None], is_item
    return module(embedded, dense, **{TAKES: items})


def _shown(value: object) -> str:
    return (
        f"{value.dtype} of shape {tuple(value.shape)}"
        if isinstance(value, torch.Tensor)
        else type(value).__name__
    )


def _guarded(what: str, call: Callable[[], object]) -> Any:  # noqa: ANN401 - whatever a user's code returns
    """Call a user's code; whatever it raises becomes one line."""
    try:
        return call()
    except Exception as error:
        raise InvalidValueError(f"{what} failed: {_told(error)}") from error


def _told(error: Exception) -> str:
    """Return an error as one line, with the last line of the user's own code, where there is one."""
    text = str(error).strip().splitlines()
    stack = extract_tb(error.__traceback__)
    frames = [frame for frame in stack if frame.filename != __file__ and "/torch/" not in frame.filename]
    line = f" (line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {text[0] if text else ''}{line}"
