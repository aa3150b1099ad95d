"""DLRover's real resource definitions on a test cluster."""

from __future__ import annotations

import yaml
from suite.missing import shared

from dlrover_nb.core.backends.kubernetes.client.api import Api, NotThere
from dlrover_nb.core.manifests.kinds import CRD, ELASTIC_JOB, SCALE_PLAN
from support.waiting import until

OLDER, PRESENT = "manifests_bases_crd.HEAD.yaml", "elasticjobs.HEAD.yaml"  # the latter has no ScalePlans
SCALE_PLANS = "scaleplans.v0.4.0.yaml"


def installed(api: Api, *files: str):
    """Install the definitions of files of the real ones; generator of the files, which removes them."""
    texts = [shared("crds", "dlrover", file).read_text("utf-8") for file in files]
    documents = [d for text in texts for d in yaml.load_all(text, yaml.CSafeLoader)]
    wanted = [d for d in documents if d and d["kind"] == "CustomResourceDefinition"]
    names = [document["metadata"]["name"] for document in wanted]
    for document in wanted:
        api.create(CRD, document)
    kinds = [kind for kind in (ELASTIC_JOB, SCALE_PLAN) if f"{kind.plural}.{kind.group}" in names]
    until(lambda: all(_is_served(api, name) for name in names))
    until(lambda: all(map(api.has, kinds)))  # discovery follows a little later
    yield files
    for name in names:
        api.delete(CRD, name)
    until(lambda: not any(_is_there(api, name) for name in names))


def _is_served(api: Api, name: str) -> bool:
    conditions = api.get(CRD, name)["status"].get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _is_there(api: Api, name: str) -> bool:
    try:
        api.get(CRD, name)
    except NotThere:
        return False
    return True
