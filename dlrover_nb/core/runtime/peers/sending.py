"""Sends copies in the shared memory of this host to other nodes of the job, piece by piece.

To nodes of other hosts it sends them in sealed sessions (`sealed`), for which they ask.

Any buffer of the run is sent, also that of a dead PS of this host. The token of a copy is checked before and
after each piece is read, so no reader gets a mixture of two copies.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.runtime.checkpoints import read_piece, run_name
from dlrover_nb.core.runtime.checkpoints.background import lower_priority
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM, is_buffer_of
from dlrover_nb.core.runtime.exchange.message_decoder import MessageDecoder, receive
from dlrover_nb.core.runtime.exchange.push_pull import ExchangeRefused, OpenSession
from dlrover_nb.core.runtime.exchange.sealed_routers import sealed_router
from dlrover_nb.core.runtime.exchange.sockets import bind_router, without_port
from dlrover_nb.core.runtime.exchange.wire import encode
from dlrover_nb.core.runtime.peers.reading import PIECE_BYTES
from dlrover_nb.core.structs.wire.copy_messages import CopyRead, CopyTraffic, ReadCopy

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.exchange.sealed import SealedRouter
    from dlrover_nb.core.runtime.exchange.sockets import Context, JobKeys
    from dlrover_nb.core.structs.wire.node_config import NodeConfig


class CopySender:
    """Answers `ReadCopy` in a thread of its own, until it is closed.

    Parameters
    ----------
    context, config, keys
        Where it listens, as the node itself, and whom it admits.
    shm
        Where shared memory lies.

    Attributes
    ----------
    endpoint
        Where other nodes ask.
    """

    def __init__(self, context: Context, config: NodeConfig, keys: JobKeys, *, shm: Path = SHM) -> None:
        self._run, self._shm = run_name(config.spec.name, config.folder), shm
        self._path = Path(config.folder) / f"{config.node}.{os.getpid()}.copies"
        self._router, self.endpoint = bind_router(context, without_port(config.listen), self._path, keys)
        self._sealed = sealed_router(context, config, self.endpoint)
        self._decoder = MessageDecoder(config.node, CopyTraffic | OpenSession)
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="copies sent", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close its socket."""
        os.write(self._wake, b"1")
        self._thread.join()
        self._router.close(linger=0)
        if self._sealed is not None:
            self._sealed.close()
        os.close(self._woken)
        os.close(self._wake)
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        lower_priority()
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        if self._sealed is not None:
            poller.register(self._sealed.socket, zmq.POLLIN)
        while self._woken not in (ready := dict(poller.poll())):
            if self._router in ready:
                self._serve_one()
            if self._sealed is not None and self._sealed.socket in ready:
                self._serve_sealed(self._sealed)

    def _serve_one(self) -> None:
        with contextlib.suppress(zmq.Again):
            identity, *frames = receive(self._router)
            request = (self._decoder.read(frames, identity) or (None,))[0]
            if isinstance(request, OpenSession) and self._sealed is not None:
                self._router.send_multipart([identity, *encode(self._sealed.open_session(identity))])
            elif isinstance(request, ReadCopy):
                if self._sealed is not None:
                    self._sealed.answer_in_clear(identity)
                self._router.send_multipart([identity, *self._answer(request)])

    def _serve_sealed(self, sealed: SealedRouter) -> None:
        with contextlib.suppress(zmq.Again):
            session, *message = receive(sealed.socket)
            try:
                identity, frames = sealed.unseal(session, message)
            except WireError as error:
                self._decoder.drop(str(error), session)
                return
            request = (self._decoder.read(frames, identity) or (None,))[0]
            if isinstance(request, ReadCopy):
                sealed.send(identity, self._answer(request))

    def _answer(self, request: ReadCopy) -> list[Any]:
        part = request.memory
        if not is_buffer_of(self._run, part.name) or request.start < 0:
            return encode(ExchangeRefused(f"{part.name} is no memory of this run"))
        try:
            piece = read_piece(part, request.start, min(request.n_byte, PIECE_BYTES), shm=self._shm)
        except CheckpointError as error:
            return encode(ExchangeRefused(str(error)))
        return encode(CopyRead(part.token, request.start, zlib.crc32(piece.data)), [piece])
