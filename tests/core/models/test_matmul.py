from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from torch import nn

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models import matmul
from dlrover_nb.core.models.matmul import VARIABLE, computes_bfloat16, fast_matmul, has_bfloat16, is_held_back
from dlrover_nb.core.structs.job.spec_choices import MatmulPrecision

N_LARGE = 128  # 128^3 multiplications: enough for oneDNN


@pytest.fixture
def onednn(monkeypatch):
    monkeypatch.setenv(VARIABLE, "onednn")
    with fast_matmul() as is_on:
        assert is_on
        yield


def by_rows(m):
    return m


def by_columns(m):
    return m.t().contiguous().t()


def with_gaps(m):
    wide = torch.zeros(2 * m.shape[0], 3 * m.shape[1])
    wide[::2, ::3] = m
    return wide[::2, ::3]


def repeated(m):
    return m[:1].expand(m.shape)


LAYOUTS = (by_rows, by_columns, with_gaps, repeated)


@pytest.mark.more
@pytest.mark.usefixtures("onednn")
@settings(deadline=None, max_examples=150)
@given(
    sides=st.tuples(*[st.integers(1, 40) | st.integers(100, 300)] * 3),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 2),
    seed=st.integers(0, 99),
    has_bias=st.booleans(),
)
def test_products_are_those_of_float64_up_to_rounding(sides, layouts, seed, has_bias):
    m, k, n = sides
    generator = torch.Generator().manual_seed(seed)
    a = layouts[0](torch.randn(m, k, generator=generator))
    b = layouts[1](torch.randn(k, n, generator=generator))
    bias = torch.randn(n, generator=generator)
    found = torch.addmm(bias, a, b) if has_bias else a @ b
    exact = a.double() @ b.double() + has_bias * bias.double()
    bound = 1e-6 * k * (a.abs().max() * b.abs().max()).double() + 1e-6  # k products, each rounded
    assert found.shape == (m, n)
    assert found.is_contiguous()
    assert (found - exact).abs().max() <= bound


def counted(monkeypatch):
    calls = []
    monkeypatch.setattr(matmul, "_linear", lambda *given: calls.append(1) or LINEAR(*given))
    return calls


LINEAR = matmul._linear


@pytest.mark.usefixtures("onednn")
def test_all_three_products_of_a_users_layer_are_of_onednn(monkeypatch):
    calls = counted(monkeypatch)
    layer = nn.Linear(N_LARGE, N_LARGE)
    x = torch.randn(N_LARGE, N_LARGE, requires_grad=True)
    layer(x).square().sum().backward()
    assert len(calls) == 3


@pytest.mark.usefixtures("onednn")
def test_a_layers_gradients_are_torchs_own_up_to_rounding():
    layer = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 100))
    x = torch.randn(150, 300, requires_grad=True)
    found = torch.autograd.grad(layer(x).square().mean(), [x, *layer.parameters()])
    exact = torch.autograd.grad(
        layer.double()(x.double()).square().mean(), [x, *(p for p in layer.parameters())]
    )
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.randn(2, 3) @ torch.randn(4, 5),
        lambda: torch.mm(torch.randn(200, 300), torch.randn(200, 300)),
        lambda: torch.mm(torch.randn(200, 300), torch.randn(300, 200).double()),
        lambda: torch.addmm(torch.randn(7), torch.randn(200, 300), torch.randn(300, 200)),
        lambda: torch.mm(torch.randn(200), torch.randn(200, 300)),
    ],
)
def test_what_torch_refuses_is_refused(call):
    with pytest.raises(RuntimeError, match=r"mat|dtype|size"):
        call()


@pytest.mark.usefixtures("onednn")
def test_factors_and_other_shapes_of_an_addition_are_kept():
    a, b, c = torch.randn(200, 200), torch.randn(200, 200), torch.randn(200, 200)
    exact = 2 * c.double() + 3 * a.double() @ b.double()
    torch.testing.assert_close(torch.addmm(c, a, b, beta=2, alpha=3).double(), exact, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        torch.addmm(c[0], a, b).double(), c[0].double() + a.double() @ b.double(), rtol=1e-3, atol=1e-3
    )


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_other_types_are_left_to_torch(dtype):
    a = torch.ones(N_LARGE, N_LARGE, dtype=dtype)
    assert torch.equal(a @ a, torch.full_like(a, N_LARGE))


