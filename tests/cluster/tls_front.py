"""A front with TLS before a server on loopback, which lets nobody through without a certain header."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.5"
"""Not what a relay takes for loopback: as good as any other host to it."""


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for ``HOST`` that signs itself, and its key; whoever trusts the first trusts the front."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "front of the tests")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("front.test"), x509.IPAddress(ipaddress.ip_address(HOST))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "front.pem", folder / "front.key"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return public, private


@contextmanager
def front(folder: Path, port: int, header: str) -> Iterator[tuple[str, Path]]:
    """A front before 127.0.0.1:``port``: its address, and the certificate to trust."""
    public, private = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    listening = socket.create_server((HOST, 0))

    def serve() -> None:
        while True:
            try:
                raw, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=_pass_on, args=(context, raw, port, header.lower().encode()), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"https://{HOST}:{listening.getsockname()[1]}", public
    finally:
        listening.close()


def _pass_on(context: ssl.SSLContext, raw: socket.socket, port: int, header: bytes) -> None:
    try:
        with context.wrap_socket(raw, server_side=True) as near:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += near.recv(65536)
            if header not in asked.lower():
                near.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", port)) as far:
                far.sendall(asked)
                threading.Thread(target=_copy, args=(near, far), daemon=True).start()
                _copy(far, near)
    except (OSError, ssl.SSLError):
        return


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
    except OSError:
        return
