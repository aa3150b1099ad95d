"""Credentials and place for an API server: a kubeconfig's context, or a pod's own account.

The one module that uses the Kubernetes client: it reads contexts, certificates and credential plugins,
refreshes tokens and holds the connection pool. Its model classes are not used. Two things are added: `as` of
a kubeconfig, and errors without any content of a kubeconfig, since the client's own texts print whole
entries, tokens included.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml

from dlrover_nb.core.backends.kubernetes.client.contexts import IN_CLUSTER
from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_N_CONNECTION = 64  # kept open; more are closed after use, with a warning for each
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials, place, and how both are shown.

    Parameters
    ----------
    client
        The Kubernetes client's ApiClient.
    context, user
        Names in the kubeconfig; in a pod ``in-cluster`` and the account's.
    namespace
        The user's default namespace.
    headers
        For acting as another user.
    """

    client: Any = field(repr=False)
    context: str
    user: str
    namespace: str
    headers: tuple[tuple[str, str], ...] = ()


def load_login(context: str | None, kubeconfig: str | None) -> Login:
    """Read a kubeconfig, or a pod's own account where there is none.

    Parameters
    ----------
    context
        In the kubeconfig; None: its current one.
    kubeconfig
        One path or several, as in ``KUBECONFIG``, which is read when this is None.

    Raises
    ------
    BackendError
        When there is no configuration, or it is unusable: what is wrong with it, and where.
    """
    paths = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [path for path in paths.split(os.pathsep) if path and Path(path).expanduser().is_file()]
    if files:
        return _from_kubeconfig(os.pathsep.join(files), context)
    if kubeconfig or context or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise BackendError(f"there is no kubeconfig at {paths}; set KUBECONFIG to the path of yours")
    return _in_cluster()


def credentials(login: Login) -> dict[str, str]:
    """Return the authentication headers; refreshed where they expire.

    Raises
    ------
    BackendError
        When they cannot be obtained.
    """
    try:
        settings = login.client.configuration.auth_settings()
    except Exception as error:
        raise _no_credentials(login.context) from error
    headers = {each["key"]: str(each["value"]).strip() for each in settings.values() if each["value"]}
    values = headers.values()
    if not all(each.isascii() and each.isprintable() for each in values):  # or an error prints it
        raise _no_credentials(
            login.context, ["its token has characters that are not allowed in an HTTP header"]
        )
    return headers


