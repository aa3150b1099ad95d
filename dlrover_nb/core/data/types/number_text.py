r"""Numbers as people write them: 1.234,5 or 12.5% or $3 or (7).

Which mark is the decimal one cannot be told from a cell (1.234 is one of two numbers), so it is not guessed:
`WrittenNumbers` says it, and a cell that contradicts it is refused. Signs of percent and currency are left
away: 12.5% is 12.5, in the unit of the column. Parentheses are a minus, as accountants write it. Marks that
stand for nothing ("-", "?", "\N", "#DIV/0!") are missing values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.kinds import MISSING_TEXTS, text_array
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.data.column_types import WrittenNumbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    Texts = Any  # an array or a chunked one; what comes is what is returned

_BLANK = "[ \u00a0\u202f\u2009]"
_MINUS = "\u2212"
_GROUPED = {".": r"\.", ",": ",", " ": _BLANK, "'": "['\u2019]"}
_CURRENCY = r"(?:[$€£¥₹₽₩₺]|EUR|USD|GBP|CHF|JPY|CNY|INR|PLN|SEK)"
_SIGNED = rf"(?:{_BLANK}?(?:%|{_CURRENCY}))?"
_INFINITE = r"^[+-]?(?i:inf|infinity)$"
_NOTHING = (  # what stands for a missing number: marks alone, and what databases and spreadsheets write
    "^(?:[-\u2013\u2014?.*_/\\s]*|\\\\N|#[A-Z0-9/]+[!?]?|(?i:none|null|nan|n/a|na))$"
)
FORMS = (  # that are tried for an advice, the plainer ones first
    WrittenNumbers(),
    WrittenNumbers(","),
    WrittenNumbers(thousands=","),
    WrittenNumbers(",", "."),
    WrittenNumbers(thousands="'"),
    WrittenNumbers(thousands=" "),
    WrittenNumbers(",", " "),
)


def numbers_of(texts: Texts, form: WrittenNumbers, name: str, first_row: int) -> Texts:
    """Return the numbers that texts stand for as float64.

    Parameters
    ----------
    name, first_row
        Of the column, and of its first value, for messages.

    Raises
    ------
    InvalidValueError
        For a text that is no number in this form; it names the row.
    """
    plain, is_wrong = _plain(texts, form)
    if pc.any(is_wrong).as_py():
        at = pc.index(is_wrong, value=pa.scalar(value=True)).as_py()
        raise InvalidValueError(_wrong(texts[at].as_py(), form, name, first_row + at))
    return plain.cast(pa.float64())


def are_numbers(texts: Texts, form: WrittenNumbers) -> bool:
    """Whether texts are numbers in a form, at least one of them."""
    return share_of_numbers(texts, form) == 1


def share_of_numbers(texts: Texts, form: WrittenNumbers, *, signs: bool = True) -> float:
    """Return which share of the texts that stand for something are numbers in a form."""
    plain, is_wrong = _plain(texts, form, signs=signs)
    n_wrong = pc.sum(is_wrong).as_py() or 0
    return 1 - n_wrong / (len(plain) - plain.null_count + n_wrong) if len(plain) > plain.null_count else 0.0


def forms_of(texts: Sequence[str]) -> tuple[WrittenNumbers, ...]:
    """Return the forms in which all of some texts are numbers, without those that only add to another."""
    array = text_array(texts)
    fitting = [form for form in FORMS if are_numbers(array, form)]
    return tuple(
        form
        for form in fitting
        if not any(
            other != form and other.decimal == form.decimal and other.thousands in {"", form.thousands}
            for other in fitting
        )
    )


def is_mark(text: str) -> bool:
    """Whether a text stands for a missing number, such as "-" or "?"."""
    return re.search(_NOTHING, text.strip()) is not None


def keys_of(forms: Sequence[WrittenNumbers]) -> str:
    """Return the keys of ``data`` that say one of these forms; empty where none needs any."""
    return " or ".join(_keys(form) for form in forms if not form.is_plain)


def _keys(form: WrittenNumbers) -> str:
    keys = [f'decimal: "{form.decimal}"'] if form.decimal != "." else []
    return ", ".join([*keys, *([f'thousands: "{form.thousands}"'] if form.thousands else [])])


def _plain(texts: Texts, form: WrittenNumbers, *, signs: bool = True) -> tuple[Texts, Texts]:
    """Return texts as programs write numbers, nothing where there is none, and which are no numbers."""
    trimmed = pc.utf8_trim_whitespace(texts)
    nothing = pc.or_(
        pc.match_substring_regex(trimmed, _NOTHING),
        pc.is_in(trimmed, value_set=text_array(MISSING_TEXTS).cast(trimmed.type)),
    )
    trimmed = pc.if_else(nothing, pa.scalar(None, trimmed.type), trimmed)
    is_infinite = pc.match_substring_regex(trimmed, _INFINITE)
    is_number = pc.or_(is_infinite, pc.match_substring_regex(trimmed, _pattern(form, signs=signs)))
    clean = pc.if_else(is_number, trimmed, pa.scalar(None, trimmed.type))
    for pattern, plain in _steps(form):
        clean = pc.replace_substring_regex(clean, pattern, plain)
    return clean, pc.fill_null(pc.invert(is_number), fill_value=False)


def _pattern(form: WrittenNumbers, *, signs: bool) -> str:
    decimal = re.escape(form.decimal)
    grouped = rf"\d{{1,3}}(?:{_GROUPED[form.thousands]}\d{{3}})+|" if form.thousands else ""
    digits = rf"(?:(?:{grouped}\d+)(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+-]?\d+)?"
    if not signs:
        return rf"^[+{_MINUS}-]?{digits}$"
    before, minus = rf"(?:{_CURRENCY}{_BLANK}?)?", rf"[+{_MINUS}-]?{_BLANK}?"
    return rf"^(?:{minus}{before}{minus}{digits}{_SIGNED}|\({before}{digits}{_SIGNED}\))$"


def _steps(form: WrittenNumbers) -> Sequence[tuple[str, str]]:
    """Return replacements that make a number of this form one that programs read."""
    grouped = ((_GROUPED[form.thousands], ""),) if form.thousands else ()
    return (
        (rf"%|{_CURRENCY}|{_BLANK}", ""),
        (r"^\((.*)\)$", r"-\1"),
        (_MINUS, "-"),
        (r"^\+", ""),
        *grouped,
        (re.escape(form.decimal), "."),
    )


def _wrong(text: str, form: WrittenNumbers, name: str, row: int) -> str:
    forms = forms_of([text])
    keys = "leave decimal and thousands out" if FORMS[0] in forms else f"set {keys_of(forms)}"
    other = f"{keys} where all are written so, " if forms else ""
    return (
        f"column {shown(name)} must hold numbers written with {form.words}, got {shown(text)} in row {row}; "
        f"{other}write it so, leave it empty where it is missing, or use the column as ids (categorical)"
    )