@for_each(
    ("vendor", "capability", "expected"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("HygonGenuine", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),  # MKL uses all of it
        ("GenuineIntel", "AVX512", False),
        ("", "AVX512", False),
    ],
)
def test_mkl_is_replaced_where_it_does_not_use_the_processor(vendor, capability, expected):
    assert is_held_back(vendor, capability) is expected


def test_torch_has_its_own_products_again_afterwards(monkeypatch):
    calls = counted(monkeypatch)
    a = torch.randn(N_LARGE, N_LARGE)
    before = a @ a
    monkeypatch.setenv(VARIABLE, "onednn")
    with fast_matmul(), fast_matmul():
        assert len(calls) == 0
        torch.mm(a, a)
        assert len(calls) == 1
    assert torch.equal(a @ a, before)
    assert len(calls) == 1


def test_the_environment_can_leave_products_to_mkl(monkeypatch):
    monkeypatch.setenv(VARIABLE, "mkl")
    with fast_matmul() as is_on:
        assert not is_on


def test_an_unknown_library_is_refused(monkeypatch, error_words):
    monkeypatch.setenv(VARIABLE, "openblas")
    with error_words(InvalidValueError), fast_matmul():
        pass


needs_bfloat16 = pytest.mark.skipif(not computes_bfloat16(), reason="needs a processor with bfloat16")


@needs_bfloat16
@settings(deadline=None, max_examples=50)
@given(
    sides=st.tuples(*[st.integers(110, 300)] * 3),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 2),
    seed=st.integers(0, 99),
    has_bias=st.booleans(),
)
def test_factors_in_bfloat16_are_summed_in_float32(sides, layouts, seed, has_bias):
    m, k, n = sides
    generator = torch.Generator().manual_seed(seed)
    a = layouts[0](torch.randn(m, k, generator=generator))
    b = layouts[1](torch.randn(k, n, generator=generator))
    bias = torch.randn(n, generator=generator)
    with fast_matmul(MatmulPrecision.BFLOAT16) as is_on:
        assert is_on
        product = torch.addmm(bias, a, b) if has_bias else a @ b
    rounded = a.bfloat16().double() @ b.bfloat16().double()
    bound = 2**-8 * rounded.abs() + 1e-5 * k  # the result is rounded as well, and the bias is not
    assert product.dtype is torch.float32
    assert product.shape == (m, n)
    assert product.is_contiguous()
    assert ((product - has_bias * bias - rounded).abs() <= bound).all()


@needs_bfloat16
def test_gradients_of_a_layer_in_bfloat16_are_near_torchs_own():
    layer = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 100))
    x = torch.randn(150, 300, requires_grad=True)
    exact = torch.autograd.grad(layer(x).square().mean(), [x, *layer.parameters()])
    with fast_matmul(MatmulPrecision.BFLOAT16):
        near = torch.autograd.grad(layer(x).square().mean(), [x, *layer.parameters()])
    for one, other in zip(near, exact, strict=True):
        assert one.dtype is torch.float32
        assert not torch.equal(one, other)
        assert (one - other).norm() <= 0.05 * other.norm()


def test_without_instructions_for_bfloat16_products_stay_in_float32(monkeypatch, caplog):
    monkeypatch.setattr(matmul, "computes_bfloat16", lambda: False)
    monkeypatch.setenv(VARIABLE, "mkl")
    a = torch.randn(N_LARGE, N_LARGE)
    with fast_matmul(MatmulPrecision.BFLOAT16) as is_on:
        assert not is_on
        assert torch.equal(a @ a, a @ a.clone())
    assert "multiplied in float32" in caplog.text


@for_each(
    ("flags", "expected"),
    [("fpu avx512f avx512_bf16", True), ("fpu amx_bf16", True), ("fpu avx512f avx_vnni", False), ("", False)],
)
def test_a_processor_says_whether_it_has_bfloat16(flags, expected):
    assert has_bfloat16(flags) is expected
