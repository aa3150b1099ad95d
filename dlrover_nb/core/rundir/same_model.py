"""Whether the parameters of a checkpoint fit a job, and if not, what differs.

Sizes of the tables, the scale of numbers and the length of lists are taken from the checkpoint and not
compared: they follow from the data, and new rows of the same kind would give other ones, for which the
parameters mean nothing. Rates of the optimizer and the seed may differ; its kind may not, because its state
is kept with the rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.structs.data.column_types import PLAIN
from dlrover_nb.core.structs.job.spec_choices import Embedding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import ModelSpec
    from dlrover_nb.core.structs.job.trained import Trained

_ALWAYS = ("name", "embedding_dim", "embedding", "optimizer")
_LAYERS = {
    "custom": ("n_dense", "n_average"),
    "dcn_v2": ("hidden", "cross_layers"),
    "xdeepfm": ("hidden", "cin"),
    "din": ("hidden", "attention"),
}
N_NAMED = 3  # columns that an error names


def differences(trained: Trained, model: ModelSpec, features: FeatureSpec) -> tuple[str, ...]:
    """Return in what a job differs from a checkpoint whose parameters do not fit it; none: they do."""
    old = trained.features
    columns = (
        *_columns("number columns", {c.name for c in old.numeric}, {c.name for c in features.numeric}),
        *_columns("id columns", _ids(old), _ids(features)),
    )
    forms = _forms(old, features)
    label = f"the label was {old.label}, here it is {features.label}"
    return (
        *_settings(trained.model, model),
        *([label] if old.label != features.label else []),
        *columns,
        *forms,
    )


def _ids(features: FeatureSpec) -> set[str]:
    """Return the columns of ids in words: one with lists is another one than one without."""
    words = set()
    for column in features.categorical:
        of_other = f" with embeddings of {column.table}" if column.table != column.name else ""
        words.add(f"{column.name} (lists{of_other})" if column.sequence else column.name)
    return words


def encoded_as(trained: Trained, features: FeatureSpec) -> FeatureSpec:
    """Return the encoding of a job's rows with scales, tables, types and order of columns of a checkpoint.

    A checkpoint of an earlier release may have no types: then those of this job's rows hold. How numbers are
    written is of the rows, and not of the parameters.
    """
    old = trained.features
    types = old.trained_types or old.column_types or features.trained_types
    forms = {column.name: column.form for column in features.numeric}
    numeric = tuple(replace(column, form=forms[column.name]) for column in old.numeric)
    return replace(features, numeric=numeric, categorical=old.categorical, trained_types=types)


def _forms(old: FeatureSpec, new: FeatureSpec) -> Iterator[str]:
    """Yield that numbers were written in a local form which the job does not say."""
    forms = {column.name: column.form for column in new.numeric}
    for column in old.numeric:
        if column.form not in {None, PLAIN} and forms.get(column.name) in {None, PLAIN}:
            yield f"numbers of {column.name} were written with {column.form.words}, here data does not say so"
            return


def _settings(old: ModelSpec, new: ModelSpec) -> Iterator[str]:
    sizes = ("hash_size",) if old.embedding == new.embedding == Embedding.FIXED else ()
    layers = _LAYERS.get(old.name, ("hidden",)) if old.name == new.name else ()
    for key in (*_ALWAYS, *sizes, *layers):
        then, now = getattr(old, key), getattr(new, key)
        if then != now:
            yield f"model.{key} was {_text(then)}, here it is {_text(now)}"


def _columns(what: str, old: set[str], new: set[str]) -> Iterator[str]:
    if missing := old - new:
        yield f"of its {what} these are not here: {_names(missing)}"
    if added := new - old:
        yield f"these {what} are new: {_names(added)}"


def _names(names: set[str]) -> str:
    return and_list(sorted(names), most=N_NAMED)


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
