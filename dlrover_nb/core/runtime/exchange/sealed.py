"""Sealed connections: what nodes of different hosts exchange, encrypted by AES-256-GCM.

CURVE encrypts with XSalsa20, which no processor has instructions for: 3.3 of the 5.2 ms of an exchange over
TCP. AES-GCM of OpenSSL takes a small part of that where a processor has AES instructions, as those of servers
do. ZeroMQ offers no other cipher, so messages are sealed here and sent over a second, plain connection.

On a network that the job declares to be trusted (`exchange: {encryption: none}`) a session authenticates its
messages and encrypts none (`Mark`). To send without a check of each message was rejected: whoever can write
to that network could then change parameters.

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

import functools
import secrets
import struct
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import SessionOpened
from dlrover_nb.core.runtime.exchange.sockets import bind_plain_router
from dlrover_nb.core.runtime.exchange.wire import MAX_FRAMES
from dlrover_nb.core.structs.job.exchange_spec import Encryption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dlrover_nb.core.runtime.exchange.sockets import Context

_KEY_BITS = 256
_TO_PS, _TO_WORKER = 1, 2  # directions
_NUMBER = struct.Struct("<Q")
_NONCE = struct.Struct("<BBHQ")  # direction, number of frames, place of the frame, number of the message
_TAG_BYTES = 16  # of AES-GCM
_IN_PLACE = hasattr(AESGCM, "decrypt_into")  # older releases of `cryptography` lack it, and `encrypt_into`


class Seal:
    """Seals the messages of one direction of a session and opens those of the other.

    A sealed message is one frame: its number, the lengths of its parts, and the parts, each encrypted with a
    tag of its own. A frame for each would cost ZeroMQ and the system several calls more at both ends.

    Parameters
    ----------
    key
        32 bytes that no other session has.
    sends, receives
        The directions.
    """

    copies = True  # what it seals

    def __init__(self, key: bytes, *, sends: int, receives: int) -> None:
        self._cipher, self._sends, self._receives = AESGCM(key), sends, receives
        self._n_sealed = self._last_opened = 0

    def seal(self, frames: Sequence[Any]) -> list[Any]:
        """Return what is sent for the frames of a message."""
        self._n_sealed += 1
        return self._close(self._n_sealed, frames)

    def open(self, message: Sequence[Any]) -> list[Any]:
        """Return the frames of a message that the other end has sealed, which may lie in the same memory.

        Raises
        ------
        WireError
            When it was not, or was changed, or is not newer than all before.
        """
        head, *rest = (memoryview(getattr(frame, "buffer", frame)) for frame in message or (b"",))
        if head.nbytes < _NUMBER.size:
            raise WireError(f"expected the number of a message, got {head.nbytes} bytes")
        (number,) = _NUMBER.unpack_from(head)
        if number <= self._last_opened:
            raise WireError(
                f"expected a message after number {self._last_opened}, got {number}: a repetition"
            )
        try:
            frames = self._read(number, head, rest)
        except (InvalidTag, ValueError, struct.error) as error:
            raise WireError("a message is not of this session, or was changed on its way") from error
        self._last_opened = number
        return frames

    def _close(self, number: int, frames: Sequence[Any]) -> list[Any]:
        """Return the frames of message `number`, sealed."""
        lengths = [len(frame) for frame in frames]
        head = _head(len(frames)).pack(number, len(frames), *lengths)
        places, end = _places(len(head), lengths)
        body = np.empty(end, np.uint8).data
        body[: len(head)] = head
        nonces = _nonces(self._sends, number, len(frames))
        for nonce, frame, place in zip(nonces, frames, places, strict=True):
            self._encrypt(nonce, frame, body[place])
        return [body]

    def _encrypt(self, nonce: bytes, frame: Any, out: memoryview) -> None:  # noqa: ANN401 - any memory
        if _IN_PLACE:
            self._cipher.encrypt_into(nonce, frame, None, out)
        else:
            out[:] = self._cipher.encrypt(nonce, frame, None)

    def _read(self, number: int, body: memoryview, rest: Sequence[memoryview]) -> list[Any]:
        """Return the frames of message `number`; raise `ValueError` or `InvalidTag` when it is not one."""
        (n,) = _NUMBER.unpack_from(body, _NUMBER.size)
        if rest or not 1 <= n <= MAX_FRAMES:
            raise ValueError("it is not of this form")
        head = _head(n)
        _, _, *lengths = head.unpack_from(body)
        places, end = _places(head.size, lengths)
        if end != body.nbytes:
            raise ValueError("it is not of this form")
        nonces = _nonces(self._receives, number, n)
        return [self._decrypted(nonce, body[place]) for nonce, place in zip(nonces, places, strict=True)]

    def _decrypted(self, nonce: bytes, frame: memoryview) -> Any:  # noqa: ANN401 - bytes or memory of the frame
        """Decrypt in place where the memory may be written, as that of ZeroMQ's messages may."""
        if frame.readonly or not _IN_PLACE:
            return self._cipher.decrypt(nonce, frame, None)
        plain = frame[:-_TAG_BYTES]
        self._cipher.decrypt_into(nonce, frame, None, plain)
        return plain


