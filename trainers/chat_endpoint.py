"""The policy as agents reach it: OpenAI's chat completions over HTTP, on loopback, with a key for each sample.

It stands where agents run, in the trainer's process or a worker's, and listens on no outer interface; what answers, and
where, it does not know. So it is the standard library's server.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from trainers.environments import Policy
from trainers.episodes import Episode, RefusedError, Reply

MODEL = "policy"
"""The policy's name."""
MOST_BYTES = 64 << 20
"""Of a request."""
DRAINED_BYTES = 16 * MOST_BYTES
"""Most that is read of a request that nobody reads, so that its client hears why."""
PIECE_BYTES = 1 << 16
SILENCE_S = 60.0
"""After so long without a byte of a request, or until its answer is taken, nobody waits for its client."""


Answer: TypeAlias = "Callable[[dict[str, Any]], dict[str, Any]]"
"""The answer to a request for a chat completion, both as OpenAI writes them, or a ``RefusedError``."""


class ChatEndpoint:
    """Serves the policy to the agents whose samples are under way."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}
        self._server = _Server(self._answers)
        threading.Thread(target=self._server.serve_forever, name="chat endpoint", daemon=True).start()

    def open(self, answer: Answer) -> Policy:
        """Where the agent of a sample, whose requests get an ``answer``, reaches the policy."""
        key = secrets.token_urlsafe(32)
        self._answers[key] = answer
        host, port = self._server.server_address[:2]
        return Policy(f"http://{host!s}:{port}/v1", key, MODEL)

    def end(self, policy: Policy) -> None:
        """Answer no further request with this key."""
        self._answers.pop(policy.api_key, None)

    def close(self) -> None:
        """Take no further request; ones under way are answered."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # closing would wait for the threads, and those for answers of the policy
    block_on_close = False
    request_queue_size = 1024  # a whole step's agents may begin at once

    def __init__(self, answers: dict[str, Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that ended in the middle of a request is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers ``POST /v1/chat/completions`` and ``GET /v1/models``."""

    server: _Server
    protocol_version = "HTTP/1.1"
    # head and body are two writes, and Nagle's algorithm holds the second until the first is acknowledged
    disable_nagle_algorithm = True
    timeout = SILENCE_S

    def do_GET(self) -> None:
        if self._answer_of() is None:
            self._refuse(RefusedError(401, "missing or wrong key", "invalid_api_key"))
        elif self.path != "/v1/models":
            self._refuse(RefusedError(404, "there are /v1/chat/completions and /v1/models", "not_found"))
        else:
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rltui"}
            self._answer(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        left = int(length) if length.isdecimal() else 0
        try:
            answer = self._answer_of()
            if answer is None:
                raise RefusedError(401, "missing or wrong key", "invalid_api_key")
            if self.path != "/v1/chat/completions":
                raise RefusedError(404, "there are /v1/chat/completions and /v1/models", "not_found")
            if not length.isdecimal() or left > MOST_BYTES:
                raise RefusedError(413, f"a request has a Content-Length, {MOST_BYTES} at most")
            body, left = self.rfile.read(left), 0
            self._complete(answer, body)
        except RefusedError as error:
            self._drain(left)
            self._refuse(error)

    def _drain(self, left: int) -> None:
        """Read what is still to come: a client that is hung up on while it sends hears nothing of an answer."""
        left = min(left, DRAINED_BYTES)
        while left > 0 and (piece := self.rfile.read(min(left, PIECE_BYTES))):
            left -= len(piece)

    def _complete(self, answer: Answer, body: bytes) -> None:
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RefusedError(400, f"the request is not JSON: {error}") from error
        if not isinstance(request, dict):
            raise RefusedError(400, "the request is no object")
        try:
            said = answer(request)
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(500, f"{type(error).__name__}: {error}"[:300], "server_error") from error
        if request.get("stream"):
            self._stream(said, bool((request.get("stream_options") or {}).get("include_usage")))
        else:
            self._answer(200, said)

    def _answer_of(self) -> Answer | None:
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        return self.server.answers.get(key.strip()) if scheme.lower() == "bearer" else None

    def _refuse(self, error: RefusedError) -> None:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
        found = {"message": str(error), "type": kind, "param": None, "code": error.code}
        self._answer(error.status, {"error": found})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self._begin(status, "application/json", len(body))
        self.wfile.write(body)

    def _stream(self, said: dict[str, Any], with_usage: bool) -> None:
        """The answer as a stream of events, in one piece: it is known to its end before it can be trained."""
        body = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks(said, with_usage))
        body += b"data: [DONE]\n\n"
        self._begin(200, "text/event-stream", len(body))
        self.wfile.write(body)

    def _begin(self, status: int, kind: str, size: int) -> None:
        """Say what follows, and that it is the last: clients that agents forget hold no thread and no file here."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.send_header("Connection", "close")
        if status >= 400:
            self.send_header("x-should-retry", "false")  # OpenAI's clients heed it: asking again helps nothing
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are no news, and their heads hold keys."""


def answers(episode: Episode, token_text: Callable[[int], str]) -> Answer:
    """What answers the requests of the agent of ``episode``; ``token_text`` says the text of a token."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        reply = episode.answer(request)
        return completion(reply, str(request.get("model") or MODEL), token_text, bool(request.get("logprobs")))

    return answer


def completion(reply: Reply, model: str, token_text: Callable[[int], str], with_log_probs: bool) -> dict[str, Any]:
    """A reply as OpenAI's ``chat.completion``."""
    turn = reply.turn
    choice: dict[str, Any] = {"index": 0, "message": reply.message, "finish_reason": reply.finish_reason}
    choice["logprobs"] = None
    if with_log_probs:
        pairs = zip(turn.token_ids, turn.log_probs, strict=True)
        content = [_log_prob(token_text(token), value) for token, value in pairs]
        choice["logprobs"] = {"content": content, "refusal": None}
    read, written = reply.prompt_tokens, len(turn.token_ids)
    return {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _log_prob(text: str, value: float) -> dict[str, Any]:
    return {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}


def chunks(said: dict[str, Any], with_usage: bool) -> list[dict[str, Any]]:
    """A completion as the events of a stream."""
    [choice] = said["choices"]
    head = {name: said[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    delta = dict(choice["message"])
    with contextlib.suppress(KeyError):
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    first = {"index": 0, "delta": delta, "logprobs": choice["logprobs"], "finish_reason": None}
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
    found = [{**head, "choices": [one]} for one in (first, last)]
    return [*found, {**head, "choices": [], "usage": said["usage"]}] if with_usage else found
