"""Sign-in by a provider of OpenID Connect: the authorization code flow, with PKCE, state and nonce.

The provider is described by its discovery document; its keys are fetched again when a token names one that is
not known, at most every few seconds. What a token says counts after all checks alone: the signature by an
asymmetric key of the provider (never ``none``, never a shared secret), issuer, audience, expiry and nonce. A
flow lies in a cookie of the browser that began it, signed, and ends with its first answer, right or wrong.

Who somebody is, is the claim ``sub`` unless the settings name another one: names and addresses of mail may be
changed by people, or given to others. An address of mail counts only when the provider has verified it.
Neither access nor refresh tokens are kept: nothing is asked of the provider after the sign-in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import httpx
import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, OctKey

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotAllowedError, NotFoundError
from dlrover_nb.core.yamltext import load_documents
from dlrover_nb.dashboard.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
TIMEOUT_S = 10.0
FLOW_S = 600.0  # from the beginning of a sign-in to its end
MOST_USED = 10_000  # states that are remembered
MOST_WANTED = 1024  # letters of an address to lead to: a browser keeps cookies of 4 KiB
_OWN = "HS256"  # of our own signature
LEEWAY_S = 60.0  # between the provider's clock and ours
KEYS_S = 5.0  # between two looks at the provider's keys


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """A provider, and what this server is to it.

    Parameters
    ----------
    issuer
        Its address, as its tokens name it.
    client_id, client_secret_file
        Of this server; without a file it is a public client, which PKCE alone protects.
    scopes
        Asked for.
    name_claim, groups_claim
        Which tell who somebody is, and their groups; those have their roles in the settings of the server.
    """

    issuer: str
    client_id: str
    client_secret_file: str = ""
    scopes: tuple[str, ...] = ("openid", "profile")
    name_claim: str = "sub"
    groups_claim: str = "groups"

    def __post_init__(self) -> None:
        check_address(self.issuer)
        if "openid" not in self.scopes:
            raise InvalidValueError("scopes of the provider must hold openid; add it")


def check_address(url: str) -> str:
    """Return an address of the provider; `InvalidValueError` where what is sent there could be read."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not is_safe or not parts.hostname:
        raise InvalidValueError(
            f"the provider must be reached over https, got {shown(url)}; correct its address"
        )
    return url


def read_oidc(path: str) -> tuple[OidcSettings, str]:
    """Return the settings of a provider from their file, and the secret of this server; empty: it has none.

    Raises
    ------
    NotFoundError
        When a file is not there.
    InvalidValueError
        When one is malformed, or the provider would be reached in the open.
    """
    file = Path(path).expanduser()
    try:
        documents = load_documents(file.read_text(encoding="utf-8"))
        settings = msgspec.convert(documents[0] if documents else None, OidcSettings)
        secret_file = Path(settings.client_secret_file).expanduser()
        secret = secret_file.read_text(encoding="utf-8").strip() if settings.client_secret_file else ""
    except FileNotFoundError as error:
        raise NotFoundError(f"no file {error.filename} of the provider; create it") from error
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidValueError):
            raise error.__cause__ from None
        raise InvalidValueError(f"settings of the provider at {file}: {error}; correct them") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"cannot read {file}: {error}; make it readable") from error
    return settings, secret


@dataclass(frozen=True, slots=True)
class Flow:
    """A sign-in that has begun: what its answer must fit, and where it leads."""

    state: str
    nonce: str
    verifier: str
    wanted: str
    redirect_uri: str
    at_s: float


class Flows:
    """Sign-ins that have begun. Each is kept by its browser, signed; here are the states that were used.

    A list of them was rejected: it must be bounded, and ten thousand requests, which need no account, would
    push the sign-ins of others out. Only an answer with the cookie of its flow makes an entry among the used
    states, of which the oldest are forgotten first: the provider redeems no code twice anyway. The key is of
    one process, so a flow does not outlive it. For one thread.
    """

    def __init__(self) -> None:
        self._key = OctKey.import_key(secrets.token_bytes(32))
        self._used: OrderedDict[str, None] = OrderedDict()

    def begin(self, wanted: str, redirect_uri: str, at_s: float) -> tuple[Flow, str]:
        """Return a new flow, and the text that its browser brings again."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        wanted = wanted if len(wanted) <= MOST_WANTED else "/"
        flow = Flow(state, nonce, verifier, wanted, redirect_uri, at_s)
        return flow, jwt.encode({"alg": _OWN}, msgspec.to_builtins(flow), self._key)

    def take(self, state: str, signed: str, at_s: float) -> Flow:
        """Return the flow of a state, once, from its browser's text; `NotAllowedError` if they differ."""
        flow = self._read(signed)
        is_of_it = flow is not None and hmac.compare_digest(flow.state.encode(), state.encode())
        if flow is None or not is_of_it or at_s - flow.at_s > FLOW_S or state in self._used:
            raise NotAllowedError("this sign-in was not begun here, or too long ago; begin it again")
        self._used[state] = None
        while len(self._used) > MOST_USED:
            self._used.popitem(last=False)
        return flow

    def _read(self, signed: str) -> Flow | None:
        """Return the flow in a text that was signed here; None: it was not."""
        try:
            return msgspec.convert(jwt.decode(signed, self._key, algorithms=[_OWN]).claims, Flow)
        except (JoseError, ValueError):  # msgspec's are values too
            return None


