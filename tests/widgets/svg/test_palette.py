from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.widgets.svg.palette import N_WORKER_LOOK, PS_COLOR, PS_COLORS, WORKER_COLORS, node_look

numbers = st.integers(0, 200)


@given(numbers)
def test_every_ps_is_green_and_dashed_and_no_worker_is_green(i):
    color, dash = node_look(f"ps-{i}", is_ps=True)
    assert color in PS_COLORS
    assert dash
    assert node_look(f"worker-{i}")[0] not in PS_COLORS


def test_the_first_nodes_of_a_role_differ_from_each_other():
    assert len({node_look(f"worker-{i}") for i in range(N_WORKER_LOOK)}) == N_WORKER_LOOK
    assert len({node_look(f"ps-{i}", is_ps=True) for i in range(12)}) == 12
    assert all(node_look(f"ps-{i}", is_ps=True)[0] == PS_COLOR for i in range(6))


@given(numbers)
def test_workers_of_neighboring_numbers_differ_in_color_and_in_dash(i):
    (color, dash), (other, other_dash) = node_look(f"worker-{i}"), node_look(f"worker-{i + 1}")
    assert color != other
    assert dash != other_dash


def test_a_node_without_a_number_has_a_look_of_its_role():
    assert node_look("chief")[0] in WORKER_COLORS
