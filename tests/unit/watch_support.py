"""A local HTTP server with a token, run directories and answers of Ray, for tests of the relay and its readers."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rltui.onnode import processes
from rltui.paths import ensure_private, run_root

TOKEN = "t0ken-of-a-test"
NODE = "36518a70a8b40937e7d2bd82752c9107635b2645612947b3eeb1e2ba"

STATUS = {
    "schema": 1,
    "should_stop": False,
    "last_updated": 50.5,
    "step": 12,
    "queues": {"Prompt Queue": {"current": 3, "maxsize": 32}, "Inference Results Queue": {"current": 0, "maxsize": 8}},
    "token_stats": {"prefill_tokens_per_sec": 10.0, "decode_tokens_per_sec": 20.5, "sample_count": 4},
    "phase": {"name": "generate", "since": 49.0},
    "weight_versions": {"engine 0": 12},
    "learner_weight_version": 13,
}


def await_that(condition: Callable[[], object], what: str, deadline_s: float = 60.0) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {deadline_s} s in vain until {what}"
        time.sleep(0.01)


def await_next_file_time(folder: Path) -> None:
    """Wait until what is written in ``folder`` is later than all that is there: the clock of files goes in steps."""
    newest, probe = max(one.lstat().st_mtime_ns for one in folder.iterdir()), folder / "probe"

    def is_later() -> bool:
        probe.touch()
        return probe.stat().st_mtime_ns > newest

    await_that(is_later, "the clock of files goes on")
    probe.unlink()


def gone(pid: int) -> bool:
    """Whether there is no such process; a zombie that init has not taken leave of is gone, too."""
    stat = processes.read_stat(pid)
    return stat is None or stat.state in "ZX"


class Server:
    """Answers GET by path; counts what it was asked.

    Attributes:
        pages: Status and body by path with query; a body of None is never sent, nor is the connection closed.
        asked: Paths in the order in which they were asked for.
    """

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, bytes | None]] = {}
        self.asked: list[str] = []
        self.url = ""
        self.ending = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve on a free port of loopback."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status, body = outer.pages.get(self.path, (404, b""))
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, body = 401, b"Unauthorized"
                if body is None:
                    outer.ending.wait(60)
                    return
                self.send_response(status)
                if status in (301, 302):
                    self.send_header("Location", outer.url + "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            try:
                yield self
            finally:
                self.ending.set()
                server.shutdown()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path`` as the node's side does, its directory made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.name}")
    temporary.write_text(json.dumps(value))
    os.replace(temporary, path)


def append(path: Path, *lines: Any) -> None:
    """Append each of ``lines`` as JSON, or as it is where it is bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        for line in lines:
            stream.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")


def supervisor(pid: int | None = None, **changes: Any) -> dict[str, Any]:
    """``supervisor.json`` of a process of this machine; by default of this very test."""
    pid = pid or os.getpid()
    return {
        "schema": 1,
        "pid": pid,
        "start_time": processes.start_time(pid),
        "host": os.uname().nodename,
        "uuid": "u",
        **changes,
    }


def make_run(root: Path, run_id: str = "run-1", created_at: float = 1000.0, **files: Any) -> Path:
    """A run with one attempt that has ``files`` (``stage`` is ``stage.json``)."""
    record = {"schema": 1, "id": run_id, "name": "tiny", "layout_name": "tiny", "algorithm": "grpo", "cluster": "local"}
    record |= {"created_at": created_at, "nodes": 1, "gpus_per_node": 3, "gpu": "cpu", "wandb_run_id": "w"}
    write_json(root / run_id / "run.json", record)
    for name, value in files.items():
        write_json(root / run_id / f"attempts/01/{name}.json", value)
    return root / run_id


def attempt_of(
    run_id: str, *, name: str = "grpo-tiny", created_at: float = 1.0, gpus: int = 1, gpu: str = "cpu"
) -> Path:
    """The first attempt, still without files, of a run of the user's own on this machine."""
    run = ensure_private(run_root()) / run_id
    about = {"name": name, "algorithm": "grpo", "cluster": "local", "created_at": created_at, "nodes": 1}
    write_json(run / "run.json", {**about, "gpus_per_node": gpus, "gpu": gpu})
    (run / "attempts/01").mkdir(parents=True)
    return run / "attempts/01"


def actor(**changes: Any) -> dict[str, Any]:
    """One actor as the State API shows it."""
    return {
        "actor_id": "ddb283d24948795d0786712201000000",
        "class_name": "PolicyTrainer",
        "state": "ALIVE",
        "job_id": "01000000",
        "name": "learner 0",
        "node_id": NODE,
        "pid": 9350,
        "ray_namespace": "b3bebba9-e143-4b73-9afa-4c788ee4a3c6",
        "serialized_runtime_env": "{}",
        "required_resources": {},
        "death_cause": None,
        "is_detached": False,
        "placement_group_id": None,
        "repr_name": "",
        "num_restarts": "2",
        "call_site": None,
        **changes,
    }


def state_answer(*actors: dict[str, Any]) -> bytes:
    inner = {"total": len(actors), "num_after_truncation": len(actors), "num_filtered": len(actors), "result": actors}
    return json.dumps({"result": True, "msg": "", "data": {"result": inner}}).encode()
