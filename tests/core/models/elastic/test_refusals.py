"""What cannot be trained with its tables elsewhere is refused, with what was found and what to do."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

import dlrover_nb
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync


class Plain(nn.Module):
    """One table."""

    def __init__(self, **options):
        super().__init__()
        self.table = nn.Embedding(9, 4, **options)
        self.out = nn.Linear(4, 1)

    def forward(self, ids):
        return self.out(self.table(ids[:, 0]))


class Tied(Plain):
    """Output weights that are the table."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(4, 9, bias=False)
        self.scores.weight = self.table.weight


class Whole(Plain):
    """A product with all rows."""

    def forward(self, ids):
        return (self.table(ids[:, 0]) @ self.table.weight.T).sum(1)


class Computed(Plain):
    """Ids that are in no column."""

    def forward(self, ids):
        return self.out(self.table(ids[:, 0] * ids[:, 1]))


class Own(nn.Embedding):
    """A layer of one's own."""


class OwnLayer(Plain):
    """A table in a layer of one's own."""

    def __init__(self):
        super().__init__()
        self.table = Own(9, 4)


class Unused(Plain):
    """A table that nothing looks up."""

    def __init__(self):
        super().__init__()
        self.more = nn.Embedding(3, 3)


class TwoShifts(Plain):
    """One column at two places of one table."""

    def forward(self, ids):
        return self.out(self.table(ids[:, 0]) + self.table(ids[:, 0] + 2))


@pytest.mark.parametrize(
    ("module", "ids", "message"),
    [
        pytest.param(
            lambda: Plain(max_norm=1.0), ["a"], "max_norm=1.0.*build it without max_norm", id="renormalized"
        ),
        pytest.param(
            lambda: Plain(scale_grad_by_freq=True), ["a"], "build it without scale_grad_by_freq", id="scaled"
        ),
        pytest.param(Tied, ["a"], "uses the table table.weight as its parameter scores.weight", id="tied"),
        pytest.param(Whole, ["a"], "computes with the table table.weight as a whole", id="whole"),
        pytest.param(Computed, ["a", "b"], "gets ids that are in no column of a, b", id="computed"),
        pytest.param(OwnLayer, ["a"], "belongs to a Own", id="own_layer"),
        pytest.param(Unused, ["a"], "table more.weight is looked up by no column", id="unused"),
        pytest.param(TwoShifts, ["a"], "by ids of column a with two shifts", id="two_shifts"),
        pytest.param(
            Plain, ["a", "b"], "column b is named in ids, but no embedding looks it up", id="no_lookup"
        ),
        pytest.param(Plain, ["a", "a"], "column a is named twice", id="twice"),
        pytest.param(lambda: nn.Linear(1, 1), ["a"], "has no nn.Embedding or nn.EmbeddingBag", id="no_table"),
        pytest.param(lambda: Plain().double(), ["a"], "must be float32 on the CPU", id="double"),
        pytest.param(Plain, None, "name them: dlrover_nb.elastic", id="no_columns"),
    ],
)
def test_it_is_refused(module, ids, message):
    with pytest.raises(InvalidValueError, match=message):
        dlrover_nb.elastic(module(), ids=ids)


def test_the_module_itself_is_left_as_it_is():
    module = Plain()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = dlrover_nb.elastic(module, ids=["a"])
    assert type(module.table) is nn.Embedding
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not any(torch.equal(p, module.table.weight) for p in model(None).parameters())


def test_tables_do_not_travel_with_the_code():
    module = Plain()
    module.table = nn.Embedding(100_000, 4)
    assert len(pickle.dumps(dlrover_nb.elastic(module, ids=["a"]))) < 10_000


def test_all_reduce_without_parameter_servers_is_refused(error_words):
    model = dlrover_nb.elastic(Plain(), ids=["a"])
    with error_words(InvalidValueError):
        model.completed(JobSpec("mine", sync=Sync.ALLREDUCE))


def test_a_job_names_the_columns_of_the_module_or_none(error_words):
    model = dlrover_nb.elastic(Plain(), ids=["a"])
    spec = JobSpec("mine")
    data = model.completed(spec).data
    assert (data.categorical, data.numeric) == (("a",), ())
    wrong = JobSpec("mine", data=type(spec.data)(categorical=("b",)))
    with error_words(InvalidValueError):
        model.completed(wrong)
