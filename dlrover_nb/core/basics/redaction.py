"""Takes secrets out of texts: one table of their shapes, one placeholder, and values that are known.

Secrets cannot be detected reliably, so three ways are combined. A caller that knows a secret passes its value
(`Redactor`). Credentials that have a fixed form are found by it (`redact`). And a setting counts as secret by
its name (`is_secret_name`), which `core.structs.job.secrets` uses for the places of a job where secrets
stand.

The placeholder is a text that no system takes for a credential, and that a person understands in a job file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PLACEHOLDER = "***redacted***"
MOST_SHOWN = 60  # letters of a value in a message: longer ones hide what is wrong with them
MIN_LETTERS = 6  # of a value that is looked for in texts: a shorter one stands in many words by chance

_SECRET_NAME = re.compile(
    r"secret|token|passw|passphrase|pgpass|pwd|credential|private|api_?key|access_?key|account_?key|auth|dsn"
    r"|conn(ection)?_?str|webhook|cookie|session(?:[_.-]?(?:id|key))?$"
    r"|(?:^|[_.-])(?:pass|pat|sas|sk|key|jwt)[_.-]?\d*$",
    re.IGNORECASE,
)
# In a running text fewer names count: "tokens: 512" and "author: Ada" are none.
_NAMED = (
    r"[\w.-]{0,40}(?:secret|passw(?:or)?d|passwd|passphrase|pwd|credentials?|token|authorization"
    r"|(?:api|access|account|auth|private|secret|shared)[ _-]?(?:access[ _-]?)?(?:key|token))"
    r"(?![A-Za-z])[\w.-]{0,20}"
)
# The name of an option, as a word of its own: "--tokenizer" and "--max-tokens" are none.
_OPTION = (
    r"--?[\w.-]{0,40}(?:secret|passw(?:or)?d|passwd|passphrase|pwd|credentials?|token|apikey|jwt|dsn|cookie|auth"
    r"|(?<![A-Za-z])(?:pass|pat|sas)|(?:api|access|account|auth|private|secret|shared)[_-]?(?:access[_-]?)?key)"
    r"(?![\w.-])"
)
_SECRET_OPTION = re.compile(_OPTION, re.IGNORECASE)
_PASSWORD = rf"(?![-/.~\d*])[^\s\"']{{{MIN_LETTERS},}}"  # of -p, which is a port or a path elsewhere
_SHORT_OPTION = re.compile(rf"((?<!mkdir )(?<!\S)-p[ ]{{1,3}}[\"']?){_PASSWORD}")
_USER, _USERS = r"[\w.@-]{1,64}:", r"(?!\d+\b)[^\s\"']{4,}"  # of curl's option: name and password
_SCHEME = r"(?:Bearer|Basic|Token|ApiKey|Digest)"
# A password may hold a slash, but what follows a colon as digits up to a slash is a port and a path.
USERINFO = r"""[^/?#@:\s"']{0,200}:(?!\d{1,5}/)[^?#@\s"']{0,500}"""
_VALUE = r"""[^\s"'&,;<>\\)}\]]{4,}"""

# Each with the group that is kept in front of the secret. None but that of a key in lines reaches over quotes
# or white space, so that a text keeps its form. Parts are bounded, so that long lines cost linear time.
_SHAPES = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (rf"(://)(?:{USERINFO}|[^/?#@:\s\"']{{16,500}})(?=@)", 0),
        (
            r"([?&;](?:[\w.-]{0,40}(?:sig|signature|token|key|secret|password|credential)[\w.-]{0,40})=)[^&#\s\"']+",
            re.IGNORECASE,
        ),
        (
            (
                rf"((?<![\w.-]){_NAMED}[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?)"
                rf"(?!(?:{_SCHEME} )?\*\*\*)(?:{_SCHEME} )?{_VALUE}"
            ),
            re.IGNORECASE,
        ),
        (
            (
                rf"((?<![\w-]){_OPTION}(?:[\"'],\s{{0,3}}[\"']|[\s=]{{1,3}}[\"']?))"
                r"(?!\*\*\*|-|\d{1,4}\b)[^\s\"',)\]}]+"
            ),
            re.IGNORECASE,
        ),
        (rf"((?<![\w-])(?:-u|--user)(?:[\"'],\s{{0,3}}[\"']|[\s=]){_USER}){_USERS}", 0),
        (r"((?<![\w])(?:Bearer|Basic)\s)[\w.~+/=-]{8,}", re.IGNORECASE),
        (r"(https://hooks\.slack\.com/(?:services|workflows)/)[\w/.-]+", 0),
        (r"(https://(?:discord|discordapp)\.com/api/webhooks/)[\w/.-]+", 0),
        (r"(https://[\w.-]{1,100}\.webhook\.office\.com/)[\w/@.-]+", 0),
        (r"()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", 0),
        (r"()\bgh[pousr]_[A-Za-z0-9]{20,255}\b", 0),
        (r"()\bgithub_pat_\w{20,255}\b", 0),
        (r"()\bglpat-[\w-]{20,255}", 0),
        (r"()\bhf_[A-Za-z0-9]{20,255}\b", 0),
        (r"()\bsk-[\w-]{20,255}", 0),
        (r"()\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,255}\b", 0),
        (r"()\bnpm_[A-Za-z0-9]{30,255}\b", 0),
        (r"()\bpypi-[\w-]{40,500}", 0),
        (r"()\bdckr_pat_[\w-]{20,255}", 0),
        (r"()\bSG\.[\w-]{16,64}\.[\w-]{16,64}", 0),
        (r"()\bya29\.[\w-]{20,500}", 0),
        (r"()\bxox[abeoprs]-[\w-]{10,255}", 0),
        (r"()\bAIza[\w-]{35}", 0),
        (r"()\beyJ[\w-]{8,2000}\.eyJ[\w-]{8,4000}\.[\w-]{8,2000}", 0),
        (r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[^-]+(?:(?=-----END )|$)", 0),
    )
)


