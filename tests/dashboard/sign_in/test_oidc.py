"""The checks of a provider's tokens: each one alone decides."""

import base64
import hmac
import json
from types import SimpleNamespace

import httpx
import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from support.cases import for_each
from support.virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.errors import BackendError, InvalidValueError, NotAllowedError
from dlrover_nb.dashboard.sign_in.oidc import (
    FLOW_S,
    LEEWAY_S,
    Flows,
    OidcSettings,
    Provider,
    read_oidc,
    who_is,
    why_not_valid,
)

SETTINGS = OidcSettings("https://id.example.com", "dlrover")
GOOD = {"iss": "https://id.example.com", "aud": "dlrover", "exp": 1000, "nonce": "n", "sub": "ada"}
NOW_S = 500.0


def test_a_token_that_fits_is_valid():
    assert why_not_valid(GOOD, SETTINGS, "n", NOW_S) == ""
    assert why_not_valid({**GOOD, "aud": ["other", "dlrover"], "azp": "dlrover"}, SETTINGS, "n", NOW_S) == ""


@for_each(
    "changed",
    [
        {"iss": "https://evil.example"},
        {"iss": "https://id.example.com/"},
        {"iss": None},
        {"aud": "other"},
        {"aud": ["other"]},
        {"aud": None},
        {"aud": ["other", "dlrover"]},
        {"azp": "other"},
        {"exp": NOW_S - LEEWAY_S},
        {"exp": "soon"},
        {"exp": None},
        {"nbf": NOW_S + LEEWAY_S + 1},
        {"nbf": "x"},
        {"nonce": "other"},
        {"nonce": None},
        {"nonce": ""},
    ],
)
def test_each_claim_that_does_not_fit_is_enough_to_refuse_it(changed):
    assert why_not_valid({**GOOD, **changed}, SETTINGS, "n", NOW_S)


def test_a_token_without_a_claim_is_refused():
    for name in ("iss", "aud", "exp", "nonce"):
        assert why_not_valid({key: value for key, value in GOOD.items() if key != name}, SETTINGS, "n", NOW_S)


def by_shared_secret(public_key):
    """Return a token that is signed by HMAC with the public key as its secret."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "kid": "a"}, GOOD)
    ]
    signature = hmac.new(public_key, b".".join(parts), "sha256").digest()
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def test_only_the_keys_of_the_provider_sign_its_tokens():
    key = RSAKey.generate_key(2048, {"kid": "a"})
    provider = Provider(SETTINGS, "")
    provider._document = {"issuer": SETTINGS.issuer, "jwks_uri": "https://id.example.com/keys"}
    provider._keys = KeySet([RSAKey.import_key(key.as_dict(private=False))])
    provider._keys_s = float("inf")  # they were fetched just now
    assert provider._claims(jwt.encode({"alg": "RS256", "kid": "a"}, GOOD, key))["sub"] == "ada"
    forged = [
        jwt.encode({"alg": "RS256", "kid": "a"}, GOOD, RSAKey.generate_key(2048, {"kid": "a"})),
        by_shared_secret(key.as_pem(private=False)),
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.",
        "x",
        "",
        "é.é.é",
    ]
    for token in forged:
        with pytest.raises(NotAllowedError):
            provider._claims(token)


def test_a_flow_is_of_one_browser_and_ends_with_its_first_answer():
    flows = Flows()
    flow, kept = flows.begin("/jobs", "uri", 0.0)
    assert len({flow.nonce, flow.verifier, flow.state}) == 3
    other, of_other = flows.begin("/", "uri", 0.0)
    for state, text in ((flow.state, of_other), (other.state, kept), ("", kept), (flow.state, "")):
        with pytest.raises(NotAllowedError):
            flows.take(state, text, 1.0)
    assert flows.take(flow.state, kept, 1.0) == flow
    with pytest.raises(NotAllowedError):
        flows.take(flow.state, kept, 1.0)
    assert flows.take(other.state, of_other, 1.0) == other, "two tabs at once"
    late, of_late = flows.begin("/", "uri", 0.0)
    with pytest.raises(NotAllowedError):
        flows.take(late.state, of_late, FLOW_S + 1)


def test_no_flow_that_another_key_signed_is_believed():
    flow, kept = Flows().begin("/", "uri", 0.0)
    claims = msgspec.to_builtins(flow)
    bare = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    body = kept.split(".")[1]
    forged = [
        kept,
        f"{bare}.{body}.",
        f"{kept[:-4]}AAAA",
        jwt.encode({"alg": "HS256"}, claims, OctKey.generate_key(256)),
    ]
    for text in forged:
        with pytest.raises(NotAllowedError):
            Flows().take(flow.state, text, 1.0)


def test_ten_thousand_sign_ins_that_nobody_ends_push_none_out():
    flows = Flows()
    flow, kept = flows.begin("/jobs", "uri", 0.0)
    for _ in range(10_010):
        flows.begin("/", "uri", 0.0)
    assert flows.take(flow.state, kept, 1.0) == flow


def test_a_flow_fits_into_a_cookie():
    for wanted in ("/jobs?" + "a" * 1000, "/jobs?" + "a" * 20_000):
        _, kept = Flows().begin(wanted, f"https://{'h' * 250}/prefix/sign-in/back", 0.0)
        assert len(kept) < 3500


def test_an_address_of_mail_counts_when_it_is_verified():
    by_mail = OidcSettings("https://id.example.com", "dlrover", name_claim="email")
    assert who_is({"email": "a@b", "email_verified": True, "groups": ["x", 1]}, by_mail) == ("a@b", ("x",))
    for claims in (
        {"email": "a@b"},
        {"email": "a@b", "email_verified": "true"},
        {"sub": "ada"},
        {"email": 1},
    ):
        with pytest.raises(NotAllowedError):
            who_is(claims, by_mail)


@for_each("issuer", ["http://id.example.com", "id.example.com", "ftp://127.0.0.1", "https://", ""])
def test_a_provider_is_reached_over_tls_but_for_loopback(issuer):
    with pytest.raises(InvalidValueError):
        OidcSettings(issuer, "dlrover")
    assert OidcSettings("http://127.0.0.1:1", "dlrover").scopes == ("openid", "profile")


@for_each("text", ["", "- a", "issuer: https://a", "issuer: http://a\nclient_id: b", "issuer: ["])
def test_malformed_settings_are_refused_in_one_line(tmp_path, text):
    (tmp_path / "oidc.yaml").write_text(text)
    with pytest.raises(InvalidValueError) as told:
        read_oidc(str(tmp_path / "oidc.yaml"))
    assert "\n" not in str(told.value)


def test_a_provider_that_does_not_answer_is_given_up(error_words):
    time = VirtualTime()
    module = as_shipped("dlrover_nb.dashboard.sign_in.oidc", time)

    def request(*_, timeout, **__):
        time.advance(timeout)
        raise httpx.ReadTimeout("timed out")

    module.httpx = SimpleNamespace(request=request, HTTPError=httpx.HTTPError)
    with error_words(BackendError):
        module.Provider(SETTINGS, "secret").document()
    assert time.now_s() == 10.0
