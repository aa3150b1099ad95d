"""As much of kustomize as `deploy/` uses: resources, components, patches of JSON, and a namespace for all.

There is no kustomize on a machine that only has Python; anything that this does not know fails the test.
"""

import yaml

KNOWN = {"apiVersion", "kind", "namespace", "resources", "components", "patches"}
OF_CLUSTER = {
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def build(folder):
    """Return all objects that a folder's kustomization makes."""
    told = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(told) <= KNOWN, set(told) - KNOWN
    objects = [obj for path in told.get("resources", ()) for obj in _read((folder / path).resolve())]
    for path in told.get("components", ()):
        objects += build((folder / path).resolve())
    for patch in told.get("patches", ()):
        _patch(objects, patch)
    if "namespace" in told:
        for obj in objects:
            _move(obj, told["namespace"])
    return objects


def _read(path):
    return build(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))


def _patch(objects, patch):
    target = patch["target"]
    [obj] = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (target["kind"], target["name"])]
    for step in yaml.safe_load(patch["patch"]):
        assert step["op"] == "replace"
        *path, last = step["path"].strip("/").split("/")
        place = obj
        for part in path:
            place = place[int(part) if isinstance(place, list) else part]
        place[last] = step["value"]


def _move(obj, namespace):
    if obj["kind"] == "Namespace":
        obj["metadata"]["name"] = namespace
    elif obj["kind"] not in OF_CLUSTER:
        obj["metadata"]["namespace"] = namespace
    for subject in obj.get("subjects", ()):
        if subject["kind"] == "ServiceAccount":
            subject["namespace"] = namespace