class Mark(Seal):
    """Authenticates messages in the same way, and leaves them readable: GMAC, which is AES-GCM of no text.

    The tags follow the number of a message in its first frame; the others are sent and read where they lie.
    """

    copies = False

    def _close(self, number: int, frames: Sequence[Any]) -> list[Any]:
        each = zip(_nonces(self._sends, number, len(frames)), frames, strict=True)
        tags = b"".join(self._cipher.encrypt(nonce, b"", frame) for nonce, frame in each)
        return [_NUMBER.pack(number) + tags, *frames]

    def _read(self, number: int, body: memoryview, rest: Sequence[memoryview]) -> list[Any]:
        tags = body[_NUMBER.size :]
        if not 1 <= len(rest) <= MAX_FRAMES or tags.nbytes != _TAG_BYTES * len(rest):
            raise ValueError("it is not of this form")
        nonces = _nonces(self._receives, number, len(rest))
        for at, (nonce, frame) in enumerate(zip(nonces, rest, strict=True)):
            self._cipher.decrypt(nonce, tags[at * _TAG_BYTES : (at + 1) * _TAG_BYTES], frame)
        return list(rest)


SEALS: Mapping[Encryption, type[Seal]] = {Encryption.AES_GCM: Seal, Encryption.NONE: Mark}


class SealedRouter:
    """The end of a PS: sessions, and the socket that carries their messages.

    Parameters
    ----------
    context
        Of the socket.
    listen
        ``tcp://ADDRESS``, as of the router beside it.
    encryption
        Of its sessions.

    Attributes
    ----------
    socket
        To be polled; `receive` reads it.
    """

    def __init__(self, context: Context, listen: str, encryption: Encryption = Encryption.AES_GCM) -> None:
        self._encryption = encryption
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
            name: (other, seal)
            for name, (other, seal) in self._sessions.items()
            if _owner(other) != _owner(peer)
        }
        self.answer_in_clear(peer)
        session, key = secrets.token_hex(16), AESGCM.generate_key(_KEY_BITS)
        seal = SEALS[self._encryption](key, sends=_TO_WORKER, receives=_TO_PS)
        self._sessions[session.encode()] = peer, seal
        key_text = b64encode(key).decode()
        return SessionOpened(self._endpoint, self._password, session, key_text, self._encryption)

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

    def copies(self, peer: bytes) -> bool:
        """Whether `send` copies the frames of an answer to this peer."""
        session = self._sessions.get(self._used.get(peer, b""))
        return session is not None and session[1].copies

    def answer_in_clear(self, peer: bytes) -> None:
        """Answer a peer over CURVE again, since it asked there."""
        self._used.pop(peer, None)

    def send(self, peer: bytes, frames: Sequence[Any]) -> bool:
        """Send an answer, or return that it must go over CURVE."""
        token = self._used.get(peer)
        session = None if token is None else self._sessions.get(token)
        if token is None or session is None:
            return False
        self.socket.send_multipart([token, *session[1].seal(frames)], copy=False)
        return True

    def close(self) -> None:
        """Close the socket; what was not sent is dropped."""
        self.socket.close(linger=0)


def seal_of_worker(opened: SessionOpened) -> Seal:
    """Return the worker's end of a session."""
    return SEALS[opened.encryption](b64decode(opened.key), sends=_TO_PS, receives=_TO_WORKER)


def _nonces(direction: int, number: int, n_frame: int) -> Iterator[bytes]:
    """Return the nonce of each frame of a message: no two of a session are alike."""
    return (_NONCE.pack(direction, n_frame, at, number) for at in range(n_frame))


@functools.lru_cache(maxsize=MAX_FRAMES)
def _head(n_frame: int) -> struct.Struct:
    """Return what precedes the parts of a message: its number, how many there are, and their lengths."""
    return struct.Struct(f"<QQ{n_frame}Q")


def _places(at: int, lengths: Sequence[int]) -> tuple[list[slice], int]:
    """Return where sealed parts of these lengths lie from byte `at` on, and where the last one ends.

    The first one comes last: it is a record of any length, and behind it numbers would begin at any byte.
    """
    places = []
    for n in (*lengths[1:], *lengths[:1]):
        places.append(slice(at, at + n + _TAG_BYTES))
        at = places[-1].stop
    return [*places[-1:], *places[:-1]], at


def _owner(peer: bytes) -> bytes:
    return peer.partition(b"/")[0]
