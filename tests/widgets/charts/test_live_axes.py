"""Ticks of live axes: in the digits that tell them apart."""

import math

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.widgets.live.live_charts import kit


@given(st.floats(-1e6, 1e6), st.floats(1e-5, 1e6), st.sampled_from((1, 2, 5)))
def test_a_live_axis_has_as_many_digits_as_tell_its_ticks_apart(low, span, mantissa):
    """Bokeh's steps are 1, 2 or 5 times a power of ten, at most nine in a range."""
    power = math.floor(math.log10(span / 9 / mantissa)) + 1
    step = mantissa * 10.0**power
    n_digit = kit.number_format(low, low + span).count("0") - 2
    first = math.ceil(low / step)
    texts = [f"{(first + i) * step:.{max(n_digit, 0)}f}" for i in range(int(span / step) + 1)]
    assert len(set(texts)) == len(texts)


def test_ticks_at_given_values_are_exact():
    assert kit.value_format((1.0, 2.0, 256.0)) == "0,0"
    assert kit.value_format((0.125, 0.25, 8.0)) == "0,0[.]000"
