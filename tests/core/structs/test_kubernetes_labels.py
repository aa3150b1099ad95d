"""The user's labels and annotations: Kubernetes' rules, and the keys that are not the user's."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import dump_job, parse_job
from dlrover_nb.core.manifests.objects import OWNER_NOTE, with_defaults
from dlrover_nb.core.manifests.pod_parts import labels
from dlrover_nb.core.manifests.pods import MASTER_NOTE
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec

LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII
)


@for_each(
    "item",
    [
        "team=ads",
        "empty=",
        "kueue.x-k8s.io/queue-name=team-ads",
        "sidecar.istio.io/inject=false",
        f"{'a' * 63}={'b' * 63}",
        f"{'.'.join(['a' * 63] * 3)}.{'a' * 61}/Name_1.x=V_1.x",
    ],
)
def test_what_kubernetes_takes_is_taken(item: str) -> None:
    assert KubernetesSpec(labels=(item,), annotations=(item,)).labels == (item,)


@for_each(
    ("item", "told"),
    [
        ("team", "labels must hold NAME=VALUE, got 'team'"),
        ("=ads", r"a key in labels must be NAME or DOMAIN/NAME, .*, got ''"),
        (f"{'a' * 64}=b", "the name of at most 63 letters"),
        ("-team=b", "got '-team'"),
        ("team\n=b", r"got 'team\\n'"),
        ("/team=b", "got '/team'"),
        ("Example.com/team=b", "got 'Example.com/team'"),
        ("a..b/team=b", "got 'a..b/team'"),
        ("a/b/team=b", "got 'a/b/team'"),
        (f"{'.'.join(['a'] * 128)}/team=b", "must be NAME or DOMAIN/NAME"),
        (f"team={'b' * 64}", "the value of label team must be empty or at most 63 letters"),
        ("team=two words", "got 'two words'"),
        ("team=b-", "got 'b-'"),
        ("dlrover-nb/job=other", "labels must leave dlrover-nb/job out"),
        ("batch.kubernetes.io/job-name=x", "labels must leave batch.kubernetes.io/job-name out"),
    ],
)
def test_what_kubernetes_refuses_is_refused_when_the_job_is_read(item: str, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        KubernetesSpec(labels=(item,))


@for_each("key", labels("quick-start", "0a1b2c3d", "ps", "ps-0"))
def test_no_label_of_ours_can_be_replaced(key: str) -> None:
    with pytest.raises(InvalidValueError, match=f"labels must leave {key} out"):
        KubernetesSpec(labels=(f"{key}=mine",))


@pytest.mark.parametrize("key", [OWNER_NOTE, MASTER_NOTE])
def test_no_annotation_of_ours_can_be_replaced(key: str) -> None:
    with pytest.raises(InvalidValueError, match=f"annotations must leave {key} out"):
        KubernetesSpec(annotations=(f"{key}=mine",))


def test_the_value_of_an_annotation_is_any_text_of_a_size_that_leaves_room_for_ours(error_words) -> None:
    told = ('a={"b": "c=d\n"}',)
    assert KubernetesSpec(annotations=told).annotations == told
    with error_words(InvalidValueError):
        KubernetesSpec(annotations=("a=" + "é" * 50_000,))


@given(st.text("aB0-_./\n", max_size=8), st.text("aB0-_. ", max_size=6))
def test_every_key_that_is_taken_is_one_of_the_schemas_of_exports(key: str, value: str) -> None:
    with contextlib.suppress(InvalidValueError):
        KubernetesSpec(labels=(f"{key}={value}",))
        assert LABEL_KEY.fullmatch(key)


def test_they_survive_a_job_file_and_an_error_says_the_place(error_words) -> None:
    job = parse_job("name: a\nkubernetes: {labels: [team=ads, empty=], annotations: ['note=a b']}\n")
    assert job.kubernetes.labels == ("team=ads", "empty=")
    assert parse_job(dump_job(job)) == job
    with error_words(InvalidValueError):
        parse_job("name: a\nkubernetes: {labels: ['a b=c']}\n")


def test_those_of_the_namespace_are_joined_and_the_jobs_win(error_words) -> None:
    own = KubernetesSpec(labels=("team=ads",), annotations=("a=own",))
    merged = with_defaults(own, "{labels: [team=all, cost=7], annotations: [a=theirs, b=theirs]}")
    assert merged.labels == ("cost=7", "team=ads")
    assert merged.annotations == ("b=theirs", "a=own")
    with error_words(InvalidValueError):
        with_defaults(own, "labels: [dlrover-nb/job=x]")
