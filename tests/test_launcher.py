"""The tile of JupyterLab's launcher starts the dashboard for this user alone, below JupyterLab's own address."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from dlrover_nb import launcher


def test_jupyterlab_finds_the_tile_by_its_name() -> None:
    (point,) = entry_points(group="jupyter_serverproxy_servers", name=launcher.NAME)
    assert point.load() is launcher.tile


def test_only_this_users_socket_leads_to_the_server() -> None:
    tile = launcher.tile()
    command = tile["command"]
    assert isinstance(command, list)
    assert tile["unix_socket"] is True
    assert command[command.index("--unix-socket") + 1] == "{unix_socket}"
    assert not {"--port", "--address"} & set(command)


def test_links_of_pages_begin_with_the_address_below_jupyterlab() -> None:
    tile = launcher.tile()
    command = tile["command"]
    assert isinstance(command, list)
    assert tile["absolute_url"] is True
    assert command[command.index("--prefix") + 1] == "{base_url}dlrover"


def test_the_picture_of_the_tile_is_there() -> None:
    entry = launcher.tile()["launcher_entry"]
    assert isinstance(entry, dict)
    assert Path(entry["icon_path"]).read_text("utf-8").lstrip().startswith("<svg")