class Provider:
    """The provider; its methods wait for it and are for threads.

    Parameters
    ----------
    settings
        Where it is, and what this server is to it.
    secret
        Of this server; empty: a public client.
    """

    def __init__(self, settings: OidcSettings, secret: str) -> None:
        self.settings, self._secret = settings, secret
        self._lock = threading.Lock()
        self._document: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._keys_s = -KEYS_S

    def start_url(self, flow: Flow) -> str:
        """Return where a browser goes to sign in."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(flow.verifier.encode()).digest()).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": flow.redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        return f"{self._endpoint('authorization_endpoint')}?{urlencode(query)}"

    def end_url(self, id_token: str, back: str) -> str:
        """Return where a browser goes to sign out of the provider too; empty: it has no such address."""
        if not self.document().get("end_session_endpoint"):
            return ""
        query = {"id_token_hint": id_token, "post_logout_redirect_uri": back}
        return f"{self._endpoint('end_session_endpoint')}?{urlencode(query)}"

    def redeem(self, code: str, flow: Flow) -> tuple[str, Mapping[str, Any]]:
        """Return the id token for a code, and its claims after all checks.

        Raises
        ------
        NotAllowedError
            When the provider refuses the code, or its token does not hold.
        BackendError
            When it does not answer.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": flow.redirect_uri,
            "code_verifier": flow.verifier,
            "client_id": self.settings.client_id,
        }
        login = httpx.BasicAuth(self.settings.client_id, self._secret) if self._secret else None
        answer = self._asked("POST", self._endpoint("token_endpoint"), form, login)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise NotAllowedError("the provider did not sign you in; begin the sign-in again")
        claims = self._claims(token)
        why = why_not_valid(claims, self.settings, flow.nonce, time.time())  # noqa: TID251 - against its date
        if why:
            raise NotAllowedError(f"the provider's token is not valid: {why}")
        return token, claims

    def document(self) -> dict[str, Any]:
        """Return the discovery document, fetched once."""
        with self._lock:
            if not self._document:
                url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
                document = self._asked("GET", url)
                if document.get("issuer") != self.settings.issuer:
                    raise BackendError(
                        f"the provider calls itself {shown(str(document.get('issuer')))}, and the settings "
                        f"{self.settings.issuer!r}; correct the issuer"
                    )
                self._document = document
            return self._document

    def _endpoint(self, name: str) -> str:
        url = self.document().get(name)
        if not isinstance(url, str):
            raise BackendError(f"the provider has no {name}; use another one")
        return check_address(url)

    def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            return jwt.decode(token, self._known_keys(), algorithms=ALGORITHMS).claims
        except (JoseError, ValueError):
            pass  # perhaps by a key that is new
        try:
            return jwt.decode(token, self._new_keys(), algorithms=ALGORITHMS).claims
        except (JoseError, ValueError) as error:
            raise NotAllowedError(f"the provider's token is not signed by its keys: {error}") from error

    def _known_keys(self) -> KeySet:
        return self._keys if self._keys is not None else self._new_keys()

    def _new_keys(self) -> KeySet:
        url = self._endpoint("jwks_uri")
        with self._lock:
            if self._keys is None or time.monotonic() - self._keys_s >= KEYS_S:
                document = self._asked("GET", url)
                try:
                    self._keys = KeySet.import_key_set({"keys": document.get("keys", [])})
                except (JoseError, ValueError) as error:
                    raise BackendError(f"the keys of the provider cannot be read: {error}") from error
                self._keys_s = time.monotonic()
            return self._keys

    def _asked(
        self, method: str, url: str, form: dict[str, str] | None = None, login: httpx.BasicAuth | None = None
    ) -> dict[str, Any]:
        try:
            answer = httpx.request(
                method, check_address(url), data=form, auth=login, timeout=TIMEOUT_S, follow_redirects=False,
                headers={"Accept": "application/json"},
            )  # fmt: skip
            content = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise BackendError(f"the provider at {self.settings.issuer} does not answer: {error}") from error
        if 400 <= answer.status_code < 500 and form is not None:
            raise NotAllowedError("the provider refused this sign-in; begin it again")
        if answer.status_code != 200 or not isinstance(content, dict):
            raise BackendError(
                f"the provider at {self.settings.issuer} answered {answer.status_code}; try later"
            )
        return content


def why_not_valid(claims: Mapping[str, Any], settings: OidcSettings, nonce: str, now_s: float) -> str:
    """Return why the claims of a token do not hold; empty: they do."""
    of = claims.get("aud")
    audience = [of] if isinstance(of, str) else of if isinstance(of, list) else []
    party = claims.get("azp", settings.client_id if len(audience) < 2 else None)
    token_nonce = str(claims.get("nonce", ""))
    checks = {
        "it is of another issuer": claims.get("iss") == settings.issuer,
        "it is for another client": settings.client_id in audience,
        "it was made for another client": party == settings.client_id,
        "it has expired": now_s < _time(claims, "exp", -1.0) + LEEWAY_S,
        "it is not valid yet": now_s >= _time(claims, "nbf", 0.0) - LEEWAY_S,
        "it is of another sign-in": hmac.compare_digest(token_nonce.encode(), nonce.encode()),
    }
    return next((why for why, holds in checks.items() if not holds), "")


def _time(claims: Mapping[str, Any], name: str, missing: float) -> float:
    value = claims.get(name, missing)
    return float(value) if isinstance(value, (int, float)) else -1.0 if name == "exp" else float("inf")


def who_is(claims: Mapping[str, Any], settings: OidcSettings) -> tuple[str, tuple[str, ...]]:
    """Return name and groups of the person whom claims describe; `NotAllowedError` where they name nobody."""
    name = claims.get(settings.name_claim)
    if not isinstance(name, str):
        raise NotAllowedError(f"the provider does not send {settings.name_claim}; ask for its scope")
    if settings.name_claim == "email" and claims.get("email_verified") is not True:
        raise NotAllowedError("the provider has not verified your e-mail address; verify it there")
    value = claims.get(settings.groups_claim, [])
    groups = value if isinstance(value, list) else []
    return name, tuple(each for each in groups if isinstance(each, str))
