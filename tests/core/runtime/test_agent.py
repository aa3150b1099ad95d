import pytest

from dlrover_nb.core.runtime.agent import read_endpoint


@pytest.mark.parametrize("text", ["tcp://10.1.2.3:7070", "tcp://[fd00::7]:7070\n", "  tcp://master:1 "])
def test_a_file_names_the_endpoint_of_the_master(tmp_path, text):
    (tmp_path / "master").write_text(text)
    assert read_endpoint(str(tmp_path / "master")) == text.strip()


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"nowhere", b"tcp://a", b"tcp://a:1 tcp://b:2", b"ipc:///tmp/x", b"tcp://\xff:1"]
)
def test_a_file_with_anything_else_names_none(tmp_path, data):
    (tmp_path / "master").write_bytes(data)
    assert read_endpoint(str(tmp_path / "master")) == ""


def test_without_a_file_there_is_none(tmp_path):
    assert read_endpoint("") == ""
    assert read_endpoint(str(tmp_path / "master")) == ""
