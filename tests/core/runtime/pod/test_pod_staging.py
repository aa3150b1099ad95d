import os
from dataclasses import replace

import fsspec
import pytest
from support.runtime.node_world import SPEC

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.runtime.pod.staging import receive, sees_rows, send
from dlrover_nb.core.structs.job.job import DataSpec
from dlrover_nb.core.structs.job.kubernetes import STATE, KubernetesSpec, Volume
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.wire.pod_contract import CODE_BYTES, storage_advice
from dlrover_nb.core.usercode import Packed, load, pack

RUN = "ctr-0a1b2c3d"


def large():
    content = os.urandom(CODE_BYTES)

    def grow(x):
        return x + len(content)

    return grow


def spec_with(model, data=None):
    spec = replace(SPEC, model=replace(SPEC.model, name="custom", code=model.code))
    return spec if data is None else replace(spec, data=DataSpec(DataFormat.OWN, data.code))


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    yield fs
    fs.store.clear()


def mount(delivery, folder):
    folder.mkdir()
    for name, content in delivery.files.items():
        (folder / name).write_bytes(content)
    return folder


def test_small_code_travels_in_the_secret(tmp_path):
    model, data = pack(lambda: 1), pack(lambda: 2)
    delivery = send([model, data], url="memory://code", run=RUN)
    assert delivery.url == ""
    mounted = mount(delivery, tmp_path / "secret")
    run_folder = tmp_path / "run"
    receive(spec_with(model, data), run_folder, url=delivery.url, mounted=mounted)
    assert load(model.code, run_folder)() == 1
    assert load(data.code, run_folder)() == 2


def test_the_run_folder_is_closed_to_others(tmp_path):
    receive(SPEC, tmp_path / "run", url="")
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


def test_large_code_travels_by_url(tmp_path, memory):
    model = pack(large())
    delivery = send([model], url="memory://code/", run=RUN)
    assert delivery.files == {}
    assert delivery.url == f"memory://code/{RUN}"
    receive(spec_with(model), tmp_path / "run", url=delivery.url)
    assert load(model.code, tmp_path / "run")(1) == CODE_BYTES + 1


def test_a_folder_of_a_volume_does_as_well(tmp_path):
    model = pack(large())
    delivery = send([model], url=str(tmp_path / "volume"), run=RUN)
    receive(spec_with(model), tmp_path / "run", url=delivery.url)
    assert load(model.code, tmp_path / "run")(0) == CODE_BYTES


def test_large_code_without_a_place_is_refused_with_both_ways_out():
    with pytest.raises(InvalidValueError, match=r"<= 900 KiB, got 90\d KiB.*package.module:name.*code_url"):
        send([pack(large())], url="", run=RUN)


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError, match=r"cannot write code to .*file/.*; set kubernetes.code_url"):
        send([pack(large())], url=str(tmp_path / "file"), run=RUN)


def test_installed_code_does_not_travel(tmp_path):
    delivery = send([pack("os.path:join")], url="", run=RUN)
    assert delivery.files == {}
    receive(spec_with(Packed("os.path:join", b"")), tmp_path / "run", url="", mounted=tmp_path / "none")
    assert list((tmp_path / "run").iterdir()) == []


def test_code_that_is_not_what_was_submitted_is_refused(tmp_path):
    model, other = pack(lambda: 1), pack(lambda: 2)
    mounted = mount(send([model], url="", run=RUN), tmp_path / "secret")
    (path,) = mounted.iterdir()
    path.write_bytes(other.content)
    with pytest.raises(InvalidValueError, match="is not the code that was submitted"):
        receive(spec_with(model), tmp_path / "run", url="", mounted=mounted)
    assert list((tmp_path / "run").iterdir()) == []


def test_code_that_is_gone_is_told_with_where_it_should_be(tmp_path, memory):
    model = pack(lambda: 1)
    with pytest.raises(NotFoundError, match=r"the job's code is not at .*/secret/code-"):
        receive(spec_with(model), tmp_path / "run", url="", mounted=tmp_path / "secret")
    with pytest.raises(NotFoundError, match=r"cannot read the job's code at memory://gone/code-"):
        receive(spec_with(model), tmp_path / "run", url="memory://gone")


def spec_of(path, *volumes, kind=DataFormat.PARQUET):
    mounted = KubernetesSpec(volumes=tuple(Volume(mount, claim="rows") for mount in volumes))
    return replace(SPEC, data=DataSpec(kind, path), kubernetes=mounted)


def test_rows_that_ship_with_the_package_or_the_code_are_seen_by_all():
    assert sees_rows(SPEC)
    assert sees_rows(spec_of("package.rows:Rows", kind=DataFormat.OWN))


def test_rows_on_a_volume_are_looked_at_in_the_cluster(tmp_path):
    (tmp_path / "rows.parquet").touch()  # a client may see another file there
    assert not sees_rows(spec_of(str(tmp_path / "rows.parquet"), str(tmp_path)))
    assert not sees_rows(spec_of("/data/day/rows.parquet", "/other", "/data/"))


def test_rows_that_the_image_may_hold_are_looked_at_in_the_cluster(tmp_path):
    assert not sees_rows(spec_of(str(tmp_path / "none.parquet"), "/data"))


def test_rows_of_the_client_that_no_pod_sees_are_refused_with_what_to_mount(tmp_path, error_words):
    (tmp_path / "rows.parquet").touch()
    with error_words(InvalidValueError):
        sees_rows(spec_of(str(tmp_path / "rows.parquet"), f"{tmp_path}-other"))


def test_several_files_are_each_looked_for_on_the_volumes(tmp_path):
    (tmp_path / "day").mkdir()
    there, pattern = f"{tmp_path}/day", f"{tmp_path}/day/*.parquet"
    assert not sees_rows(spec_of("s3://bucket/a.parquet\nhttps://example.org/b.parquet?sig=1"))
    assert not sees_rows(spec_of(f"{there}\n{pattern}\ns3://bucket/a.parquet", str(tmp_path)))
    for path in (there, pattern):
        with pytest.raises(InvalidValueError, match=rf"pods cannot read {there}; mount"):
            sees_rows(spec_of(f"s3://bucket/a.parquet\n{path}", "/other"))


def test_what_is_lost_with_pods_is_told_with_the_way_out(words):
    assert storage_advice(SPEC) == words
    assert storage_advice(replace(SPEC, checkpoint_url="s3://b")) == words
    assert (
        storage_advice(replace(SPEC, kubernetes=KubernetesSpec(volumes=(Volume(f"{STATE}/", claim="c"),))))
        == ""
    )