def impersonating(login: Login, user: str, groups: Sequence[str] = ()) -> Login:
    """Return the login that acts as another user, where this one has the right to impersonate them.

    Names that Kubernetes reserves (``system:``) are refused: a client that names a user could else become the
    administrator of the cluster through the account of a server.

    Raises
    ------
    BackendError
        When a name is reserved, or no header can hold it.
    """
    for name in (user, *groups):
        if not name or name.startswith("system:") or not name.isprintable() or not name.isascii():
            raise BackendError(
                f"{name!r} is no name to act as: expected printable ASCII that does not begin with "
                "'system:'; correct the user or the group where people sign in"
            )
    headers = (("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups))
    return replace(login, user=user, headers=headers)


def _from_kubeconfig(paths: str, wanted: str | None) -> Login:
    from kubernetes import client, config  # noqa: PLC0415 - needs the extra, and takes 0.3 s
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger  # noqa: PLC0415 - as above

    where = f"kubeconfig {paths}"
    try:
        merged = KubeConfigMerger(paths)
        entries = _entries(merged.config.value)
    except (OSError, yaml.YAMLError, config.ConfigException, AttributeError, TypeError, KeyError) as error:
        raise BackendError(f"{where} is not a kubeconfig ({_place(error)}); correct it") from error
    context = wanted or merged.config.value.get("current-context") or ""
    cluster_and_user = _context(entries, context, where)
    user = entries["users"].get(str(cluster_and_user.get("user")), {})
    configuration = _configuration()
    messages: list[str] = []
    try:
        with _client_messages() as messages:
            KubeConfigLoader(
                merged.config,
                active_context=context,
                config_base_path=None,
                config_persister=merged.save_changes,
            ).load_and_set(configuration)
    except Exception as error:
        if str(error).startswith("File does not exist"):
            raise BackendError(f"context {context} of {where}: {error}") from error
        raise _no_credentials(context, messages) from error
    if ("exec" in user or "auth-provider" in user) and not (configuration.api_key or configuration.cert_file):
        raise _no_credentials(context, messages)
    return Login(
        client.ApiClient(configuration),
        context,
        str(cluster_and_user.get("user") or "nobody"),
        str(cluster_and_user.get("namespace") or "default"),
        tuple(_impersonation(user)),
    )


def _configuration() -> Any:  # noqa: ANN401 - the client carries no types
    from kubernetes import client  # noqa: PLC0415 - as above

    configuration = client.Configuration()
    configuration.connection_pool_maxsize = _N_CONNECTION
    configuration.keep_alive = True  # a watch whose peer vanished is noticed
    return configuration


def _entries(config: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the named entries of a merged kubeconfig, by list and name."""
    return {
        plural: {node.value["name"]: node.value[plural[:-1]] or {} for node in config[plural]}
        for plural in ("clusters", "users", "contexts")
    }


def _context(entries: Mapping[str, Mapping[str, dict[str, Any]]], name: str, where: str) -> dict[str, Any]:
    there = entries["contexts"]
    if name not in there:
        names = ", ".join(sorted(map(str, there))) or "none"
        got = f"has no context {name}" if name else "names no current context"
        raise BackendError(f"{where} {got}; choose one of its contexts: {names}")
    context = there[name]
    for plural in ("clusters", "users"):
        entry = context.get(plural[:-1])
        if entry not in entries[plural] and (entry or plural == "clusters"):
            raise BackendError(
                f"context {name} of {where} names the {plural[:-1]} {entry}, which does not exist"
            )
    if not entries["clusters"][context["cluster"]].get("server"):
        raise BackendError(f"cluster {context['cluster']} of {where} has no server; add its URL")
    return context


def _impersonation(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers for acting as another user; the client leaves these fields out."""
    if user.get("as"):
        yield "Impersonate-User", str(user["as"])
    if user.get("as-uid"):
        yield "Impersonate-Uid", str(user["as-uid"])
    for group in user.get("as-groups") or ():
        yield "Impersonate-Group", str(group)
    for key, values in (user.get("as-user-extra") or {}).items():
        yield from ((f"Impersonate-Extra-{quote(key, safe='')}", str(value)) for value in values)


def _in_cluster() -> Login:
    from kubernetes import client, config  # noqa: PLC0415 - as above

    configuration = _configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = (_ACCOUNT / "namespace").read_text().strip()
    except (OSError, config.ConfigException) as error:
        text = f"this pod has no service account for the API server ({error})"
        raise BackendError(f"{text}; set automountServiceAccountToken") from error
    return Login(client.ApiClient(configuration), IN_CLUSTER, "its service account", namespace)


def _place(error: Exception) -> str:
    """Return what is wrong with a file without any of its content: that may be a token."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"no YAML at line {error.problem_mark.line + 1}"
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    return "expected clusters, users and contexts, each with a name"


def _no_credentials(context: str, messages: Sequence[str] = ()) -> BackendError:
    why = " ".join(" ".join(messages).split())[:300] or "they are missing or malformed"
    return BackendError(f"context {context} gives no credentials ({why}); sign in again and connect again")


@contextlib.contextmanager
def _client_messages() -> Iterator[list[str]]:
    """Collect the client's messages to the root logger: why a plugin gave no credentials."""
    root, messages = logging.getLogger(), list[str]()

    def keep(record: logging.LogRecord) -> bool:
        if record.pathname.endswith("kube_config.py"):
            messages.append(record.getMessage())
            return False
        return True

    quiet = logging.NullHandler()  # with no handler at all the client would set one up
    root.addHandler(quiet)
    root.addFilter(keep)
    try:
        yield messages
    finally:
        root.removeFilter(keep)
        root.removeHandler(quiet)
