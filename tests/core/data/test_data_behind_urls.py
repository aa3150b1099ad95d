"""Data behind URLs: fetched whole or not at all, once per machine, and no message shows a credential."""

from __future__ import annotations

import gzip
import hashlib
import multiprocessing
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import fsspec
import pandas as pd
import pytest
from support.virtual_time import VirtualTime, as_shipped
from support.waiting import LIMIT_S, until

from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.source import open_source
from dlrover_nb.core.data.storage import remote
from dlrover_nb.core.data.storage.cache import FOLDER_VAR, SIZE_VAR, DataCache, data_cache
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.secrets import check_complete, for_storage, secret_values, without_secrets
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "hunter2hunter2"
TEXT = "label,x\n" + "".join(f"{i % 2},{i}\n" for i in range(5000))


class Store(ThreadingHTTPServer):
    """Files over HTTP, and the troubles of each."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.troubles: dict[str, list[str]] = {}  # of the next requests of a file
        self.gets: list[str] = []
        self.closing = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    """One request: answered, stalled, cut off or refused."""

    server: Store
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self._head(self.path.partition("?")[0])

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.gets.append(path)
        troubles = self.server.troubles.get(path)
        trouble = troubles.pop(0) if troubles else ""
        content = self._head(path)
        if content is None:
            return
        if trouble:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            if trouble == "stall":
                self.server.closing.wait(LIMIT_S)
            self.close_connection = True
            return
        self.wfile.write(content)

    def _head(self, path: str) -> bytes | None:
        content = self.server.files.get(path)
        status = 403 if path.startswith("/private") else 404 if content is None else 200
        self.send_response(status)
        body = content if status == 200 and content is not None else b""
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", hashlib.sha256(body).hexdigest()[:8])
        self.send_header("Accept-Ranges", "none")
        self.end_headers()
        return body if status == 200 else None


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv(FOLDER_VAR, str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    data_cache.cache_clear()
    with Store() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()
    data_cache.cache_clear()


def refused(url: str, kind: type[DlroverError]) -> str:
    with pytest.raises(kind) as caught:
        open_source(DataSpec(DataFormat.CSV, url))
    text = f"{caught.value} {caught.value.__notes__ if hasattr(caught.value, '__notes__') else ''}"
    assert SECRET not in text
    assert "\n" not in str(caught.value)
    return text


def parts(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in {".data", ".part"}]


def test_files_behind_urls_are_the_rows_of_local_ones_and_fetched_once(store: Store, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TEXT)
    store.files = {"/a.csv": TEXT.encode(), "/b.csv.gz": gzip.compress(TEXT.encode())}
    data = DataSpec(DataFormat.CSV, "\n".join([store.url(f"/a.csv?sig={SECRET}"), store.url("/b.csv.gz")]))
    features = make_features(data, ModelSpec())
    assert SECRET not in repr(features)
    local = DataSpec(DataFormat.CSV, f"{tmp_path / 'a.csv'}")
    once = ShardReader(local, make_features(local, ModelSpec())).read(0, 4500)
    reader = ShardReader(data, features)
    for start in (0, 5000):
        assert len(reader.read(start, start + 4000)) == 4000
        assert reader.read(start, start + 4500).labels.tolist() == once.labels.tolist()
    assert sorted(store.gets) == ["/a.csv", "/b.csv.gz"]


def test_another_content_is_fetched_again_and_refused_by_a_running_job(store: Store, error_words) -> None:
    store.files = {"/a.csv": TEXT.encode()}
    data = DataSpec(DataFormat.CSV, store.url("/a.csv"))
    features = make_features(data, ModelSpec())
    reader = ShardReader(data, features)
    reader.read(0, 10)
    store.files = {"/a.csv": TEXT.replace("7", "8").encode()}
    assert len(reader.read(0, 10)) == 10  # what it has fetched
    with error_words(InvalidValueError):
        ShardReader(data, features).read(0, 10)
    store.files = {}
    with error_words(NotFoundError):
        ShardReader(data, features).read(0, 10)


def test_an_entry_that_was_deleted_is_fetched_again(store: Store) -> None:
    store.files = {"/a.csv": TEXT.encode()}
    source = open_source(DataSpec(DataFormat.CSV, store.url("/a.csv")))
    before = source.read(0, 100, ["x"])
    for path in parts(data_cache().folder):
        path.unlink()
    assert source.read(0, 100, ["x"]).equals(before)
    assert store.gets == ["/a.csv"] * 2


def test_a_cut_connection_is_tried_again_and_never_taken_for_a_whole_file(store: Store) -> None:
    store.files = {"/a.csv": TEXT.encode()}
    store.troubles = {"/a.csv": ["cut"]}
    assert open_source(DataSpec(DataFormat.CSV, store.url("/a.csv"))).n_row == 5000
    store.files["/b.csv"] = TEXT.encode()
    store.troubles = {"/b.csv": ["cut"] * remote.N_TRY}
    assert "/b.csv" in refused(store.url(f"/b.csv?token={SECRET}"), BackendError)
    assert len(parts(data_cache().folder)) == 1  # that of a.csv
    assert open_source(DataSpec(DataFormat.CSV, store.url("/b.csv"))).n_row == 5000


def test_a_server_that_stalls_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch, words) -> None:
    monkeypatch.setattr(remote, "STALL_S", 0.3)
    store.files = {"/slow.csv": TEXT.encode()}
    store.troubles = {"/slow.csv": ["stall"] * remote.N_TRY}
    text = refused(store.url(f"/slow.csv?token={SECRET}"), BackendError)
    assert text == words
    assert not parts(data_cache().folder)


def test_a_server_has_twenty_seconds_to_connect_and_a_minute_between_two_parts() -> None:
    """The client of HTTP waits, by the clock of its loop: it is asked for how long."""
    module = as_shipped("dlrover_nb.core.data.storage.remote", VirtualTime())
    files, _ = module._opened("http://127.0.0.1:1/a.csv")
    timeout = files.client_kwargs["timeout"]
    assert (timeout.sock_connect, timeout.sock_read, timeout.total) == (20.0, 60.0, None)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("ConnectionTimeoutError", "accepted no connection for 20 s"),
        ("SocketTimeoutError", "sent nothing for 60 s"),
    ],
)
def test_the_limit_that_was_reached_is_named(error: str, words: str) -> None:
    raised = getattr(pytest.importorskip("aiohttp"), error)
    refusal = pytest.raises(BackendError, match=f"cannot read rows: the server {words}")
    with refusal, remote.as_data_error("rows", SECRET):
        raise raised


def test_what_is_not_permitted_or_not_there_is_said_without_the_credentials(store: Store, words) -> None:
    text = refused(store.url(f"/private.csv?x={SECRET}"), InvalidValueError)
    assert text == words
    assert "check the URL" in refused(store.url(f"/none.csv?x={SECRET}"), NotFoundError)
    with_user = store.url("/none.csv").replace("://", f"://ada:{SECRET}@")
    refused(with_user, NotFoundError)
    port = store.server_port
    store.server_close()
    refused(f"http://ada:{SECRET}@127.0.0.1:{port}/a.csv", DlroverError)


def test_unknown_protocols_and_missing_packages_are_one_line() -> None:
    assert "s3://, gs:// or https://" in refused(f"nope://{SECRET}@b/a.csv", InvalidValueError)


def test_patterns_and_folders_of_other_file_systems(store: Store) -> None:
    memory = fsspec.filesystem("memory")
    for i in (2, 0, 1):
        memory.pipe_file(f"/set/part-{i}.csv", f"label,x\n1,{i}\n".encode())
    memory.pipe_file("/set/_SUCCESS", b"")
    for url in ("memory://set", "memory://set/", "memory://set/part-*.csv"):
        source = open_source(DataSpec(DataFormat.CSV, url))
        assert source.read(0, 3, ["x"])["x"].to_pylist() == [0, 1, 2]
    twice = refused("memory://set/part-*.csv\nmemory://set/part-1.csv", InvalidValueError)
    assert "part-1.csv twice" in twice
    assert "no csv files" in refused("memory://set/*.parquet", NotFoundError)
    memory.rm("/set", recursive=True)


def test_a_file_url_is_a_path(store: Store, tmp_path: Path) -> None:
    pd.DataFrame({"label": [0, 1], "x": [1, 2]}).to_csv(tmp_path / "a.csv", index=False)
    data = parse_job(f"name: x\ndata: {{path: 'file://{tmp_path}/a.csv'}}").data
    assert open_source(data).n_row == 2
    assert not store.gets


def _fetch(url: str, folder: str, answers: Any) -> None:
    (file,), _ = remote.find(url)
    answers.put(remote.fetch(file, DataCache(folder_path(folder), 1 << 30)).read_bytes())


def folder_path(text: str) -> Path:
    from pathlib import Path  # noqa: PLC0415 - in the other process

    return Path(text)


@pytest.mark.release
def test_processes_that_fetch_at_once_fetch_once_and_a_killed_one_leaves_no_part(
    store: Store, tmp_path: Path
) -> None:
    store.files = {"/a.csv": TEXT.encode()}
    store.troubles = {"/a.csv": ["stall"]}
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    arguments = (store.url("/a.csv"), str(tmp_path / "c"), answers)
    first = context.Process(target=_fetch, args=arguments)
    first.start()
    until(lambda: store.gets)
    others = [context.Process(target=_fetch, args=arguments) for _ in range(2)]
    for process in others:
        process.start()
    first.kill()  # in the middle of the fetch, its lock held
    assert [answers.get(timeout=LIMIT_S) for _ in others] == [TEXT.encode()] * 2
    for process in (first, *others):
        process.join(LIMIT_S)
    assert store.gets == ["/a.csv"] * 2
    assert len(parts(tmp_path / "c")) == 1


def test_credentials_of_each_of_several_urls_are_left_out_of_what_is_stored_and_exported(error_words) -> None:
    urls = [
        f"https://ada:{SECRET}@example.org/a.csv",
        f"https://example.org/b.csv?sig={SECRET}",
        "/data/c.csv",
    ]
    job = JobSpec("x", data=DataSpec(DataFormat.CSV, "\n".join(urls)))
    bare, left = without_secrets(job)
    assert bare.data.paths == ("https://example.org/a.csv", "https://example.org/b.csv", "/data/c.csv")
    assert left == ("the credentials of data.path",)
    assert SECRET not in repr(for_storage(job))
    assert len(for_storage(job).data.paths) == len(urls)
    assert set(secret_values(job)) == {SECRET}
    with error_words(InvalidValueError):
        check_complete(for_storage(job))


def test_a_size_of_the_cache_that_is_no_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, error_words
) -> None:
    for text in ("much", "-1", "nan"):
        monkeypatch.setenv(SIZE_VAR, text)
        data_cache.cache_clear()
        with error_words(InvalidValueError):
            data_cache()
    data_cache.cache_clear()
