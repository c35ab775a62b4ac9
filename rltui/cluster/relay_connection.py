"""One connection to one relay: requests out, answers in, paired by id."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from rltui.cluster.plain_text import printable
from rltui.cluster.relay_types import RelayError
from rltui.cluster.transport import ByteStream

MAX_ANSWER = 64 << 20
RECEIVE = 1 << 18


class Ticket:
    """A request that was sent."""

    def __init__(self, identity: int, op: str, deadline: float, heard: int) -> None:
        self.identity = identity
        self.op = op
        self.deadline = deadline
        self.heard = heard  # so often the relay had spoken before
        self.future: Future[dict[str, Any]] = Future()


class Connection:
    """Requests over one stream, from any thread, and answers in whatever order they come.

    Args:
        stream: An open stream to the relay's bootstrap.
        program: What is sent first.
        place: Where the stream leads, for messages.
        timeout_s: Seconds for sending the program.

    Raises:
        RelayError: The program could not be sent; closing the stream is then the caller's.
    """

    def __init__(self, stream: ByteStream, program: bytes, place: str, timeout_s: float) -> None:
        self._stream = stream
        self._place = place
        self._sending = threading.Lock()
        self._state = threading.Lock()
        self._tickets: dict[int, Ticket] = {}
        self._next = 0
        self._heard = 0
        self._noise: deque[str] = deque(maxlen=5)
        self._closed = False
        self.lost = False
        self._send("hello", program, time.monotonic() + timeout_s)
        threading.Thread(target=self._receive, name=f"relay {place}", daemon=True).start()

    def start(self, op: str, fields: dict[str, Any], timeout_s: float) -> Ticket:
        """Send a request whose answer is wanted within ``timeout_s``.

        Raises:
            RelayError: It could not be sent.
        """
        with self._state:
            self._next += 1
            ticket = Ticket(self._next, op, time.monotonic() + timeout_s, self._heard)
            if self.lost:
                raise self._loss(op)
            self._tickets[ticket.identity] = ticket
        line = json.dumps({**fields, "op": op, "id": ticket.identity}, separators=(",", ":")).encode() + b"\n"
        try:
            self._send(op, line, ticket.deadline)
        except RelayError:
            self._forget(ticket)
            raise
        return ticket

    def finish(self, ticket: Ticket) -> dict[str, Any]:
        """Wait for the answer of a request.

        Raises:
            RelayError: The relay refused it, did not answer in time, or is gone.
        """
        try:
            answer = ticket.future.result(max(0.0, ticket.deadline - time.monotonic()))
        except (FutureTimeoutError, TimeoutError):
            self._forget(ticket)
            if self._heard == ticket.heard:
                # not a word on anything since it was sent: the link is dead, and only a new one can help
                self.abandon()
            raise RelayError(
                "timeout",
                f"The relay on {self._place} did not answer '{ticket.op}' in time.",
                "The machine or its file system may be hanging; the next request tries again.",
            ) from None
        if not answer.get("ok"):
            raise RelayError(str(answer.get("kind", "failed")), _sentence(str(answer.get("error", "no reason given"))))
        return answer

    def close(self) -> None:
        """End the relay; requests that wait for an answer fail."""
        self._closed = True
        self._fail()
        self._stream.close()

    def abandon(self) -> None:
        """End the relay without waiting for that: a dead link can take long to close."""
        self._fail()
        threading.Thread(target=self._stream.close, daemon=True).start()

    def _send(self, op: str, data: bytes, deadline: float) -> None:
        if not self._sending.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._stuck()
        try:
            self._stream.send(data, max(0.0, deadline - time.monotonic()))
        except TimeoutError as error:
            # half a request may be out, and the relay would take the next one for its rest
            self.abandon()
            raise self._stuck() from error
        except OSError as error:
            self._fail()
            raise self._loss(op) from error
        finally:
            self._sending.release()

    def _receive(self) -> None:
        buffer = bytearray()
        searched = 0
        while len(buffer) <= MAX_ANSWER:
            data = self._stream.receive(RECEIVE)
            if not data:
                break
            self._heard += 1
            buffer += data
            while (end := buffer.find(b"\n", searched)) >= 0:
                self._take(bytes(buffer[:end]))
                del buffer[: end + 1]
                searched = 0
            # an answer of megabytes comes in hundreds of pieces, and none is to be searched twice
            searched = len(buffer)
        self._fail()

    def _take(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            # a login shell's greeting, for instance; it helps to explain a relay that never answers
            self._noise.append(line[:200].decode("utf-8", "replace"))
            return
        with self._state:
            ticket = self._tickets.pop(answer["id"], None) if isinstance(answer.get("id"), int) else None
        if ticket is not None:
            ticket.future.set_result(answer)

    def _forget(self, ticket: Ticket) -> None:
        with self._state:
            self._tickets.pop(ticket.identity, None)

    def _fail(self) -> None:
        with self._state:
            self.lost = True
            tickets, self._tickets = self._tickets, {}
        for ticket in tickets.values():
            ticket.future.set_exception(self._loss(ticket.op))

    def _stuck(self) -> RelayError:
        return RelayError(
            "timeout",
            f"The relay on {self._place} does not take requests.",
            "The machine or the link to it may be hanging; the next request tries again.",
        )

    def _loss(self, op: str) -> RelayError:
        said = self._stream.complaint().splitlines()[-1:] or list(self._noise)[-1:]
        because = f" It last said: {printable(said[0])}" if said else ""
        how = "was closed" if self._closed else "ended"
        return RelayError(
            "lost",
            f"The relay on {self._place} {how} before it answered '{op}'.{because}",
            "Whether the request was carried out is unknown; the next one opens a new relay.",
        )


def _sentence(text: str) -> str:
    text = printable(text, 2000)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
