"""Speaks as open-instruct does (allenai/open-instruct at e6c3044aa, open_instruct/grpo_fast.py); goes on by itself."""

import json
import socket
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from talk import talk, words


class Status(BaseHTTPRequestHandler):
    """Answers as its actor manager does (open_instruct/actor_manager.py)."""

    def do_GET(self) -> None:
        queues = {
            "Prompt Queue": {"current": 3, "maxsize": 32},
            "Inference Results Queue": {"current": 1, "maxsize": 8},
        }
        said = {"should_stop": False, "last_updated": datetime.now().isoformat(), "queues": queues}
        said["token_stats"] = {"prefill_tokens_per_sec": 10.5, "decode_tokens_per_sec": 250.0}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing on the console."""


given = words()
folder = Path(given["--checkpoint_state_dir"])
latest = folder / "latest"
first = int(latest.read_text().removeprefix("global_step")) + 1 if latest.exists() else 1
server = ThreadingHTTPServer(("127.0.0.1", 0), Status)
threading.Thread(target=server.serve_forever, daemon=True).start()
where = f"http://{socket.getfqdn()}:{server.server_address[1]}"
print(f"(ActorManager pid=7) 2026-01-01 10:00:00 - INFO - Dashboard server started at {where}", flush=True)
print("=== ✅ vLLM engines and actor_manager initialized", flush=True)
print("=== ✅ all models initialized", flush=True)


def say(step: int) -> list[str]:
    """The line of a step."""
    return [f"training_step: {step} scores: {step / 8} loss/policy_avg: -0.5 time/total: 4.5"]


def save(step: int) -> None:
    """A checkpoint of DeepSpeed."""
    (folder / f"global_step{step}").mkdir(parents=True, exist_ok=True)
    latest.write_text(f"global_step{step}")


talk(first, int(given.get("--steps", "100000")), say, save)
