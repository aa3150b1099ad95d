"""The certificate of a master's HTTP, of the job's own: its programs get it as the one to trust.

It is signed by itself, for the address of its master alone, and kept with its key in the run folder: a master
that continues the job at the same address has the same one, which programs know already. An authority of the
job's own was rejected: it would sign one certificate at a time.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.clock import Clock

FILE = "certificate.pem"  # of the run folder, for the user alone: the key, and the certificate
VALID, BEFORE = timedelta(days=3650), timedelta(days=1)  # jobs may last, and clocks of machines differ


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that a server shows.

    Parameters
    ----------
    context
        With which it serves.
    text
        What its clients trust (PEM), without the key.
    """

    context: ssl.SSLContext
    text: str


def certificate_of(folder: Path, host: str, clock: Clock) -> Certificate:
    """Return the certificate of a job's master at an address, made where there is none for it yet."""
    path = folder / FILE
    if not path.exists() or _host_of(path) != host:
        _write(path, _made(host, datetime.fromtimestamp(clock.now_s(), UTC)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return Certificate(context, _public(path).public_bytes(serialization.Encoding.PEM).decode())


def _public(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def _host_of(path: Path) -> str:
    names = _public(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return str(next(iter(names.get_values_for_type(x509.IPAddress)), ""))


def _made(host: str, now: datetime) -> bytes:
    """Return a key and a certificate that it signs."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dlrover-nb job master")])
    address = x509.IPAddress(ipaddress.ip_address(host))
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    own = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return own + signed.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    new.replace(path)
