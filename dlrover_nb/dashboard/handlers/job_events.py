"""Server-sent events of the list of jobs: what has changed since the last one, as compact JSON.

A connection has one listener on its cluster, which only says that there is something new; what is sent is
computed then, against what was sent before. So a browser that is slow, or a proxy that holds back, gets the
newest state in one event and never a queue: the next event is not computed before the last one has left.

Each state of the cluster sends at least an empty event, by which the page knows that it is current. A comment
goes out when the cluster is silent too, so that proxies keep the connection. With the sign-in the connection
ends: the server's door looks after open requests.

Rejected: a websocket. Its messages need a protocol of our own for coming back, its own check of the origin,
and more from proxies; an event source does the first by itself and is an ordinary request.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.frame.base_handler import PersonHandler
from dlrover_nb.dashboard.jobs_board.boards import board
from dlrover_nb.dashboard.jobs_board.deltas import EMPTY, delta, only

if TYPE_CHECKING:
    from dlrover_nb.dashboard.common.clusters import Jobs, WatchedCluster

HEARTBEAT_S = 15.0
GAP_S = 0.4  # between two events; below the period of a cluster
AGAIN_MS = 2000  # after which a browser asks again when the connection is lost


def event_text(changes: dict[str, Any]) -> str:
    """Return an event; JSON has no line breaks of its own."""
    return f"data: {json.dumps(changes, separators=(',', ':'), ensure_ascii=False)}\n\n"


class JobsEvents(PersonHandler):
    """The events of one cluster's jobs, until the browser goes or the sign-in ends."""

    _gone: asyncio.Event | None = None
    _changed: asyncio.Event | None = None

    async def get(self) -> None:
        """Send the whole board, then each change."""
        self._gone, self._changed, cluster = asyncio.Event(), asyncio.Event(), self._cluster()
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Accel-Buffering", "no")
        changed, loop = self._changed, asyncio.get_running_loop()

        def heard(jobs: Jobs) -> None:  # noqa: ARG001 - the newest are asked for when they are sent
            try:
                loop.call_soon_threadsafe(changed.set)
            except RuntimeError:  # the server has ended, and this with it
                end()

        end = cluster.listen(heard)
        try:
            await self._send_all(cluster, changed, self._gone)
        except StreamClosedError:
            pass
        finally:
            end()

    def on_connection_close(self) -> None:
        """Stop, as the browser has gone or was shown out."""
        for event in (self._gone, self._changed):
            if event is not None:
                event.set()
        super().on_connection_close()

    def _cluster(self) -> WatchedCluster:
        key = self.get_query_argument("cluster", "") or next(iter(self.team.clusters))
        try:
            cluster = self.team.cluster(key)
        except NotFoundError as error:
            raise HTTPError(404, "%s", error) from error
        if not self.team.may(self.person, Action.VIEW, key):
            raise HTTPError(403)
        return cluster

    async def _send_all(self, cluster: WatchedCluster, changed: asyncio.Event, gone: asyncio.Event) -> None:
        loop, sent, heard = asyncio.get_running_loop(), EMPTY, None
        self.write(f"retry: {AGAIN_MS}\n\n")
        while not gone.is_set():
            changed.clear()
            whole = await loop.run_in_executor(None, board, cluster)
            if whole is not heard:
                heard, newest = whole, only(whole, self.get_query_argument("job", ""))
                self.write(
                    event_text({"a": 1, **delta(sent, newest)} if sent is EMPTY else delta(sent, newest))
                )
                sent = newest
            else:
                self.write(": \n\n")
            await self.flush()  # until it has left: a slow browser holds back the next event, not memory
            await _until_set(gone, GAP_S)
            await _until_set(changed, HEARTBEAT_S)


async def _until_set(event: asyncio.Event, limit_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), limit_s)
    except TimeoutError:
        return
