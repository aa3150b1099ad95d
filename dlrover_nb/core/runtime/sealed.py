"""Sealed connections: what workers and PS of different hosts exchange, encrypted by AES-256-GCM.

CURVE encrypts with XSalsa20, which no processor has instructions for: 3.3 of the 5.2 ms of an exchange over
TCP. AES-GCM of OpenSSL takes a small part of that where a processor has AES instructions, as those of servers
do. ZeroMQ offers no other cipher, so messages are sealed here and sent over a second, plain connection.

Nothing about who may talk changes. A worker asks for a session over its CURVE connection (`OpenSession`), so
only holders of the job's key get one, and the keys of a session are as secret as what CURVE carries, also
when the job's key becomes known later. A session has its own random key and two directions. The nonce of a
frame holds direction, number of the message and place in it; numbers only grow, so a message that is
repeated, reordered, changed or moved to another session is refused. Other ways were rejected: keys derived
from the job's key alone (no forward secrecy), and TLS (a stream, while ZeroMQ may lose messages of a broken
connection).

The plain port admits only who knows its password, which a session is given as well. It travels in clear text
and keeps no secret: it keeps strangers from filling the memory of a PS with messages that are refused later.
"""

from __future__ import annotations

import secrets
import struct
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange import SessionOpened
from dlrover_nb.core.runtime.wire import MAX_FRAMES, bind_plain_router

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.runtime.wire import Context

_KEY_BITS = 256
_TO_PS, _TO_WORKER = 1, 2  # directions
_NUMBER = struct.Struct("<Q")
_NONCE = struct.Struct("<BxHQ")  # direction, place of the frame, number of the message: 12 bytes


class Seal:
    """Seals the messages of one direction of a session and opens those of the other.

    Parameters
    ----------
    key
        32 bytes that no other session has.
    sends, receives
        The directions.
    """

    def __init__(self, key: bytes, *, sends: int, receives: int) -> None:
        self._cipher, self._sends, self._receives = AESGCM(key), sends, receives
        self._n_sealed = self._last_opened = 0

    def seal(self, frames: Sequence[Any]) -> list[bytes]:
        """Return a message's number and its frames, encrypted."""
        self._n_sealed += 1
        number, beside = self._n_sealed, bytes([len(frames)])
        sealed = (
            self._cipher.encrypt(_NONCE.pack(self._sends, at, number), frame, beside)
            for at, frame in enumerate(frames)
        )
        return [_NUMBER.pack(number), *sealed]

    def open(self, message: Sequence[Any]) -> list[bytes]:
        """Return the frames of a message that the other end has sealed.

        Raises
        ------
        WireError
            When it was not, or was changed, or is not newer than all before.
        """
        head, *sealed = (memoryview(getattr(frame, "buffer", frame)) for frame in message or (b"",))
        if not 1 <= len(sealed) <= MAX_FRAMES or head.nbytes != _NUMBER.size:
            raise WireError(
                f"expected a number and 1 to {MAX_FRAMES} sealed frames, got {len(message)} frames"
            )
        (number,) = _NUMBER.unpack(head)
        if number <= self._last_opened:
            raise WireError(
                f"expected a message after number {self._last_opened}, got {number}: a repetition"
            )
        beside = bytes([len(sealed)])
        try:
            frames = [
                self._cipher.decrypt(_NONCE.pack(self._receives, at, number), frame, beside)
                for at, frame in enumerate(sealed)
            ]
        except (InvalidTag, ValueError) as error:
            raise WireError("a message is not of this session, or was changed on its way") from error
        self._last_opened = number
        return frames


class SealedRouter:
    """The end of a PS: sessions, and the socket that carries their messages.

    Parameters
    ----------
    context
        Of the socket.
    listen
        ``tcp://ADDRESS``, as of the router beside it.

    Attributes
    ----------
    socket
        To be polled; `receive` reads it.
    """

    def __init__(self, context: Context, listen: str) -> None:
        self._password = secrets.token_hex(16)
        self.socket, self._endpoint = bind_plain_router(context, listen, self._password)
        self._sessions: dict[bytes, tuple[bytes, Seal]] = {}  # (peer, seal) of each name
        self._used: dict[bytes, bytes] = {}  # session of each peer whose last message was sealed

    def open_session(self, peer: bytes) -> SessionOpened:
        """Open a session of a peer that CURVE has admitted; its earlier ones end.

        Parameters
        ----------
        peer
            Identity of its CURVE connection, ``NAME/...``; connections of one name replace each other.
        """
        self._sessions = {
            name: held for name, held in self._sessions.items() if _owner(held[0]) != _owner(peer)
        }
        self.answer_in_clear(peer)
        session, key = secrets.token_hex(16), AESGCM.generate_key(_KEY_BITS)
        self._sessions[session.encode()] = peer, Seal(key, sends=_TO_WORKER, receives=_TO_PS)
        return SessionOpened(self._endpoint, self._password, session, b64encode(key).decode())

    def unseal(self, session: bytes, message: Sequence[Any]) -> tuple[bytes, list[bytes]]:
        """Return the peer and the frames of a message; answers to this peer are sealed from now on.

        Raises
        ------
        WireError
            When there is no such session, or the message is not of it.
        """
        if session not in self._sessions:
            raise WireError("a sealed message of no open session")
        peer, seal = self._sessions[session]
        frames = seal.open(message)
        self._used[peer] = session
        return peer, frames

    def answer_in_clear(self, peer: bytes) -> None:
        """Answer a peer over CURVE again, since it asked there."""
        self._used.pop(peer, None)

    def send(self, peer: bytes, frames: Sequence[Any]) -> bool:
        """Send an answer, or return that it must go over CURVE."""
        session = self._used.get(peer)
        held = None if session is None else self._sessions.get(session)
        if session is None or held is None:
            return False
        self.socket.send_multipart([session, *held[1].seal(frames)], copy=False)
        return True

    def close(self) -> None:
        """Close the socket; what was not sent is dropped."""
        self.socket.close(linger=0)


def seal_of_worker(opened: SessionOpened) -> Seal:
    """Return the worker's end of a session."""
    return Seal(b64decode(opened.key), sends=_TO_PS, receives=_TO_WORKER)


def _owner(peer: bytes) -> bytes:
    return peer.partition(b"/")[0]
