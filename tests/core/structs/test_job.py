import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.codec import Tagged, from_json, to_json
from dlrover_nb.core.errors import InvalidValueError, WireError
from dlrover_nb.core.jobfile import dump_job, parse_job
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample
from dlrover_nb.core.structs.views import events
from dlrover_nb.core.structs.wire import messages

names = st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True)
specs = st.builds(
    JobSpec,
    name=names,
    batch_size=st.integers(1, 1 << 16),
    n_epoch=st.integers(1, 100),
    model=st.builds(ModelSpec, embedding_dim=st.integers(1, 256), learning_rate=st.floats(1e-6, 10)),
)


@pytest.mark.parametrize("seed", [1 << 63, 1 << 64, -(1 << 63) - 1])
def test_a_seed_beyond_64_bits_is_refused(seed):
    with pytest.raises(InvalidValueError, match="seed must be in"):
        JobSpec("a", seed=seed)
    with pytest.raises(InvalidValueError, match="seed must be in"):
        ModelSpec(seed=seed)


def test_who_names_a_plan_may_leave_its_gpus_out_and_name_no_others(error_words):
    plan = ResourcePlan(RolePlan(1, 0.5, 512, 1), RolePlan(1, 0.5, 512))
    spec = JobSpec("a", plan=plan)
    assert spec.on_gpus(plan) == spec.on_gpus(plan.with_gpus((0, 0))) == plan
    with error_words(InvalidValueError):
        spec.on_gpus(plan.with_gpus((2, 0)))


@given(specs)
def test_a_job_survives_encoding(spec):
    assert from_json(to_json(spec), JobSpec) == spec


@for_each("name", ["", "A", "1a", "a_b", "a" * 53, "-a", "a-", "a b", "é"])
def test_names_that_no_cluster_takes_are_refused(name):
    with pytest.raises(InvalidValueError, match="job name"):
        JobSpec(name=name)


@for_each(
    "tags", [("",), ("a b",), ("a,b",), ("x" * 31,), ("a", "a"), ("<b>",), tuple(f"t{i}" for i in range(11))]
)
def test_tags_that_a_list_or_an_address_cannot_hold_are_refused(tags):
    with pytest.raises(InvalidValueError, match="tag"):
        JobSpec("a", tags=tags)


def test_tags_are_words_of_the_user():
    tags = ("nightly", "team/ads", "v1.2", "größe")
    spec = JobSpec("a", tags=tags)
    assert from_json(to_json(spec), JobSpec).tags == parse_job(dump_job(spec)).tags == tags
    assert parse_job("name: a\ntags: nightly").tags == ("nightly",)


@for_each(
    ("field", "value"),
    [("batch_size", 0), ("n_epoch", 0), ("shard_batches", 0), ("checkpoint_every_s", -1)],
)
def test_impossible_settings_are_refused(field, value):
    with pytest.raises(InvalidValueError, match=field.replace("n_epoch", "epochs")):
        JobSpec(name="a", **{field: value})


def test_a_format_and_its_path_go_together():
    with pytest.raises(InvalidValueError, match="needs a path"):
        DataSpec(format=DataFormat.PARQUET)
    with pytest.raises(InvalidValueError, match="takes no path"):
        DataSpec(format=DataFormat.CENSUS, path="/data.parquet")
    with pytest.raises(InvalidValueError, match="holdout"):
        DataSpec(holdout=1.0)


def test_a_record_that_breaks_its_own_rules_is_not_decoded():
    text = to_json(JobSpec(name="a")).replace(b'"batch_size":512', b'"batch_size":0')
    with pytest.raises(WireError, match="batch_size"):
        from_json(text, JobSpec)


def test_tagged_records_survive_both_encodings():
    codec = Tagged(messages.FromNode, messages.ToNode)
    for message in (
        messages.Drain(),
        messages.Pause(3),
        messages.NodeFailed("worker-1", "why", retryable=False),
    ):
        assert codec.unpack(codec.pack(message)) == message
        assert codec.from_line(codec.to_line(message)) == message


@example(b"\x92\xa4\x00\x00\x00\x80")  # text that is no UTF-8
@example(b'["\x80", 1]')
@example(b"\x92\xa1a" + b"\x91" * 100_000)
@given(st.binary(max_size=64))
def test_garbage_is_refused_and_never_anything_else(data):
    codec = Tagged(messages.FromNode, events.Event)
    for decode in (codec.unpack, codec.from_line):
        with pytest.raises(WireError):
            decode(data)


@given(st.integers(1, 64), st.integers(1, 4096), st.floats(1e-3, 1e9))
def test_iteration_time_and_throughput_are_one_equation(workers, batch, rate):
    plan = ResourcePlan(RolePlan(workers, 1, 512), RolePlan(1, 1, 512))
    sample = ProfileSample(0.0, 1.0, plan, batch, rate)
    assert sample.iter_s * rate == pytest.approx(workers * batch)


@for_each(
    ("record", "field", "value"),
    [
        (JobSpec, "batch_size", 10**20),
        (JobSpec, "n_epoch", 10**30),
        (JobSpec, "heartbeat_timeout_s", 0.0001),
        (JobSpec, "heartbeat_timeout_s", float("inf")),
        (JobSpec, "checkpoint_every_s", float("nan")),
        (JobSpec, "priority", 10**12),
        (ModelSpec, "embedding_dim", 10**8),
        (ModelSpec, "hash_size", 1 << 60),
        (ModelSpec, "hidden", (10**9,)),
    ],
)
def test_a_number_beyond_all_reason_is_refused_with_its_bound(record, field, value, error_words):
    with error_words(InvalidValueError):
        record(**({"name": "ads"} if record is JobSpec else {}), **{field: value})


@for_each(
    ("changes", "words"),
    [
        ({"n_epoch": 1, "batch_size": 512}, "batch 512, 1 epoch"),
        ({"n_epoch": 1_200, "batch_size": 4_096}, "batch 4,096, 1,200 epochs"),
        ({"n_epoch": 2, "global_batch": 8_192}, "batch 8,192 of all workers, 2 epochs"),
    ],
)
def test_a_job_says_how_it_trains_in_words(changes, words):
    spec = JobSpec("ads", **changes)
    assert spec.training_words == f"{spec.model.name}, {words}"


def test_data_are_named_by_their_format_and_where_they_are():
    assert DataSpec().words == "census"
    assert DataSpec(format=DataFormat.CSV, path="ads.csv").words == "csv ads.csv"
