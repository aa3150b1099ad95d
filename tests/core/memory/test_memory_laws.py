from __future__ import annotations

import numpy as np
import pytest
from support.cases import for_each

from dlrover_nb.core.memory.choice import N_BLOCK, blocks, choose_growth, choose_level
from dlrover_nb.core.memory.laws import LAW_OF_SHAPE, LAWS, LOG_PRIOR, shape_at, shapes

U = np.linspace(0, 50, 2001)


@for_each("law", LAWS, ids=lambda law: law.name)
def test_every_shape_starts_at_zero_never_falls_and_never_bends_upwards(law):
    table = law.table(U)
    assert table.shape == (len(law.parameters), len(U))
    assert np.abs(table[:, 0]).max() == 0
    rise = np.diff(table, axis=1)
    assert rise.min() >= 0
    assert np.diff(rise, axis=1).max() <= 1e-9


@for_each("law", LAWS, ids=lambda law: law.name)
def test_the_smaller_its_parameter_the_earlier_a_shape_has_risen(law):
    half, end = law.table(np.array([0.5, 1.0])).T
    assert (np.diff(half / end) < 0).all()
    assert (half / end >= 0.5).all()


def test_one_shape_is_a_row_of_the_table():
    table = shapes(U)
    for index in range(len(table)):
        assert shape_at(index, U).tolist() == pytest.approx(table[index].tolist())


def test_laws_share_the_prior_equally_however_many_shapes_they_have():
    share = {law.name: 0.0 for law in LAWS}
    for name, log_prior in zip(LAW_OF_SHAPE, LOG_PRIOR, strict=True):
        share[name] += np.exp(log_prior)
    assert list(share.values()) == pytest.approx([1 / len(LAWS)] * len(LAWS))
    assert len(shapes(U)) == len(LOG_PRIOR)


def test_blocks_keep_the_mean_and_their_number_is_bounded():
    rng = np.random.default_rng(0)
    u = np.sort(rng.random(500))
    u = u / u[-1]
    y = rng.normal(100, 5, 500)
    found = blocks(u, y)
    assert 2 <= len(found) <= N_BLOCK
    assert (np.diff(found.u) > 0).all()
    assert y.min() <= found.y.min() <= found.y.max() <= y.max()


def test_a_short_series_is_its_own_blocks():
    u, y = np.linspace(0.1, 1, 10), np.arange(10.0)
    found = blocks(u, y)
    assert found.u.tolist() == u.tolist()
    assert found.y.tolist() == y.tolist()


def test_without_a_walk_a_line_and_a_level_are_as_sure_as_least_squares_makes_them():
    u, noise = np.linspace(0.1, 1, 20), np.random.default_rng(3).normal(0, 2, 20)
    rising = blocks(u, 300 + 100 * u + noise)
    line = next(
        each
        for each in choose_growth(rising, floor=1e-6).components
        if (each.shape, each.walk_index) == (LAW_OF_SHAPE.index("linear"), 0)
    )
    (slope, level), cov = np.polyfit((u - 1) / 0.9, rising.y, 1, cov=True)  # at now, and over the blocks
    assert (line.c, line.a) == pytest.approx((level, slope))
    assert line.cov.ravel() == pytest.approx(cov[::-1, ::-1].ravel())
    (still,) = choose_level(blocks(u, 300 + noise), floor=1e-6).components
    assert still.c == pytest.approx(300 + noise.mean())
    assert still.cov[0, 0] == pytest.approx(noise.var(ddof=1) / 20)
