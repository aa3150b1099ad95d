"""Credentials are taken out of texts by their values, their forms and their names; other texts stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.basics.redaction import MIN_LETTERS, PLACEHOLDER, Redactor, is_secret_name, redact

_HIDDEN = "hunter2hunter2"
LEAKS = {
    "password in a URL": (f"cannot read s3://ada:{_HIDDEN}@bucket/day.parquet", _HIDDEN),
    "password with a slash in a URL": (f"s3://AKIAX:ab/{_HIDDEN}+/x@bucket/day.parquet", _HIDDEN),
    "token as the user of a URL": ("git clone https://abcdefabcdefabcdef@host/x", "abcdefabcdefabcdef"),
    "shared access signature": ("az://c.blob/x?sv=2024&sig=Zm9vYmFy%2Bx%3D&se=1", "Zm9vYmFy"),
    "signed S3 URL": ("https://b.s3/x?X-Amz-Credential=me&X-Amz-Signature=0a1b2c3d4e", "0a1b2c3d4e"),
    "password by name": (f"password={_HIDDEN}", _HIDDEN),
    "password in JSON": (f'{{"db_password": "{_HIDDEN}"}}', _HIDDEN),
    "environment": (f"AWS_SECRET_ACCESS_KEY={_HIDDEN}", _HIDDEN),
    "account key": (f"AccountName=a;AccountKey={_HIDDEN};x=1", _HIDDEN),
    "option of a program": (f"run --api-key: {_HIDDEN}", _HIDDEN),
    "header": ("Authorization: Bearer abc.def-ghi", "abc.def-ghi"),
    "header of another scheme": (f"Authorization: Token {_HIDDEN}", _HIDDEN),
    "npm": ("npm_" + "c3" * 18, "c3c3"),
    "PyPI": ("upload with pypi-AgEIcHlwaS5vcmc" + "d4" * 30, "d4d4"),
    "Stripe": ("sk_live_" + "e5" * 12, "e5e5"),
    "Docker": ("dckr_pat_" + "f6" * 13, "f6f6"),
    "SendGrid": ("SG." + "a7" * 11 + "." + "b8" * 20, "b8b8"),
    "Google": ("ya29." + "a0" * 30, "a0a0"),
    "AWS key": ("key AKIAABCDEFGHIJKLMNOP is wrong", "AKIAABCDEFGHIJKLMNOP"),
    "GitHub": ("ghp_" + "a1" * 18, "a1a1"),
    "Hugging Face": ("login with hf_" + "b2" * 17, "b2b2"),
    "Slack's webhook": ("POST https://hooks.slack.com/services/T0/B0/abcdef 404", "abcdef"),
    "Discord's webhook": ("https://discord.com/api/webhooks/123/abcdef", "abcdef"),
    "Slack's token": ("xoxb-1234567890-abcdef", "1234567890"),
    "web token": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjMifQ.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
    "private key": ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----", "MIIEabc"),
}
HARMLESS = (
    "step 120: loss 0.31, 5,120 samples/s; tokens: 512; author: Ada Lovelace",
    "s3://bucket/day1.parquet?x=1",
    "gs://bucket/run@2024/part-0",
    "http://10.0.0.1:8000/run@2024/part-0 and http://host:80/a@b",
    "the skill npm_run, pypi-mirror and sk_live are words; Token refreshed",
    "worker-0 of job ads: key=3 value=5, n_token=4 keyed by user",
    "mail ada@example.org",
    "the job's access token lies in its Secret",
    "plan 2w1p, 0.5 cores: 12.5 at 3.1",
)


@for_each("kind", LEAKS)
def test_a_credential_of_a_known_form_is_taken_out(kind: str) -> None:
    text, secret = LEAKS[kind]
    assert secret not in redact(text)
    assert PLACEHOLDER in redact(text)


@for_each("text", HARMLESS)
def test_a_text_without_credentials_stays(text: str) -> None:
    assert redact(text) == text


@for_each("kind", LEAKS)
def test_a_redacted_text_stays_as_it_is(kind: str) -> None:
    once = redact(LEAKS[kind][0])
    assert redact(once) == once


@given(st.text(), st.text(), st.text(min_size=MIN_LETTERS))
def test_a_known_value_is_in_no_text(before: str, after: str, value: str) -> None:
    text = Redactor((value,))(before + value + after)
    assert value not in text.replace(PLACEHOLDER, "")


def test_a_short_value_is_not_looked_for() -> None:
    assert Redactor(("a",))("a plan") == "a plan"


def test_texts_within_data_are_redacted_and_all_else_stays() -> None:
    data = {"password": 3, "notes": [f"s3://u:{_HIDDEN}@x/y", 1.5, None, True]}
    assert Redactor().within(data) == {
        "password": 3,
        "notes": [f"s3://{PLACEHOLDER}@x/y", 1.5, None, True],
    }


@for_each(
    "name",
    [
        *("HF_TOKEN", "db-password", "AWS_SECRET_ACCESS_KEY", "SLACK_WEBHOOK", "DSN", "DB_PASS", "PGPASS"),
        *(
            "GITHUB_PAT",
            "BLOB_SAS",
            "STRIPE_SK",
            "COOKIE",
            "SESSION",
            "SESSION_ID",
            "WANDB_KEY",
            "KEY",
            "JWT",
        ),
        *("PGPASSFILE", "SSH_PASSPHRASE", "DB_PASS_2"),
    ],
)
def test_names_tell_what_holds_a_secret(name: str) -> None:
    assert is_secret_name(name)
    assert is_secret_name(name.lower())


@for_each(
    "name",
    ["LEVEL", "OMP_NUM_THREADS", "FEED", "KEY_COLUMN", "KEYS", "MASK", "PATH", "SESSION_LENGTH", "COMPASS"],
)
def test_other_names_hold_none(name: str) -> None:
    assert not is_secret_name(name)


@for_each("letter", ["a", "A1_", "token", "://x", "secret=", '"', "eyJ", "?key="])
def test_a_long_line_takes_time_in_proportion_to_its_length(letter: str) -> None:
    line = letter * (200_000 // len(letter))
    assert len(redact(line)) <= 40 * len(line)
