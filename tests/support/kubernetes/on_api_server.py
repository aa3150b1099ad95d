"""Objects of `deploy/` on a real API server, under names of one test, and what an account may do there."""

from kubernetes import client, config, dynamic

from support.kubernetes.kustomize_reader import build

ACCOUNT = "system:serviceaccount"


def installed(cluster, folder, namespaces, change=None):
    """Create what a folder makes, after a dry run of each; `namespaces` has this test's name for each of them.

    `change` alters an object in place, by what the cluster of the tests does not have.
    """
    objects = build(folder)
    for obj in objects:
        renamed(obj, namespaces)
        if change is not None:
            change(obj)
    api = dynamic.DynamicClient(config.new_client_from_config(cluster.kubeconfig))
    [place] = [o for o in objects if o["kind"] == "Namespace"]
    for obj in (place, *(o for o in objects if o is not place)):
        kind = api.resources.get(api_version=obj["apiVersion"], kind=obj["kind"])
        where = {} if obj["kind"] == "Namespace" else {"namespace": place["metadata"]["name"]}
        kind.create(obj, dry_run="All", **where)
        kind.create(obj, **where)
    return objects


def renamed(obj, namespaces):
    """Give an object names of this test alone: cluster-wide ones stay behind otherwise."""
    meta = obj["metadata"]
    if obj["kind"] == "Namespace":
        meta["name"] = namespaces[meta["name"]]
    elif "namespace" in meta:
        meta["namespace"] = namespaces[meta["namespace"]]
    mark = next(iter(namespaces.values()))
    if obj["kind"].startswith("ClusterRole"):
        meta["name"] = f"{meta['name']}-{mark}"
    if obj.get("roleRef", {}).get("kind") == "ClusterRole":
        obj["roleRef"]["name"] = f"{obj['roleRef']['name']}-{mark}"
    for subject in obj.get("subjects", ()):
        for name, own in namespaces.items():
            if subject["kind"] == "Group":
                subject["name"] = subject["name"].replace(name, own)
        if "namespace" in subject:
            subject["namespace"] = namespaces.get(subject["namespace"], subject["namespace"])


def removed(cluster, objects):
    """Delete what `installed` has created: the namespace with all in it, and what is the cluster's."""
    api = config.new_client_from_config(cluster.kubeconfig)
    core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
    delete = {
        "Namespace": core.delete_namespace,
        "ClusterRole": rbac.delete_cluster_role,
        "ClusterRoleBinding": rbac.delete_cluster_role_binding,
    }
    for obj in objects:
        if obj["kind"] in delete:
            delete[obj["kind"]](obj["metadata"]["name"])


def may(api, namespace, group, resource, verb, name=None):
    """Ask the API server whether who asks may do that."""
    plural, _, subresource = resource.partition("/")
    asked = client.V1ResourceAttributes(
        group=group, resource=plural, subresource=subresource, verb=verb, namespace=namespace, name=name
    )
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
    )
    reviews = client.AuthorizationV1Api(api)
    return reviews.create_self_subject_access_review(review).status.allowed


def as_account(cluster, user):
    api = config.new_client_from_config(cluster.kubeconfig)
    api.set_default_header("Impersonate-User", user)
    api.set_default_header("Impersonate-Group", f"system:serviceaccounts:{user.split(':')[2]}")
    return api
