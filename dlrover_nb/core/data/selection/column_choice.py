"""Which columns a job uses, and as what: by the keys that name them, else by their types and by guesses.

A job that goes on with parameters of an earlier one uses that one's columns as they were used there, unless
its own keys say otherwise: guesses of a newer release must not make other columns of them.
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from dlrover_nb.core.basics.redaction import MOST_SHOWN, shown
from dlrover_nb.core.data.kinds import Kind, is_number, is_text
from dlrover_nb.core.data.selection.guesses import Guess, guess, typed
from dlrover_nb.core.data.selection.value_evidence import ColumnValues
from dlrover_nb.core.data.storage.file_set import FilesSource
from dlrover_nb.core.data.types.agreement import read_types, value_type
from dlrover_nb.core.data.types.number_text import share_of_numbers
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.data.column_types import PLAIN, ColumnType, WrittenNumbers, column_types
from dlrover_nb.core.structs.views.schema import Use

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dlrover_nb.core.data.source import Source
    from dlrover_nb.core.structs.data.features import FeatureSpec, SequenceSpec
    from dlrover_nb.core.structs.job.job import DataSpec

N_SAMPLE_ROW = 20_000
_BY_KIND = {
    Kind.NUMERIC: Use.NUMERIC,
    Kind.CATEGORICAL: Use.CATEGORICAL,
    Kind.SEQUENCE: Use.SEQUENCE,
}
_NEARLY = 0.9  # of the texts of a column that are numbers: the others are mistakes in it
_MOST_COMPARED, _MOST_LISTED = 1000, 50  # columns in a message about one that is not there


@dataclass(frozen=True, slots=True)
class Choice:
    """The columns of a job.

    Parameters
    ----------
    numeric, categorical
        Their names.
    times
        Those of numbers that are moments, also where they are text.
    guesses
        What was decided by names and values.
    numbers, inherited
        How numbers are written in text, and how they were where the first parameters come from.
    is_of_trained
        Whether the columns are those that the first parameters were trained with.
    sequences
        How columns of ids are sequences, where keys or those parameters say so; other lists are by default.
    """

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    times: tuple[str, ...] = ()
    guesses: tuple[Guess, ...] = ()
    numbers: WrittenNumbers = PLAIN
    inherited: Mapping[str, WrittenNumbers | None] | None = None
    is_of_trained: bool = False
    sequences: Mapping[str, SequenceSpec] = field(default_factory=dict)

    def form(self, name: str) -> WrittenNumbers | None:
        """Return how numbers of a column are written where they are text."""
        is_inherited = self.inherited is not None and self.numbers.is_plain
        return (self.inherited or {}).get(name, self.numbers) if is_inherited else self.numbers


def choose(source: Source, data: DataSpec, trained: FeatureSpec | None = None) -> Choice:
    """Return the columns to use; those of text files that are ids or numbers in a local form are text then.

    Parameters
    ----------
    trained
        The encoding of the rows that the job's first parameters were trained with.

    Raises
    ------
    NotFoundError
        When a named column is not there.
    InvalidValueError
        When a column cannot be used as requested.
    """
    kinds, types = source.kinds, column_types(data.types)
    for column in (data.label, *data.numeric, *data.ids, *data.exclude, *types):
        _check_there(column, kinds, data)
    _check_types(data, types)
    _check_sequences(data, types)
    of_trained = {} if trained is None else _uses_of(trained, kinds)
    uses = _uses(data, kinds, types, of_trained)
    guesses: tuple[Guess, ...] = ()
    if data.guess and not _names_all(data) and not of_trained:
        open_ones = [name for name in uses if name not in {*types, *data.ids}]
        guesses = tuple(_guesses(source, {name: uses[name] for name in open_ones}))
        better = {each.column: each.use for each in guesses}
        uses = {name: use for name in uses if (use := better.get(name, uses[name])) is not None}
    choice = Choice(
        numeric=tuple(name for name, use in uses.items() if use is Use.NUMERIC),
        categorical=tuple(name for name, use in uses.items() if use is not Use.NUMERIC),
        times=tuple(name for name, kind in types.items() if kind is ColumnType.TIME),
        guesses=guesses,
        numbers=data.numbers,
        inherited=None if trained is None else {column.name: column.form for column in trained.numeric},
        is_of_trained=bool(of_trained) and not _names_all(data),
        sequences=_sequences(data, types, trained),
    )
    choice = _as_written(source, data, choice, trained)
    _check_use(data, choice, kinds)
    return choice


def _names_all(data: DataSpec) -> bool:
    return bool(data.numeric or data.categorical)


def _uses_of(trained: FeatureSpec, kinds: Collection[str]) -> dict[str, Use]:
    """Return the uses of the columns that parameters were trained with; none where one is not there."""
    uses = dict.fromkeys((c.name for c in trained.numeric), Use.NUMERIC)
    uses |= {c.name: Use.SEQUENCE if c.sequence else Use.CATEGORICAL for c in trained.categorical}
    return uses if uses.keys() <= {*kinds} else {}  # what is missing is said where models are compared


def _sequences(
    data: DataSpec, types: Mapping[str, ColumnType], trained: FeatureSpec | None
) -> dict[str, SequenceSpec]:
    columns = () if trained is None else trained.categorical
    inherited = {c.name: c.sequence for c in columns if c.sequence and c.name not in types}
    return inherited | {each.column: each for each in data.sequences}


def _uses(
    data: DataSpec, kinds: Mapping[str, Kind], types: Mapping[str, ColumnType], of_trained: Mapping[str, Use]
) -> dict[str, Use]:
    """Return the columns to use by the keys, what was trained, and types."""
    if _names_all(data):
        named = dict.fromkeys(data.numeric, Use.NUMERIC) | dict.fromkeys(data.ids, Use.CATEGORICAL)
        _check_once(data)
        return named
    uses = of_trained or {name: _BY_KIND[kind] for name, kind in kinds.items() if kind in _BY_KIND}
    of_keys = dict.fromkeys(data.ids, Use.CATEGORICAL) | {
        name: Use.CATEGORICAL if kind is ColumnType.CATEGORY else Use.NUMERIC for name, kind in types.items()
    }
    given = {name: of_keys[name] for name in kinds if name in of_keys}
    left_out = {data.label, *data.exclude}
    return {name: use for name, use in {**uses, **given}.items() if name not in left_out}


def _guesses(source: Source, uses: Mapping[str, Use]) -> list[Guess]:
    if not uses:
        return []
    n_row = N_SAMPLE_ROW if source.n_row is None else min(source.n_row, N_SAMPLE_ROW)
    sample = source.read(0, n_row, list(uses))
    guesses = (guess(ColumnValues(n, sample.column(n)), use, source.n_row) for n, use in uses.items())
    return [each for each in guesses if each is not None]


def _as_written(source: Source, data: DataSpec, choice: Choice, trained: FeatureSpec | None) -> Choice:
    """Read columns of text files as text where what is written matters: ids, and numbers in a local form.

    Columns of text that turn out to be numbers in the form of ``data.decimal`` are numbers, as those without
    such marks are, unless a key says otherwise.
    """
    if not (isinstance(source, FilesSource) and source.is_text):
        return choice
    types, was = column_types(data.types), {} if trained is None else read_types(trained.column_types)
    guessed = {each.column for each in choice.guesses}
    ids = {name for name in choice.categorical if trained or name in types or name in guessed}
    local = {n for n in choice.numeric if not _is_plain(choice.form(n)) or is_text(was.get(n, pa.null()))}
    local |= {name for name, kind in types.items() if kind is ColumnType.NUMBER}  # also what a sample lacks
    source.read_as_text({*ids, *(name for name in local if is_number(source.types[name]))})
    if data.numbers.is_plain or _names_all(data):
        return choice
    ids |= {*data.ids}
    texts = [name for name in choice.categorical if name not in ids and is_text(source.types[name])]
    sample = source.read(0, min(source.n_row, N_SAMPLE_ROW), texts)
    shares = {n: share_of_numbers(sample.column(n), data.numbers, signs=False) for n in texts}
    more = {name for name, share in shares.items() if share > _NEARLY}  # the rest is refused with its row
    return replace(
        choice,
        numeric=tuple(name for name in source.kinds if name in {*choice.numeric, *more}),
        categorical=tuple(name for name in choice.categorical if name not in more),
    )


def _is_plain(form: WrittenNumbers | None) -> bool:
    return form is None or form.is_plain


# checks


def _check_types(data: DataSpec, types: Mapping[str, ColumnType]) -> None:
    for name, kind in types.items():
        if name == data.label:
            raise InvalidValueError(
                f"the label {shown(name)} has no type in types: it is 0 or 1; leave it out there"
            )
        if name in data.exclude:
            raise InvalidValueError(
                f"column {shown(name)} is in types and in exclude; leave it out of one of them"
            )
        key, other = ("categorical", "numeric") if kind is ColumnType.CATEGORY else ("numeric", "categorical")
        if name in getattr(data, other):
            raise InvalidValueError(
                f"column {shown(name)} is {kind} in types, but named in {other}; leave it out of one of them"
            )
        if _names_all(data) and name not in (data.numeric if key == "numeric" else data.ids):
            raise InvalidValueError(
                f"column {shown(name)} has a type, but numeric and categorical name all columns to use; name "
                f"it in {key} too, or give others their types instead of these two keys"
            )


def _check_sequences(data: DataSpec, types: Mapping[str, ColumnType]) -> None:
    for sequence in data.sequences:
        name, other = sequence.column, sequence.embedding_of
        if name == data.label:
            raise InvalidValueError(f"the label {shown(name)} is named in sequences; leave it out there")
        if name in data.exclude:
            raise InvalidValueError(
                f"column {shown(name)} is in sequences and in exclude; leave it out of one of them"
            )
        if name in types:
            raise InvalidValueError(
                f"column {shown(name)} is {types[name]} in types, but named in sequences; leave it out "
                "of one of them"
            )
        if types.get(other, ColumnType.CATEGORY) is not ColumnType.CATEGORY:
            raise InvalidValueError(
                f"column {shown(other)} is {types[other]} in types, but the sequence {shown(name)} has its "
                "embeddings, which only ids have; leave out its type, or embedding_of"
            )


def _check_there(column: str, kinds: Mapping[str, Kind], data: DataSpec) -> None:
    if column in kinds:
        return
    near = difflib.get_close_matches(column, list(kinds)[:_MOST_COMPARED], n=1)
    hint = f"; did you mean {shown(near[0])}?" if near else ""
    raise NotFoundError(f"{data.place} has no column {shown(column)}{hint}; it has: {_listed(kinds)}")


def _listed(kinds: Mapping[str, Kind]) -> str:
    """Return the names of the first columns."""
    names = [name if name.isprintable() and 0 < len(name) <= MOST_SHOWN else shown(name) for name in kinds]
    text = ", ".join(names[:_MOST_LISTED])
    return text + (f", … ({len(names)} columns)" if len(names) > _MOST_LISTED else "")


def _check_once(data: DataSpec) -> None:
    twice, n = Counter((*data.numeric, *data.ids, data.label)).most_common(1)[0]
    if n > 1:
        raise InvalidValueError(
            f"column {shown(twice)} is named twice; use it once, and never the label as a feature"
        )


def _check_use(data: DataSpec, choice: Choice, kinds: Mapping[str, Kind]) -> None:
    used = (*choice.numeric, *choice.categorical)
    if not used:
        why = "; ".join(each.followed for each in choice.guesses)
        raise InvalidValueError(
            f"{data.place} leaves no column to train on{why and f' ({why})'}; "
            "name some in numeric or categorical"
        )
    for name in used:
        if kinds[name] is Kind.OTHER and name not in choice.sequences:
            raise InvalidValueError(
                f"column {shown(name)} holds structures, lists of fractions or no value, "
                "expected numbers, text or lists of ids; exclude it"
            )


def check_numeric(name: str, kind: pa.DataType, *, is_time: bool) -> None:
    """Refuse a column as a number that is none; one of text is read as numbers are written.

    Raises
    ------
    InvalidValueError
        It names the column.
    """
    kind = value_type(kind)
    if is_time and is_number(kind):
        raise InvalidValueError(
            f"column {shown(name)} holds numbers, expected times; {typed(name, ColumnType.NUMBER)} takes them"
        )
    if not (is_number(kind) or is_text(kind) or pa.types.is_temporal(kind)):
        raise InvalidValueError(
            f"column {shown(name)} holds no numbers but {kind}; {typed(name, ColumnType.CATEGORY)} takes ids"
        )
