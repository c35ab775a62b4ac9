"""The status endpoint of a run: what happens this very moment, as JSON over loopback, behind a token."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rltui.layout.schema import Layout
from rltui.onnode import rundir
from rltui.onnode.node_network import host
from trainers.rollouts import QueueDepth, sequences_per_engine

WINDOW_STEPS = 100
"""Rates and averages are those of the newest steps."""


class StatusBoard:
    """What the endpoint shows; written by the training loop, read by the server's threads.

    The keys are a superset of those of open-instruct's ``/api/status``, so that its readers work.
    """

    def __init__(self, layout: Layout) -> None:
        train, engines = layout.train, layout.num_engines
        self._lock = threading.Lock()
        self._queues: Mapping[str, QueueDepth] = {}
        self._timings: deque[tuple[float, float, int, int]] = deque(maxlen=WINDOW_STEPS)
        self._totals = {"total_prefill_tokens": 0, "total_decode_tokens": 0, "sample_count": 0}
        self._training_steps = 0
        concurrency = min(sequences_per_engine(layout), train.samples_per_step)
        self._values: dict[str, Any] = {
            "schema": rundir.SCHEMA,
            "should_stop": False,
            "last_updated": time.time(),
            "step": 0,
            "steps": train.steps,
            "concurrency_per_engine": concurrency,
            "total_concurrency": concurrency * engines,
            "batch_size": train.samples_per_step,
            "phase": {"name": "starting", "since": time.time()},
            "weight_versions": {},
            "learner_weight_version": 0,
            "parity_max_abs": None,
            "zero_std_fraction": None,
            "truncated_fraction": None,
            "staleness_mean": None,
            "staleness_max": None,
            "staleness_histogram": {},
            "time/engine_idle": None,
            "time/learner_idle": None,
            "time/weight_sync": None,
            "ranks": [],
        }

    def watch_queues(self, queues: Mapping[str, QueueDepth]) -> None:
        """Show the fill of ``queues`` under their names."""
        with self._lock:
            self._queues = queues

    def update(self, **values: Any) -> None:
        """Replace values of the answer."""
        with self._lock:
            self._values.update(values, last_updated=time.time())

    def enter(self, phase: str) -> None:
        """Show that ``phase`` has begun, and since when."""
        self.update(phase={"name": phase, "since": time.time()})

    def count_step(
        self, step_s: float, generate_s: float, prefill_tokens: int, decode_tokens: int, samples: int
    ) -> None:
        """Add a finished step to the totals and averages."""
        with self._lock:
            self._timings.append((step_s, generate_s, prefill_tokens, decode_tokens))
            self._training_steps += 1
            self._totals["total_prefill_tokens"] += prefill_tokens
            self._totals["total_decode_tokens"] += decode_tokens
            self._totals["sample_count"] += samples

    def snapshot(self) -> dict[str, Any]:
        """The answer of this moment."""
        with self._lock:
            steps, generates, prefills, decodes = _columns(self._timings)
            generate_s = sum(generates) or 1.0
            return {
                **self._values,
                "queues": {n: {"current": q.current, "maxsize": q.maxsize} for n, q in self._queues.items()},
                "token_stats": {
                    **self._totals,
                    "prefill_tokens_per_sec": sum(prefills) / generate_s,
                    "decode_tokens_per_sec": sum(decodes) / generate_s,
                },
                "timing_stats": {
                    "avg_training_step_time": sum(steps) / max(1, len(steps)),
                    "avg_batch_generation_time": sum(generates) / max(1, len(generates)),
                    "training_step_count": self._training_steps,
                    "batch_generation_count": self._training_steps,
                },
            }


def _columns(rows: Sequence[tuple[float, float, int, int]]) -> tuple[Sequence[float], ...]:
    return tuple(zip(*rows, strict=True)) if rows else ((), (), (), ())


class StatusServer:
    """Serves the board on a free port of loopback and announces it in ``status.json``.

    Args:
        attempt: The attempt's directory.
        board: What to serve.
    """

    def __init__(self, attempt: str, board: StatusBoard) -> None:
        self._file = Path(attempt) / rundir.STATUS_ENDPOINT
        self._token = secrets.token_urlsafe(32)
        self._server = _Server(("127.0.0.1", 0), _handler(board.snapshot, self._token))

    def start(self) -> None:
        """Serve from a thread, and announce address and token in the attempt's folder."""
        threading.Thread(target=self._server.serve_forever, name="status", daemon=True).start()
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        announcement = {"schema": rundir.SCHEMA, "url": url, "token": self._token, "pid": os.getpid()}
        # loopback of which node: whoever asks from elsewhere has to go there
        announcement["host"] = host()
        rundir.write_json(str(self._file), announcement, mode=0o600)

    def close(self) -> None:
        """Stop serving and take the announcement back."""
        self._file.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who looks and does not wait for the answer leaves no traceback in the log of the run."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _handler(snapshot: Callable[[], dict[str, Any]], token: str) -> type[BaseHTTPRequestHandler]:
    expected = f"Bearer {token}".encode()

    class Handler(BaseHTTPRequestHandler):
        """Answers ``GET /api/status`` and nothing else."""

        timeout = 10.0
        """A connection that says nothing must not hold a thread for ever."""

        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "").encode("utf-8", "replace")
            # a plain comparison would tell by its time how much of a token is right
            if not hmac.compare_digest(given, expected):
                self._answer(401, {"error": "missing or wrong token"})
            elif self.path != "/api/status":
                self._answer(404, {"error": "there is only /api/status"})
            else:
                self._answer(200, snapshot())

        def _answer(self, status: int, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests come every second; they are no news."""

    return Handler
