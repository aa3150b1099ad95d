"""What a model asks of a machine before it ran: batch size, floating-point operations, parameters.

Qore-DL reads these three from the job instead of asking its owner. We run one forward pass and count what
it really computes, because shapes are known only then (convolutions, attention, code between the layers).
Torch's own counter sees products of matrices, convolutions and attention at the operators, whichever layer
or plain code called them; a hook at each layer adds what it leaves out, the normalisations. Counting by a
formula for each kind of layer was rejected: it misses products that stand in the code of a `forward`.

One multiply-add is two operations. Not counted: sums of biases, activations, softmax, pooling, look-ups in
embeddings (no arithmetic), all else that goes element by element. A layer with parameters of which no
operation was counted is named in `uncounted`, so that a count that is too small is not taken for exact.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch.utils.flop_counter import FlopCounterMode

NORMALISED = 2  # operations on an element: one multiply-add with scale and shift
NORMALISATIONS = (
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "RMSNorm",
)
LOOKUPS = ("Embedding", "EmbeddingBag")  # nothing to count


@dataclass(frozen=True, slots=True)
class ModelFeatures:
    """The features of a job by which Qore-DL predicts its requirements.

    Parameters
    ----------
    batch_size
        Samples of one worker's iteration.
    n_param
        Trainable parameters, those of embedding tables included.
    flops
        Operations of the forward pass of one batch; None: not known.
    uncounted
        Kinds of layers with parameters whose operations are missing in `flops`.
    """

    batch_size: int
    n_param: int
    flops: int | None
    uncounted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check.at_least("batch_size", self.batch_size, 1)
        _check.at_least("n_param", self.n_param, 1)
        if self.flops is not None:
            _check.at_least("flops", self.flops, 1, hint="leave it out where it is not known")

    @property
    def flops_per_sample(self) -> float | None:
        """Operations of the forward pass of one sample."""
        return None if self.flops is None else self.flops / self.batch_size


def measure_features(module: torch.nn.Module, *inputs: object) -> ModelFeatures:
    """Return the features of a model, by one forward pass without gradients.

    Parameters
    ----------
    module
        The model; its mode, buffers and parameters are the same afterwards.
    inputs
        One batch, as `module` is called with it; the first axis of the first one counts the samples.

    Raises
    ------
    InvalidValueError
        Without torch, without a batch, or when the pass fails or computes nothing that is counted.

    Notes
    -----
    The features of Qore-DL's configurator. Its authors took the operations of TensorFlow's profiler.
    """
    try:
        import torch  # noqa: PLC0415 - of an extra, and 200 MiB
        from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 - as above
    except ImportError as error:
        raise InvalidValueError(
            f'counting the operations of a model needs torch ({error}); pip install "dlrover-nb[torch]"'
        ) from error
    if not inputs or not isinstance(inputs[0], torch.Tensor) or inputs[0].ndim < 1 or not len(inputs[0]):
        raise InvalidValueError("features need one batch of samples as tensors, got none; give one batch")
    tally = _Tally(FlopCounterMode(display=False))
    with _evaluation(module), tally.watch(module), tally.counter:
        try:
            module(*inputs)
        except Exception as error:  # whatever the user's own module raises
            raise InvalidValueError(
                f"the model must accept the batch, got {type(error).__name__}: {error}; "
                "give a batch as the training gives it"
            ) from error
    return ModelFeatures(
        batch_size=len(inputs[0]),
        n_param=sum(each.numel() for each in module.parameters() if each.requires_grad),
        flops=tally.flops or None,
        uncounted=tuple(sorted(tally.uncounted)),
    )


class _Tally:
    """The operations of a pass: the counter's, those of normalisations, and layers of which none was seen."""

    def __init__(self, counter: FlopCounterMode) -> None:
        self.counter = counter
        self.uncounted: set[str] = set()
        self._normalised = 0
        self._before: list[int] = []

    @property
    def flops(self) -> int:
        return int(self.counter.get_total_flops()) + self._normalised

    @contextmanager
    def watch(self, module: torch.nn.Module) -> Iterator[None]:
        """Attach to each layer for the time of a pass."""
        with ExitStack() as hooks:
            for layer in module.modules():
                hooks.callback(layer.register_forward_pre_hook(self._enter).remove)
                hooks.callback(layer.register_forward_hook(self._leave).remove)
            yield

    def _enter(self, _layer: torch.nn.Module, _inputs: object) -> None:
        self._before.append(self.flops)

    def _leave(self, layer: torch.nn.Module, _inputs: object, output: object) -> None:
        before, kind = self._before.pop(), type(layer).__name__
        if kind in NORMALISATIONS:
            self._normalised += NORMALISED * int(getattr(output, "numel", int)())
        elif (
            kind not in LOOKUPS
            and self.flops == before
            and any(True for _ in layer.parameters(recurse=False))
        ):
            self.uncounted.add(kind)


@contextmanager
def _evaluation(module: torch.nn.Module) -> Iterator[None]:
    """Compute without gradients and dropout, by operators that are counted one by one; restore the modes.

    Fused kernels of attention and of recurrent layers are one operator each, which the counter does not know.
    """
    import torch  # noqa: PLC0415 - of an extra, and 200 MiB
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415 - as above

    trained = [layer for layer in module.modules() if layer.training]
    was_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    module.eval()
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="TF32 acceleration")  # of GPUs, where there is none
            with torch.backends.mkldnn.flags(enabled=False):
                yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)
        for layer in trained:
            layer.training = True