def redact(text: str) -> str:
    """Return the text with a placeholder for each credential that has a known form."""
    for shape in _SHAPES:
        text = shape.sub(rf"\g<1>{PLACEHOLDER}", text)
    return text


def shown(value: object, most: int = MOST_SHOWN) -> str:
    """Return a value as a message shows it: quoted, on one line, shortened, and without credentials."""
    text = redact(value if isinstance(value, str) else repr(value))
    if len(text) > most:
        text = f"{text[: most * 2 // 3]}…{text[-most // 4 :]}"
    return repr(text) if isinstance(value, str) else text


def is_secret_name(name: str) -> bool:
    """Whether a variable or option of this name holds a secret, as far as its name says."""
    return _SECRET_NAME.search(name) is not None


def redact_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return program and arguments without secrets, also those that are a word of their own after an option.

    ``-p`` is an option for passwords where its value is neither a number nor a path nor short.
    """
    bare: list[str] = []
    option = ""
    for word in words:
        bare.append(_bare_value(option, word) or _SHORT_OPTION.sub(rf"\1{PLACEHOLDER}", redact(word)))
        option = word
    return tuple(bare)


def _bare_value(option: str, word: str) -> str:
    """Return what stands in the place of a word that is a secret, by the option before it; empty: none."""
    if PLACEHOLDER in word:
        return ""
    if option in {"-u", "--user"}:
        user = re.fullmatch(f"({_USER}){_USERS}", word)
        return f"{user[1]}{PLACEHOLDER}" if user else ""
    if option == "-p":
        return PLACEHOLDER if re.fullmatch(_PASSWORD, word) else ""
    is_secret = _SECRET_OPTION.fullmatch(option) and not re.fullmatch(r"-.*|\d{0,4}", word)
    return PLACEHOLDER if is_secret else ""


def redact_setting(item: str) -> str:
    """Return a ``NAME=VALUE`` without its value where its name or its form says that it is secret."""
    name, equals, value = item.partition("=")
    if value and not name.startswith("-") and is_secret_name(name):
        return f"{name}{equals}{PLACEHOLDER}"
    return redact(item)


def redact_content(key: str, value: object) -> object:
    """Return plain data as a job file holds it, under a key of it, without secrets; for people to read."""
    match value:
        case str():
            return redact_words([value])[0] if key == "command" else redact(value)
        case dict():
            names = key in _SETTINGS
            return {
                name: PLACEHOLDER
                if names and each and is_secret_name(str(name))
                else redact_content(str(name), each)
                for name, each in value.items()
            }
        case list() | tuple():
            if not all(isinstance(each, str) for each in value):
                return type(value)(redact_content(key, each) for each in value)
            return type(value)(map(redact_setting, value) if key in _SETTINGS else redact_words(value))
        case _:
            return value


_SETTINGS = ("env", "annotations", "labels")  # keys of a job file that hold NAME=VALUE, or a mapping


class BareReason:
    """Takes credentials out of the `why` of a record: a typed reason is shown and stored everywhere."""

    __slots__ = ()
    why: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", redact(self.why))


class BareRepr:
    """Gives a record a `repr` without secrets: Python writes it into tracebacks, lists and saved notebooks.

    Nothing else of a record changes; who reads a field gets its value. To leave the fields out of the text
    was rejected, as two jobs that differ in a variable would look alike.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        values = (
            f"{each.name}={redact_content(each.name, getattr(self, each.name))!r}"
            for each in fields(self)  # type: ignore[arg-type]  # of a dataclass
        )
        return f"{type(self).__qualname__}({', '.join(values)})"


@dataclass(frozen=True, slots=True)
class Redactor:
    """Takes known values, and credentials of known forms, out of texts.

    Parameters
    ----------
    values
        Secrets to look for; those shorter than `MIN_LETTERS` are not, as they would be found in other words.
    """

    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values = {value for value in self.values if len(value) >= MIN_LETTERS}
        object.__setattr__(self, "values", tuple(sorted(values, key=lambda value: (-len(value), value))))

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        for value in self.values:
            text = text.replace(value, PLACEHOLDER)
        return redact(text)

    def within(self, data: object) -> object:
        """Return plain data (dicts, lists, texts, numbers) with all of their texts redacted; keys stay."""
        match data:
            case str():
                return self(data)
            case dict():
                return {key: self.within(value) for key, value in data.items()}
            case list() | tuple():
                return [self.within(value) for value in data]
            case _:
                return data
