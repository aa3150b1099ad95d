"""The verbs `server` and `server users` of a shell: the team's dashboard, and who may sign in to it."""

from __future__ import annotations

import getpass
import logging
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.waits import tell, until_ready
from dlrover_nb.core.disk.paths import Xdg, user_folder
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs.decisions.people import ANY, AccessRole, Grant
from dlrover_nb.magics.parser import one_of, whole
from dlrover_nb.magics.verb import Verb, argument
from dlrover_nb.output import CLI

if TYPE_CHECKING:
    from typing import TextIO

    from dlrover_nb.api.views.job_views import Note, TextView
    from dlrover_nb.dashboard.server import DashboardServer
    from dlrover_nb.dashboard.settings import ServeSettings
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

_ACTIONS = ("add", "list", "remove")


class MissingExtraError(DlroverError):
    """The dashboard's own packages are not installed."""


def default_users_file() -> Path:
    """Return where `users` keeps people unless another file is named."""
    return user_folder(Xdg.CONFIG) / "users.yaml"


def _serve(
    _: Commands,
    *,
    settings: ServeSettings,
    log_format: str,
    open_page: bool,
    until_eof: bool,
    link: bool,
    demo: bool,
) -> Note:
    """Serve the dashboard until Ctrl-C or SIGTERM, or lead to the one that runs."""
    from dlrover_nb.api.views.job_views import Note  # noqa: PLC0415 - charts load with the first verb
    from dlrover_nb.dashboard.frame.log import set_up  # noqa: PLC0415 - of an extra
    from dlrover_nb.dashboard.run import run  # noqa: PLC0415 - of an extra
    from dlrover_nb.dashboard.sign_in.by_secret import redirecting_file  # noqa: PLC0415 - as above

    if link:
        return _link(settings, open_page=open_page)
    # What thirty simulated jobs decide would bury the address, and is on the page.
    handler = set_up(log_format, level=logging.WARNING if demo else logging.INFO)

    def announce(server: DashboardServer) -> None:
        is_ready()
        sys.stderr.write(f"{_said(server, sys.stderr)}; Ctrl-C ends it\n")
        sys.stderr.flush()
        if open_page:
            _open(server.url, None if server.own is None else redirecting_file(server.port))

    try:
        with until_ready() as is_ready:
            tell("the dashboard to start")
            run(settings, announce, until_eof=until_eof, is_demo=demo)
    finally:
        handler.flush()
    return Note("Dashboard", f"the dashboard has ended; {'its jobs with it' if demo else 'jobs go on'}")


def _said(server: DashboardServer, stream: TextIO) -> str:
    """Return the line that begins with `SAID`; only a terminal gets the secret, as others may read a log."""
    from dlrover_nb.dashboard.child import SAID  # noqa: PLC0415 - with the verb alone

    if server.own is None:
        socket = server.settings.unix_socket and not server.settings.has_sign_in
        return f"{SAID}{server.url}" + ("; its socket is open to this account alone" if socket else "")
    if not stream.isatty():  # a log file, the journal, or a pipe into one
        with_secret = f"`{CLI} server --link --port {server.port}`"
        return f"{SAID}{server.url}; {with_secret} prints the address with its secret"
    return f"{SAID}{server.own.address()}; a browser with this address acts in your name"


def _link(settings: ServeSettings, *, open_page: bool) -> Note:
    """Return the address of a server of this account that runs."""
    from dlrover_nb.api.views.job_views import Note  # noqa: PLC0415 - charts load with the first verb
    from dlrover_nb.dashboard.sign_in.by_secret import own_server, redirecting_file  # noqa: PLC0415 - of an extra

    server = own_server(settings.first_page(settings.port), settings.port)
    if open_page:
        _open(server.url, redirecting_file(settings.port))
    return Note("Dashboard", server.address())


def _open(url: str, redirecting: Path | None) -> None:
    """Open a page in a browser, by a file that leads on where its address holds a secret."""
    if redirecting is not None or url.startswith("http"):
        webbrowser.open(url if redirecting is None else redirecting.as_uri())


def _settings(values: Values) -> Values:
    """Return the values of `serve` with the settings that flags and file make together."""
    try:
        from dlrover_nb.dashboard.settings import read_settings  # noqa: PLC0415 - with the verb alone
    except ImportError as error:
        raise MissingExtraError(
            f'the dashboard needs {error.name}; pip install "dlrover-nb[dashboard]"'
        ) from error
    left = dict(values)
    file, log_format = left.pop("settings"), left.pop("log_format")
    open_page, clusters = left.pop("open"), left.pop("cluster")
    until_eof, link, demo = left.pop("until_eof"), left.pop("link"), left.pop("demo")
    if demo and clusters:
        raise InvalidValueError("--demo serves simulated jobs alone; leave --cluster out, or --demo")
    proxy = _proxy(left.pop("proxy_header"), left.pop("proxy_groups_header"), left.pop("trusted_proxy"))
    flags = {**left, "clusters": _listed(clusters), "proxy": proxy}
    settings = read_settings(None if file is None else str(file), flags)
    return {
        "settings": settings,
        "log_format": log_format,
        "open_page": open_page,
        "until_eof": until_eof,
        "link": link,
        "demo": demo,
    }


