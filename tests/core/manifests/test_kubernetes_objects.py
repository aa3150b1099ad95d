"""The documents of a job: what stands in them, what must not, and that an API server takes them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from support.cases import for_each

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.manifests.objects import companions, master_job, with_defaults, with_owner
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, RUN_LABEL
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.kubernetes import STATE, KubernetesSpec, Volume
from dlrover_nb.core.structs.wire.pod_contract import PodJob

OWNER = {"metadata": {"name": "clicks", "uid": "1-2-3"}}


def pod_job(kube: KubernetesSpec | None = None, **changes: object) -> PodJob:
    spec = JobSpec("clicks", owner="ann", kubernetes=kube or KubernetesSpec(), **changes)  # type: ignore[arg-type]
    return PodJob(spec, None, "0123abcd", "public", "the-secret-key", "the-access-token")


def documents(job: PodJob) -> dict[str, dict]:
    return {
        f"{doc['kind']}/{doc['metadata']['name']}": doc
        for doc in (master_job(job, namespace="n"), *companions(job, code={}, namespace="n"))
    }


def master_pod(job: PodJob) -> dict:
    return documents(job)["Job/clicks"]["spec"]["template"]["spec"]


def test_a_job_is_made_of_these_and_the_job_that_owns_them_comes_first():
    made = list(documents(pod_job()))
    assert made == [
        "Job/clicks",
        "Secret/clicks-job",
        "ServiceAccount/clicks-master",
        "Role/clicks-master",
        "RoleBinding/clicks-master",
    ]


def test_code_travels_in_a_secret_of_its_own_that_pods_mount():
    job = pod_job(model=ModelSpec("custom", code=f"pickle:{'a' * 64}"))
    secret = companions(job, code={"code-a.pickle": b"\x80"}, namespace="n")[1]
    assert (secret["metadata"]["name"], secret["data"]) == ("clicks-code", {"code-a.pickle": "gA=="})
    assert "/dlrover-nb/code" in {
        mount["mountPath"] for mount in master_pod(job)["containers"][0]["volumeMounts"]
    }


def test_an_account_that_is_there_already_gets_no_rights_from_a_job():
    job = pod_job(KubernetesSpec(service_account="trainer"))
    assert list(documents(job)) == ["Job/clicks", "Secret/clicks-job"]
    assert master_pod(job)["serviceAccountName"] == "trainer"


def test_the_secret_holds_the_whole_job_and_nothing_else_holds_a_secret():
    job = pod_job()
    made = documents(job)
    secret = made.pop("Secret/clicks-job")
    assert from_json(base64.b64decode(secret["data"]["job.json"]), PodJob) == job
    assert "the-secret-key" not in json.dumps(made)
    assert "the-access-token" not in json.dumps(made)


def test_every_object_tells_its_job_and_run_and_goes_with_the_job():
    for doc in companions(pod_job(), code={}, namespace="n"):
        told = with_owner(doc, OWNER)["metadata"]
        assert told["ownerReferences"] == [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "clicks", "uid": "1-2-3"}
        ]
        assert (told["labels"][JOB_LABEL], told["labels"][RUN_LABEL]) == ("clicks", "0123abcd")
        assert "ownerReferences" not in doc["metadata"]


def test_the_master_waits_for_what_it_needs_before_it_begins():
    assert master_job(pod_job(), namespace="n")["spec"]["parallelism"] == 0


def test_what_the_master_may_do_is_bound_to_names_wherever_a_role_can_say_so():
    rules = documents(pod_job())["Role/clicks-master"]["rules"]
    unnamed = {
        (rule["resources"][0], verb)
        for rule in rules
        if "resourceNames" not in rule
        for verb in rule["verbs"]
    }
    assert not any(resource == "secrets" for resource, _ in unnamed)
    assert {verb for resource, verb in unnamed if resource == "configmaps"} == {"create"}
    assert not any("*" in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)


def test_a_pod_is_closed_and_what_it_writes_goes_to_volumes():
    pod = master_pod(pod_job())
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"/tmp", STATE} <= {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}


def test_a_master_has_the_history_of_its_namespace_unless_the_job_names_its_own():
    (container,) = master_pod(pod_job(KubernetesSpec(env_secrets=("mine",))))["containers"]
    assert container["envFrom"] == [  # the last one wins
        {"secretRef": {"name": "dlrover-nb-history", "optional": True}},
        {"secretRef": {"name": "mine"}},
    ]


def test_a_volume_of_the_user_keeps_the_state():
    job = pod_job(KubernetesSpec(volumes=(Volume(STATE, claim="runs"),)))
    at_state = [
        m["name"] for m in master_pod(job)["containers"][0]["volumeMounts"] if m["mountPath"] == STATE
    ]
    (source,) = [v for v in master_pod(job)["volumes"] if v["name"] in at_state]
    assert source["persistentVolumeClaim"] == {"claimName": "runs", "readOnly": False}


def test_taints_are_borne_as_kubectl_writes_them():
    job = pod_job(KubernetesSpec(tolerations=("gpu=yes:NoSchedule", "spot:NoExecute", "old")))
    assert master_pod(job)["tolerations"][2:] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
        {"key": "old", "operator": "Exists"},
    ]


def test_a_job_wins_over_the_defaults_of_the_namespace_and_lists_are_joined():
    own = KubernetesSpec(image="mine:2", env=("A=own",), volumes=(Volume("/data", claim="mine"),))
    text = """
    image: theirs:1
    priority_class: low
    master_cpu: 0.5
    env: [A=theirs, B=theirs]
    volumes: [{mount: /data/, claim: theirs}, {mount: /more, claim: more}]
    """
    merged = with_defaults(own, text)
    assert (merged.image, merged.priority_class, merged.master_cpu) == ("mine:2", "low", 0.5)
    assert merged.env == ("B=theirs", "A=own")
    assert [(v.mount, v.claim) for v in merged.volumes] == [("/more", "more"), ("/data", "mine")]
    assert with_defaults(own, "") == own


@for_each("text", ["imagee: x", "- a", "env: [nothing]", "image: [", "volumes: [{mount: /a}]"])
def test_defaults_that_are_not_sound_are_refused_with_their_place(text: str):
    with pytest.raises(InvalidValueError, match=r"defaults\.yaml of the ConfigMap dlrover-nb is invalid"):
        with_defaults(KubernetesSpec(), text)


def test_an_end_of_defaults_does_not_touch_the_rest_of_a_job():
    spec = pod_job().spec
    assert replace(spec, kubernetes=with_defaults(spec.kubernetes, "spread: false")).owner == "ann"
