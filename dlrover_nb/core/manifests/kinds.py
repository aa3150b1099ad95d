"""The kinds of objects in use, with their place in the API, as a literal table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Doc: TypeAlias = dict[str, Any]  # an object in the API's JSON form, as its kind defines


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object.

    Parameters
    ----------
    name
        As in ``kind:``.
    plural
        As in URLs and in the rules of Roles.
    group, version
        Of its API; the group of Pods and the like is empty.
    namespaced
        False when its objects belong to the cluster as a whole.
    """

    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As in ``apiVersion:``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Path of its API's group and version, for discovery."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the path of its objects, or of one; an empty namespace: those of all namespaces."""
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        parts = [part for part in (name, subresource) if part]
        return "/".join((f"{self.root}{inside}/{self.plural}", *parts))


_RBAC = "rbac.authorization.k8s.io"
_REVIEWS = "authorization.k8s.io"

POD = Kind("Pod", "pods")
SECRET = Kind("Secret", "secrets")
CONFIG_MAP = Kind("ConfigMap", "configmaps")
SERVICE = Kind("Service", "services")
SERVICE_ACCOUNT = Kind("ServiceAccount", "serviceaccounts")
QUOTA = Kind("ResourceQuota", "resourcequotas")
LIMIT_RANGE = Kind("LimitRange", "limitranges")
CLAIM = Kind("PersistentVolumeClaim", "persistentvolumeclaims")
EVENT = Kind("Event", "events")
NODE = Kind("Node", "nodes", namespaced=False)
NODE_METRICS = Kind("NodeMetrics", "nodes", "metrics.k8s.io", "v1beta1", namespaced=False)
NAMESPACE = Kind("Namespace", "namespaces", namespaced=False)
JOB = Kind("Job", "jobs", "batch")
DEPLOYMENT = Kind("Deployment", "deployments", "apps")
BUDGET = Kind("PodDisruptionBudget", "poddisruptionbudgets", "policy")
BUDGET_1_20 = Kind("PodDisruptionBudget", "poddisruptionbudgets", "policy", "v1beta1")  # served until 1.24
ROLE = Kind("Role", "roles", _RBAC)
ROLE_BINDING = Kind("RoleBinding", "rolebindings", _RBAC)
CLUSTER_ROLE = Kind("ClusterRole", "clusterroles", _RBAC, namespaced=False)
CLUSTER_ROLE_BINDING = Kind("ClusterRoleBinding", "clusterrolebindings", _RBAC, namespaced=False)
PRIORITY_CLASS = Kind("PriorityClass", "priorityclasses", "scheduling.k8s.io", namespaced=False)
CRD = Kind("CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", namespaced=False)
ACCESS_REVIEW = Kind("SelfSubjectAccessReview", "selfsubjectaccessreviews", _REVIEWS, namespaced=False)
RULES_REVIEW = Kind("SelfSubjectRulesReview", "selfsubjectrulesreviews", _REVIEWS, namespaced=False)
SELF_REVIEWS = tuple(  # the newest first: of 1.28, 1.27 and 1.26
    Kind("SelfSubjectReview", "selfsubjectreviews", "authentication.k8s.io", version, namespaced=False)
    for version in ("v1", "v1beta1", "v1alpha1")
)
ELASTIC_JOB = Kind("ElasticJob", "elasticjobs", "elastic.iml.github.io", "v1alpha1")
SCALE_PLAN = Kind("ScalePlan", "scaleplans", "elastic.iml.github.io", "v1alpha1")
TF_JOB = Kind("TFJob", "tfjobs", "kubeflow.org")
PYTORCH_JOB = Kind("PyTorchJob", "pytorchjobs", "kubeflow.org")
TRAIN_JOB = Kind("TrainJob", "trainjobs", "trainer.kubeflow.org", "v1alpha1")
TRAINING_RUNTIME = Kind("TrainingRuntime", "trainingruntimes", "trainer.kubeflow.org", "v1alpha1")
RAY_JOB = Kind("RayJob", "rayjobs", "ray.io")
JOB_SET = Kind("JobSet", "jobsets", "jobset.x-k8s.io", "v1alpha2")

OWNERS = {kind.name: kind for kind in (JOB, ELASTIC_JOB)}  # of a master's pod and all else of a job
