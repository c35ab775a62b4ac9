"""The relay's operation ``http``: one request to a server on this machine's loopback.

Elsewhere it goes only where the other side says that it means to: a standing Ray whose address the user's profile has.
Addresses out of files of a run never get that far.
"""

import time
import urllib.parse
from typing import TYPE_CHECKING

from rltui.onnode.relay_request import MIB, Answer, Refusal, Request, bytes_of, number_of, pack, table_of, text_of

if TYPE_CHECKING:
    import http.client

MAX_BODY = 16 * MIB
LOOPBACK = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1"}


def ask(request: Request) -> Answer:
    """Send the request and return status and body; a redirect is an answer like any other, not followed."""
    import http.client  # takes as long as the rest of the relay together, and the first answer should not wait for it
    import socket
    import ssl

    deadline = time.monotonic() + number_of(request, "timeout_s", 10)
    parts = urllib.parse.urlsplit(text_of(request, "url"))
    host = LOOPBACK.get(parts.hostname or "")
    if request.get("beyond_loopback") is True and parts.scheme in ("http", "https"):
        host = parts.hostname
    elif parts.scheme != "http":
        host = None
    if host is None:
        raise Refusal("refused", "only http:// on loopback is asked, not %s" % parts.netloc.rpartition("@")[2])
    target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
    method, headers, body = text_of(request, "method", "GET"), table_of(request, "headers"), bytes_of(request, "body")
    is_encrypted = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_encrypted else http.client.HTTPConnection  # which verifies certificates
    port = parts.port or (443 if is_encrypted else 80)
    # the time-out is one of each read, and an answer may come in drops: so the deadline is looked at between them
    connection = kind(host, port, timeout=max(0.01, deadline - time.monotonic()))
    try:
        connection.request(method, target, body or None, headers)
        response = connection.getresponse()
        content, packed = pack(_content(response, deadline))
    except ssl.SSLCertVerificationError as error:
        words = "the certificate of %s is not trusted (%s); SSL_CERT_FILE there may name your site's authority"
        raise Refusal("failed", words % (host, error.verify_message)) from error
    except socket.timeout as error:  # no TimeoutError before Python 3.10
        raise Refusal("timeout", str(error)) from error
    except http.client.HTTPException as error:
        raise Refusal("failed", "no HTTP answer (%s)" % type(error).__name__) from error
    finally:
        connection.close()
    return {"status": response.status, "body": content, "packed": packed}


def _content(response: "http.client.HTTPResponse", deadline: float) -> bytes:
    content = bytearray()
    while True:
        chunk = response.read1(MIB)
        if not chunk:
            return bytes(content)
        content += chunk
        if len(content) > MAX_BODY:
            raise Refusal("too-large", "the answer is over %d bytes" % MAX_BODY)
        if time.monotonic() > deadline:
            raise Refusal("timeout", "the answer did not end in time")
