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

With `matmul_precision: bfloat16` the same products take their factors in bfloat16 and sum in float32, where
the processor has instructions for that: that EPYC then needs .53 to .65 of the time. Parameters, updates and
all else stay float32, as in mixed precision on a GPU (Kalamkar et al., arXiv 1905.12322).

Rejected: torch.compile. What it makes calls products past these kernels: a step of Wide & Deep took 8.8 CPU
ms instead of 5.3, of DCN v2 41 instead of 24, and compiling takes 5 CPU seconds of each worker.
"""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.processor import cpu_info
from dlrover_nb.core.structs.job.spec_choices import MatmulPrecision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Number = int | float
    Layer = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]

_log = logging.getLogger(__name__)

VARIABLE = "DLROVER_NB_MATMUL"
CHOICES = ("", "mkl", "onednn")
LEAST_WORK = 1 << 20  # multiplications of a product below which a call of oneDNN costs more than it saves
LEAST_SIDE = 8  # nearly vectors: MKL is as fast

_mm_into = torch.ops.aten.mm.out
_addmm_into = torch.ops.aten.addmm.out
_linear = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001 - what torch's own compiler calls


@contextmanager
def fast_matmul(precision: MatmulPrecision = MatmulPrecision.FLOAT32) -> Iterator[bool]:
    """Let the faster library multiply in this process while the block runs; yields whether that is oneDNN.

    Parameters
    ----------
    precision
        Of the factors; bfloat16 is float32 on a processor without instructions for it, which the log says.

    Raises
    ------
    InvalidValueError
        When ``DLROVER_NB_MATMUL`` names no library.
    """
    choice = os.environ.get(VARIABLE, "")
    if choice not in CHOICES:
        raise InvalidValueError(f"{VARIABLE} must be mkl or onednn, got {choice!r}; or leave it unset")
    layer = _layer
    if precision is MatmulPrecision.BFLOAT16:
        if computes_bfloat16():
            layer = _layer_in_bfloat16
        else:
            _log.warning(
                "this processor has no instructions for bfloat16: matrices are multiplied in float32"
            )
    if layer is _layer and (
        choice == "mkl"
        or not (choice or is_held_back(cpu_info("vendor_id"), torch.backends.cpu.get_cpu_capability()))
    ):
        yield False
        return
    _log.info(
        "oneDNN multiplies matrices %s",
        "in bfloat16" if layer is not _layer else f"instead of MKL; {VARIABLE}=mkl leaves it to MKL",
    )
    library = _replaced(layer)
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


def computes_bfloat16() -> bool:
    """Whether this machine multiplies in bfloat16."""
    return has_bfloat16(cpu_info("flags")) and _has_both()


def has_bfloat16(flags: str) -> bool:
    """Whether a processor with these flags, as /proc/cpuinfo has them, multiplies in bfloat16."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags.split())


def _replaced(layer: Layer) -> Any:  # noqa: ANN401 - torch.library has no types
    """Put our kernels in the place of torch's; return what holds them."""
    library: Any = cast("Any", torch.library).Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # replacing is the aim
        library.impl("mm", partial(_mm, layer), "CPU")
        library.impl("addmm", partial(_addmm, layer), "CPU")
    return library


def _has_both() -> bool:
    backends: Any = torch.backends  # without types
    return bool(backends.mkl.is_available() and backends.mkldnn.is_available())


def _mm(layer: Layer, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if _is_large(a, b):
        return _product(layer, a, b, None)
    result: torch.Tensor = _mm_into(a, b, out=a.new_empty(0))
    return result


def _addmm(
    layer: Layer,
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> torch.Tensor:
    if beta == alpha == 1 and _is_large(a, b) and _is_bias(bias, b.shape[1]):
        return _product(layer, a, b, bias)
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


def _product(layer: Layer, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``a @ b + bias``.

    oneDNN's layer takes its left matrix by rows, and copies it where it lies by columns. Where that is the
    larger copy, the transposed product is computed: of a gradient of weights it saves half of the time.
    """
    (m, k), n = a.shape, b.shape[1]
    if bias is None and not a.is_contiguous() and m * k > k * n + m * n:
        return layer(b.t(), _dense(a), None).t().contiguous()
    return layer(a, _dense(b.t()), bias)


def _layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``x @ weight.t() + bias``."""
    result: torch.Tensor = _linear(x, weight, bias, "none", [], "")
    return result


def _layer_in_bfloat16(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return the same with factors, and what comes out of the product, rounded to bfloat16."""
    product: torch.Tensor = _linear(x.bfloat16(), weight.bfloat16(), None, "none", [], "").float()
    return product if bias is None else product.add_(bias)


def _dense(matrix: torch.Tensor) -> torch.Tensor:
    """Return it without gaps and repetitions, by rows or by columns: oneDNN reads both."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()
