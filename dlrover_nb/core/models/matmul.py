"""Which library multiplies float32 matrices: oneDNN, where MKL leaves half of a machine idle.

torch's packages multiply with Intel's MKL. On processors of others MKL uses no instruction wider than AVX2,
so one with AVX-512 computes at less than half of its speed: measured on an AMD EPYC, 107 GFLOPS for the
products of DCN v2 and 90 for the narrow ones of xDeepFM, where oneDNN, which torch carries too, reaches 200
to 250. In training nearly all time is in products, so forward and backward pass take half of the CPU time,
also of a user's own module, which need not change.

torch offers no switch for it (its precision settings hand products to oneDNN in bfloat16 only). So `aten::mm`
and `aten::addmm`, to which linear layers, their gradients and most products come down, are given another
kernel on the CPU while a worker trains. Both libraries sum in float32 in an order of their own: results
differ by rounding. The choice follows from the processor and not from a measurement, so that all processes on
one kind of machine get the same bits. Batched products (`bmm`) stay with MKL, as torch reaches oneDNN's only
in compiled modules.
"""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.processor import cpu_info

if TYPE_CHECKING:
    from collections.abc import Iterator

    Number = int | float

_log = logging.getLogger(__name__)

VARIABLE = "DLROVER_NB_MATMUL"
CHOICES = ("", "mkl", "onednn")
LEAST_WORK = 1 << 20  # multiplications of a product below which a call of oneDNN costs more than it saves
LEAST_SIDE = 8  # nearly vectors: MKL is as fast

_mm_into = torch.ops.aten.mm.out
_addmm_into = torch.ops.aten.addmm.out
_linear = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001 - what torch's own compiler calls


@contextmanager
def fast_matmul() -> Iterator[bool]:
    """Let the faster library multiply in this process while the block runs; yields whether that is oneDNN.

    Raises
    ------
    InvalidValueError
        When ``DLROVER_NB_MATMUL`` names no library.
    """
    choice = os.environ.get(VARIABLE, "")
    if choice not in CHOICES:
        raise InvalidValueError(f"{VARIABLE} must be mkl or onednn, got {choice!r}; or leave it unset")
    vendor, capability = cpu_info("vendor_id"), torch.backends.cpu.get_cpu_capability()
    if choice == "mkl" or not (choice or is_held_back(vendor, capability)):
        yield False
        return
    _log.info("oneDNN multiplies matrices instead of MKL; %s=mkl leaves it to MKL", VARIABLE)
    library = _replaced()
    try:
        yield True
    finally:
        library._destroy()  # noqa: SLF001 - torch has no public way to restore its kernels


def is_held_back(vendor: str, capability: str) -> bool:
    """Whether MKL uses narrower instructions than the processor has.

    Parameters
    ----------
    vendor
        As /proc/cpuinfo has it; empty: not known.
    capability
        Widest instructions of the processor, in torch's words.
    """
    return vendor not in {"", "GenuineIntel"} and capability.startswith("AVX512") and _has_both()


def _replaced() -> Any:  # noqa: ANN401 - torch.library has no types
    """Put our kernels in the place of torch's; return what holds them."""
    library: Any = cast("Any", torch.library).Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # replacing is the aim
        library.impl("mm", _mm, "CPU")
        library.impl("addmm", _addmm, "CPU")
    return library


def _has_both() -> bool:
    backends: Any = torch.backends  # without types
    return bool(backends.mkl.is_available() and backends.mkldnn.is_available())


def _mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if _is_large(a, b):
        return _product(a, b, None)
    result: torch.Tensor = _mm_into(a, b, out=a.new_empty(0))
    return result


def _addmm(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> torch.Tensor:
    if beta == alpha == 1 and _is_large(a, b) and _is_bias(bias, b.shape[1]):
        return _product(a, b, bias)
    result: torch.Tensor = _addmm_into(bias, a, b, beta=beta, alpha=alpha, out=a.new_empty(0))
    return result


def _is_large(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether oneDNN should multiply; all that is odd, errors too, is left to torch."""
    if not (a.dtype is b.dtype is torch.float32 and a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0]):
        return False
    sides = (*a.shape, b.shape[1])
    return bool(min(sides) >= LEAST_SIDE and sides[0] * sides[1] * sides[2] >= LEAST_WORK)


def _is_bias(bias: torch.Tensor, width: int) -> bool:
    return bias.dtype is torch.float32 and bias.shape == (width,) and bias.is_contiguous()


def _product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``a @ b + bias``.

    oneDNN's layer takes its left matrix by rows, and copies it where it lies by columns. Where that is the
    larger copy, the transposed product is computed: of a gradient of weights it saves half of the time.
    """
    (m, k), n = a.shape, b.shape[1]
    if bias is None and not a.is_contiguous() and m * k > k * n + m * n:
        result: torch.Tensor = _layer(b.t(), _dense(a), None).t().contiguous()
        return result
    return _layer(a, _dense(b.t()), bias)


def _layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``x @ weight.t() + bias``."""
    result: torch.Tensor = _linear(x, weight, bias, "none", [], "")
    return result


def _dense(matrix: torch.Tensor) -> torch.Tensor:
    """Return it without gaps and repetitions, by rows or by columns: oneDNN reads both."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()
