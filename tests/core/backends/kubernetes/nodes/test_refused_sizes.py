"""What refusals of pods say about sizes, in the words of real API servers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.backends.kubernetes.nodes.refused_sizes import LEARNED_S, RefusedSizes, inferred, stated
from dlrover_nb.core.structs.plan.capacity import NodeLimits

BOTH = (
    'pods "ads-worker-0" is forbidden: [maximum cpu usage per Container is 1500m, but limit is 2, '
    "maximum memory usage per Container is 1Gi, but limit is 2Gi]"
)
SMALL = 'pods "a" is forbidden: minimum memory usage per Pod is 256Mi, but request is 134217728'
TOO_LARGE = 'admission webhook "size.example" denied the request: too large'  # without a size
SIZES = st.tuples(st.integers(1, 400).map(lambda n: n / 100), st.integers(64, 4096))


def test_the_words_of_a_limit_range_are_its_limits():
    assert stated(BOTH) == NodeLimits(most_cpu=1.5, most_memory_mib=1024, why=BOTH)
    assert stated(SMALL) == NodeLimits(least_memory_mib=256, why=SMALL)
    assert not stated(TOO_LARGE)


@given(SIZES, st.sets(SIZES, max_size=5))
def test_what_is_inferred_forbids_the_size_that_was_refused_and_none_that_was_made(need, made):
    limits = inferred(need, made, "no")
    assert all(map(limits.allow, made))
    is_larger = made and any(need[i] > max(size[i] for size in made) for i in (0, 1))
    assert limits.allow(need) is not bool(is_larger)


def test_limits_narrow_and_are_forgotten_after_a_while():
    sizes = RefusedSizes()
    assert sizes.limits(0.0) is None
    sizes.made((0.5, 512))
    sizes.refused((4.0, 512), "no", 10.0)
    sizes.refused((2.0, 512), "no", 20.0)
    sizes.refused((0.5, 512), "no, by another rule", 30.0)
    limits = sizes.limits(30.0)
    assert (limits.most_cpu, limits.most_memory_mib) == (1.99, None)
    assert sizes.limits(20.0 + LEARNED_S) is None
