"""Settings of a server: the flags of ``serve``, and a file for what is no flag.

The file is YAML with the keys of `ServeSettings`; a flag wins over it. What must not be is refused here,
before anything is opened: above all a server that strangers could reach without a sign-in.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from dlrover_nb.core.basics.nearest import did_you_mean
from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.decisions.people import Grant
from dlrover_nb.core.structs.views.alerts import AlertRules
from dlrover_nb.core.yamltext import load_documents
from dlrover_nb.dashboard.alerts.settings import AlertSettings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

HOUR_S = 3600.0
_PART = re.compile(r"[\w.~@%+-]*[\w][\w.~@%+-]*", re.ASCII)  # of a path: names of people are among them
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """A proxy that signs people in, and tells who asks in a header.

    Parameters
    ----------
    header
        Has the name of the person.
    groups_header
        Has their groups, with commas between; empty: none.
    trusted
        Addresses of the proxies, or networks such as ``10.0.0.0/24``: nobody else may send these headers.
    """

    header: str
    trusted: tuple[str, ...]
    groups_header: str = ""

    def __post_init__(self) -> None:
        if not self.trusted:
            raise InvalidValueError(
                "a proxy's header needs the proxy's address, because anyone could send it; "
                "add --trusted-proxy IP"
            )
        for each in self.trusted:
            network(each)

    def is_trusted(self, address: str) -> bool:
        """Whether a request from this address is the proxy's."""
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False  # a unix socket has no address
        return any(peer in network(each) for each in self.trusted)


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a network, or the one of a single address; `InvalidValueError` where it is neither."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidValueError(
            f"trusted proxy must be an address or a network such as 10.0.0.0/24, got {shown(text)}"
        ) from error


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Settings of a server.

    Parameters
    ----------
    clusters
        What to watch: ``local``, ``ray``, ``HOST:PORT``,
        ``kubernetes://CONTEXT/NAMESPACE``; none: what runs on this machine.
    address
        To listen on; one that is not loopback needs a sign-in and `url`.
    port
        To listen on; 0: any that is free.
    unix_socket
        Path of a socket to listen on instead.
    prefix
        Path under which a proxy serves it, such as ``/dlrover``.
    url
        Public address where it is not the one listened to, such as ``https://dlrover.example.com``.
    users
        File of the people who may sign in by a password.
    oidc
        File of the provider that signs people in.
    proxy
        A proxy that signs people in.
    groups
        Roles of groups, each a list of ``{role: …, namespace: …}``; ``*`` is everybody whom a provider or a
        proxy names.
    impersonate_groups
        Groups of Kubernetes that the server's account may name when it acts as a person who is in them.
    idle_s
        For how long a sign-in lasts that is not used.
    absolute_s
        For how long a sign-in lasts at all.
    history
        URL of the database; none: what ``DLROVER_NB_HISTORY`` names, else the user's own file.
    second_person_over_cost_per_hour
        A plan that costs more needs a second person, in the currency of the job's prices.
    second_person_actions
        Actions that always need a second person.
    metrics_token_file
        File with the secret that Prometheus sends as a bearer token; empty: it must sign in otherwise.
    heard_s
        A cluster that was not heard for this long makes the server unready.
    alerts
        When alerts begin, and whom they are sent to.
    """

    clusters: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    port: int = 5006
    unix_socket: str = ""
    prefix: str = ""
    url: str = ""
    users: str = ""
    oidc: str = ""
    proxy: ProxySettings | None = None
    groups: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    impersonate_groups: tuple[str, ...] = ()
    idle_s: float = 8 * HOUR_S
    absolute_s: float = 24 * HOUR_S
    history: str | None = None
    second_person_over_cost_per_hour: float | None = None
    second_person_actions: frozenset[Action] = frozenset()
    metrics_token_file: str = ""
    heard_s: float = 15.0
    alerts: AlertSettings = field(default_factory=AlertSettings)

    def __post_init__(self) -> None:
        _check_prefix(self.prefix)
        _check_url(self.url, self.prefix)
        if not 0 <= self.port < 65536:
            raise InvalidValueError(f"port must be 0 to 65535, got {self.port}")
        if not 0 < self.idle_s <= self.absolute_s:
            raise InvalidValueError(
                f"idle_s must be > 0 and at most absolute_s, got {self.idle_s:g} and {self.absolute_s:g}"
            )
        if sum(map(bool, (self.users, self.oidc, self.proxy))) > 1:
            raise InvalidValueError("one way to sign in is possible, got several; use users, oidc or a proxy")
        self._check_who_reaches_it()

    def _check_who_reaches_it(self) -> None:
        if self.unix_socket or is_loopback(self.address):
            return
        if not self.has_sign_in:
            raise InvalidValueError(
                f"without a sign-in a server listens on loopback only, got {self.address}: everyone who "
                "reaches it could command jobs; add --users, --oidc or --proxy-header, or leave --address out"
            )
        if not self.url:
            raise InvalidValueError(
                f"a server on {self.address} must know the address that browsers use; add --url https://HOST"
            )

    @property
    def has_sign_in(self) -> bool:
        """Whether people must sign in."""
        return bool(self.users or self.oidc or self.proxy)

    @property
    def is_https(self) -> bool:
        """Whether browsers reach it by TLS, which a proxy ends."""
        return self.url.startswith("https:")

    def first_page(self, port: int) -> str:
        """Return the address of the first page, with a slash at its end, of a server on a port."""
        if self.url:
            return self.url.rstrip("/").removesuffix(self.prefix) + self.prefix + "/"
        if self.unix_socket:
            return f"unix:{self.unix_socket}"
        return f"http://{self._host}:{port}{self.prefix}/"

    @property
    def _host(self) -> str:
        return f"[{self.address}]" if ":" in self.address else self.address

    def hosts(self, port: int) -> frozenset[str]:
        """Return the names under which browsers may reach it; none: any, as a proxy leads to its socket."""
        public = urlsplit(self.url)
        names = set()
        if public.netloc:
            names.add(public.netloc.lower())
        if not self.unix_socket and is_loopback(self.address) and not self.is_https:
            loopback = {*_LOOPBACK_NAMES, self._host}  # 127.0.0.2 and the like are loopback too
            names |= {f"{name}:{port}" for name in loopback}
            names |= loopback if port == 80 else set()
        return frozenset(names)


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def _check_prefix(prefix: str) -> None:
    parts = prefix.split("/")
    if prefix and (parts[0] or not all(_PART.fullmatch(part) for part in parts[1:])):
        raise InvalidValueError(f"prefix must be a path such as /dlrover, got {shown(prefix)}; correct it")


def _check_url(url: str, prefix: str) -> None:
    parts = urlsplit(url)
    if not url:
        return
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
        raise InvalidValueError(f"url must be like https://dlrover.example.com, got {shown(url)}; correct it")
    if parts.path.rstrip("/") not in {"", prefix}:
        raise InvalidValueError(f"the path of the url is the prefix {prefix or '/'}, got {shown(parts.path)}")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise InvalidValueError(
            f"people sign in over https, got {shown(url)}: their passwords could be read on the way; "
            "let a proxy end TLS, and give its https address"
        )


def read_settings(path: str | None, flags: Mapping[str, object]) -> ServeSettings:
    """Return the settings of a file, and of the flags that were given, which win.

    Raises
    ------
    NotFoundError
        When the file is not there.
    InvalidValueError
        When it is malformed, or what it says must not be.
    """
    content = {} if path is None else _read(path)
    given = {name: value for name, value in flags.items() if value not in (None, (), [], "")}
    try:
        return msgspec.convert({**content, **given}, ServeSettings)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidValueError):
            raise error.__cause__ from None
        raise InvalidValueError(f"settings of the server: {error}; correct {path or 'the flags'}") from error


def _read(path: str) -> dict[str, object]:
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"no settings at {file}; create it, or leave --settings out") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"cannot read the settings at {file}: {error}; make it readable") from error
    documents = [each for each in load_documents(text) if each is not None]
    if not documents:
        return {}
    if len(documents) > 1 or not isinstance(documents[0], dict):
        raise InvalidValueError(f"settings at {file} must be one group of keys; correct it")
    _check_keys(documents[0], ServeSettings, str(file))
    return documents[0]


_GROUPS = {"alerts": AlertSettings, "rules": AlertRules}  # keys that hold keys of their own


def _check_keys(content: Mapping[str, object], kind: type[DataclassInstance], where: str) -> None:
    """Refuse a key that a group does not have: a misspelled one would be silently without effect."""
    names = [each.name for each in fields(kind)]
    for key, value in content.items():
        if key not in names:
            raise InvalidValueError(
                f"unknown key {shown(str(key))} in {where}; {did_you_mean(str(key), names)}"
            )
        if key in _GROUPS and isinstance(value, dict):
            _check_keys(value, _GROUPS[key], f"{key} of {where}")
