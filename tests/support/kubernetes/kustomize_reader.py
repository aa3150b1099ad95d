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
    objects = _made(folder, told, [])
    if "namespace" in told:
        accounts = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "ServiceAccount"}
        for obj in objects:
            _move(obj, told["namespace"], accounts)
    return objects


def _made(folder, told, objects):
    """Add what a kustomization names to objects, then change all of them, as a component changes its user's."""
    assert set(told) <= KNOWN, set(told) - KNOWN
    objects = [
        *objects,
        *(obj for path in told.get("resources", ()) for obj in _read((folder / path).resolve())),
    ]
    for path in told.get("components", ()):
        place = (folder / path).resolve()
        objects = _made(place, yaml.safe_load((place / "kustomization.yaml").read_text()), objects)
    for patch in told.get("patches", ()):
        _patch(objects, patch)
    return objects


def _read(path):
    return build(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))


def _patch(objects, patch):
    target = patch["target"]
    [obj] = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (target["kind"], target["name"])]
    steps = yaml.safe_load(patch["patch"])
    if isinstance(steps, dict):
        assert steps["$patch"] == "delete"
        objects.remove(obj)
        return
    for step in steps:
        assert step["op"] == "replace"
        *path, last = step["path"].strip("/").split("/")
        place = obj
        for part in path:
            place = place[int(part) if isinstance(place, list) else part]
        assert (int(last) < len(place)) if isinstance(place, list) else last in place, step["path"]
        place[int(last) if isinstance(place, list) else last] = step["value"]


def _move(obj, namespace, accounts):
    if obj["kind"] == "Namespace":
        obj["metadata"]["name"] = namespace
    elif obj["kind"] not in OF_CLUSTER:
        obj["metadata"]["namespace"] = namespace
    for subject in obj.get("subjects", ()):
        if subject["kind"] == "ServiceAccount" and subject["name"] in accounts:  # others live elsewhere
            subject["namespace"] = namespace
