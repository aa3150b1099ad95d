import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.backends.kubernetes.client.contexts import IN_CLUSTER, kubernetes_address
from dlrover_nb.core.backends.local.record import SUBMISSION
from dlrover_nb.core.backends.ray import head
from dlrover_nb.core.connect import connect
from dlrover_nb.core.connect.kinds import kind_of, read_address
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.errors import InvalidValueError, NotFoundError

NAMES = st.text(min_size=1).filter(lambda name: name.isprintable() and name != IN_CLUSTER)


@pytest.mark.more
@settings(deadline=None)  # a busy machine is no failure
@given(NAMES, st.from_regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", fullmatch=True))
def test_any_context_survives_the_way_through_one_word(context, namespace):
    kind, address, options = read_address(kubernetes_address(context, namespace))
    assert (kind, address, options) == ("kubernetes", None, {"context": context, "namespace": namespace})


def test_the_cluster_around_a_pod_has_no_context():
    assert read_address(kubernetes_address(IN_CLUSTER, "ml"))[2] == {"context": None, "namespace": "ml"}


def test_the_nearest_kind_is_named(error_words):
    assert kind_of("k8s").name == "kubernetes"
    with pytest.raises(InvalidValueError, match="did you mean kubernetes"):
        kind_of("kubernets")
    with error_words(InvalidValueError):
        kind_of("slurm")


def test_the_word_kubernetes_alone_is_where_the_kubeconfig_points():
    assert read_address("kubernetes") == read_address("kubernetes://")
    assert read_address("kubernetes")[0] == "kubernetes"


def test_who_forgot_that_jobs_run_without_ray_is_told(monkeypatch, tmp_path, error_words):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(head, "running_head", lambda: None)
    with pytest.raises(NotFoundError, match=r"`connect ray` starts one$"):
        connect("ray", start=False)
    for run in (
        "z-20261127T201809-334",
        "ctr-20261129T201809-334",
        "a-20261128T201809-334",
        "b-20261130T201809-334",
    ):
        (jobs_folder() / run).mkdir(parents=True)
        (jobs_folder() / run / SUBMISSION).touch()
        with error_words(NotFoundError):
            connect("ray", start=False)