def _listed(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _proxy(header: object, groups_header: object, trusted: object) -> dict[str, object] | None:
    if header is None:
        if trusted or groups_header:
            raise InvalidValueError(
                "--trusted-proxy needs the header that names people; add --proxy-header NAME"
            )
        return None
    return {"header": header, "groups_header": groups_header or "", "trusted": _listed(trusted)}


def _users(  # noqa: PLR0913 - the arguments of one verb
    _: Commands,
    *,
    action: str,
    name: str | None,
    role: str | None,
    namespace: str | None,
    group: list[str] | None,
    file: str | None,
    password_stdin: bool,
) -> Note | TextView:
    """Add somebody who may sign in, remove them, or list all."""
    from dlrover_nb.api.views.job_views import Note, TextView  # noqa: PLC0415 - charts load with the first verb
    from dlrover_nb.dashboard.sign_in.users import read_users  # noqa: PLC0415 - of an extra

    path = Path(file).expanduser().absolute() if file else default_users_file()
    if action == "list":
        users = read_users(path)
        lines = [
            f"{each}: {', '.join(_words(grant) for grant in user.grants) or 'no role'}"
            + (f"; groups {', '.join(user.groups)}" if user.groups else "")
            for each, user in sorted(users.items())
        ]
        return TextView("Users", "\n".join(lines) or "nobody yet")
    if name is None:
        raise InvalidValueError(f"server users {action} needs a name; add it: server users {action} NAME")
    if action == "remove":
        return Note("Users", _removed(path, name), str(path))
    grant = (
        None if role is None and namespace is None else Grant(AccessRole(role or "viewer"), namespace or ANY)
    )
    _add(path, name, grant, tuple(group or ()), from_stdin=password_stdin)
    return Note("Users", f"{name} may sign in where the server has --users {path}", str(path))


def _words(grant: Grant) -> str:
    return str(grant.role) if grant.namespace == ANY else f"{grant.role} in {grant.namespace}"


def _add(path: Path, name: str, grant: Grant | None, groups: tuple[str, ...], *, from_stdin: bool) -> None:
    from dlrover_nb.dashboard.sign_in.users import (  # noqa: PLC0415 - of an extra
        User,
        check_name,
        hashed,
        read_users,
        write_users,
    )

    check_name(name)
    users = read_users(path) if path.exists() else {}
    if name in users:
        raise InvalidValueError(
            f"{name} is there already; run server users remove {name} first to give a new password"
        )
    password = sys.stdin.readline().rstrip("\n") if from_stdin else _asked_twice(name)
    users[name] = User(hashed(password, name), groups, () if grant is None else (grant,))
    write_users(path, users)


def _asked_twice(name: str) -> str:
    tell("")
    password = getpass.getpass(f"Password of {name}: ")
    if getpass.getpass("Once more: ") != password:
        raise InvalidValueError("the two passwords differ; nothing was changed, try again")
    return password


def _removed(path: Path, name: str) -> str:
    from dlrover_nb.dashboard.sign_in.users import read_users, write_users  # noqa: PLC0415 - of an extra

    users = read_users(path)
    if name not in users:
        raise NotFoundError(f"no user {name!r} in {path}; there are: {', '.join(sorted(users)) or 'none'}")
    del users[name]
    write_users(path, users)
    return f"{name} may not sign in any more; their sessions end at once"


SERVE = Verb(
    "serve",
    "serve the team's dashboard, until Ctrl-C",
    _serve,
    (
        argument(
            "--cluster",
            action="append",
            metavar="WORD",
            help="what to watch, once or several times: local, ray, HOST:PORT, "
            "kubernetes://CONTEXT/NAMESPACE; by default what runs on this machine",
        ),
        argument("--port", type=whole, metavar="PORT", help="port to listen on, 0 for any (default 5006)"),
        argument("--address", metavar="ADDRESS", help="address to listen on (default 127.0.0.1)"),
        argument("--unix-socket", metavar="PATH", help="listen on a socket instead"),
        argument("--prefix", metavar="/PATH", help="path under which a proxy serves it"),
        argument("--url", metavar="URL", help="public address, where a proxy leads to the server"),
        argument("--users", metavar="FILE", help="people who may sign in, see `server users`"),
        argument("--oidc", metavar="FILE", help="provider that signs people in"),
        argument("--proxy-header", metavar="NAME", help="header in which a proxy names the person"),
        argument("--proxy-groups-header", metavar="NAME", help="header in which it names their groups"),
        argument("--trusted-proxy", action="append", metavar="IP", help="address or network of that proxy"),
        argument("--settings", metavar="FILE", help="file with these and further settings, as YAML"),
        argument(
            "--log-format",
            type=one_of("format of the log", ("text", "json")),
            default="text",
            metavar="FORMAT",
            help="text or json, on the standard error",
        ),
        argument("--until-eof", action="store_true", help="end when the standard input is closed"),
        argument("--open", action="store_true", help="open the first page in a browser"),
        argument(
            "--demo", action="store_true", help="serve 30 simulated jobs, to look around; nothing is kept"
        ),
        argument("--link", action="store_true", help="print the address of your dashboard that runs already"),
    ),
    "--cluster local --users users.yaml",
    interpret=(_settings,),
)
USERS = Verb(
    "users",
    "who may sign in to the dashboard: add NAME, remove NAME, list",
    _users,
    (
        argument("action", metavar="ACTION", type=one_of("action", _ACTIONS), help="add, remove or list"),
        argument("name", metavar="NAME", nargs="?", help="of the person"),
        argument("--role", type=one_of("role", AccessRole), metavar="ROLE", help="viewer, operator or admin"),
        argument("--namespace", metavar="NAME", help="where they have the role (default: everywhere)"),
        argument("--group", action="append", metavar="GROUP", help="whose roles they have too"),
        argument("--file", metavar="FILE", help="users file (default: one in your configuration folder)"),
        argument("--password-stdin", action="store_true", help="read the password from the standard input"),
    ),
    "add ada --role operator",
)
