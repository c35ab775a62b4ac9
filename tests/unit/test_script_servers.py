"""Servers of a script's own processes: engines are found and asked, nothing else is, and their words are understood."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from watch_support import await_that

from rltui.onnode import processes, rundir, script_servers
from rltui.onnode.script_servers import Ports, ScriptServers, counters, engines_among, listing

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 4.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:num_preemptions_total{engine="0",model_name="tiny"} 2.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 1.5e+03
vllm:generation_tokens_created{engine="0",model_name="tiny"} 1.79e+09
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.5
"""
"""Lines of vLLM 0.32 as it served them, of two engines behind one port."""

SGLANG = """sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 7.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.61
"""

SERVER = """
import http.server, os, socket, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = open(sys.argv[1], "rb").read() if self.path == "/metrics" else b""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
other = socket.socket()
other.bind(("127.0.0.3", 0))
other.listen()
def hang_up():
    while True:
        other.accept()[0].close()
threading.Thread(target=hang_up, daemon=True).start()
class Server(http.server.ThreadingHTTPServer):
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # who chose the port may still hold it
        super().server_bind()
server = Server(("", int(os.environ.get("AT", 0))), Handler)
print(server.server_address[1], other.getsockname()[1], flush=True)
server.serve_forever()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], int, int]]]:
    """Starts a server that calls itself by the given words; gives it, its port, and one where it speaks no HTTP."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "metrics").write_text(VLLM)

    def begin(*words: str) -> tuple[subprocess.Popen[str], int, int]:
        argv = [words[0], "-c", SERVER, str(tmp_path / "metrics"), *words[1:]]
        process = subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        http, silent = map(int, process.stdout.readline().split())
        return process, http, silent

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def seen(*started: subprocess.Popen[str]) -> list[tuple[int, processes.Stat]]:
    """The processes as a scan of an attempt gives them."""
    stats = [(process.pid, processes.read_stat(process.pid)) for process in started]
    return [(pid, stat) for pid, stat in stats if stat is not None]


def test_counters_of_both_engines_are_understood() -> None:
    assert counters(VLLM) == {
        "0": {"running": 4.0, "waiting": 3.0, "kv_cache_usage": 0.25, "preemptions_total": 2.0, "tokens": 1500.0},
        "1": {"running": 1.0, "kv_cache_usage": 0.5},
    }
    assert counters(SGLANG) == {"": {"running": 7.0, "waiting": 0.0, "kv_cache_usage": 0.61}}
    assert counters(SGLANG.replace("sglang:", "sglang_")) == counters(SGLANG)
    assert counters("vllm:gpu_cache_usage_perc 1.0\n") == {"": {"kv_cache_usage": 1.0}}
    for text in ("", "<html>vllm:num_requests_running</html>", "vllm:num_requests_running{x=} e\n", "ray_x 1\n"):
        assert not any(counters(text).values())


@pytest.mark.parametrize(("address", "reached"), [("127.0.0.3", "127.0.0.3"), ("0.0.0.0", "127.0.0.1")])
def test_where_a_process_listens_is_read_off_the_kernel(address: str, reached: str) -> None:
    with socket.socket() as listening:
        listening.bind((address, 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert [host for host, number in Ports().of(os.getpid()) if number == port] == [reached]
        with socket.create_connection((reached, port), 2):
            pass


@pytest.mark.parametrize(
    ("in_the_table", "reached"),
    [
        ("00000000000000000000000000000000", "127.0.0.1"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000300007F", "127.0.0.3"),
        ("B80D0120000000000000000001000000", "2001:db8::1"),
    ],
)
def test_addresses_of_ipv6_are_read_too(in_the_table: str, reached: str) -> None:
    assert ipaddress.ip_address(script_servers._reachable(in_the_table)) == ipaddress.ip_address(reached)


@pytest.mark.parametrize(
    "title",
    ["ray::vLLMHttpServer.generate", "ray::SGLangHttpServer", "VLLM::APIServer_0", "PRIME-RL::Inference"],
)
def test_a_server_by_its_title_is_asked_where_it_listens(
    title: str, start: Callable[..., tuple[subprocess.Popen[str], int, int]]
) -> None:
    server, http, silent = start(title)
    assert {one.port for one in engines_among(listing(seen(server)))} == {http, silent}


def test_only_engines_are_asked_and_only_at_the_port_they_name(
    start: Callable[..., tuple[subprocess.Popen[str], int, int]],
) -> None:
    learner, *_ = start("ray::WorkerDict.actor_rollout_update_actor")
    _, http, _ = named = start("python", "-m", "vllm.entrypoints.openai.api_server", "--port", "18000")
    assert engines_among(listing(seen(learner, named[0]))) == []  # where it does not listen yet
    command = start("python", "vllm serve", f"--port={http}")
    assert engines_among(listing(seen(command[0]))) == []  # another's port
    worker, *_ = start("VLLM::Worker_TP0")
    core, *_ = start("VLLM::EngineCore")
    assert engines_among(listing(seen(worker, core))) == []


def test_what_engines_say_grows_old_and_goes_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[..., tuple[subprocess.Popen[str], int, int]]
) -> None:
    monkeypatch.setattr(script_servers, "TIMEOUT_S", 60.0)
    monkeypatch.setattr(script_servers, "EVERY_S", 3600.0)
    server, http, silent = start("ray::vLLMHttpServer")
    watch = ScriptServers(str(tmp_path), "node1")
    watch.look(seen(server))
    await_that(lambda: watch.engines is not None, "the first answer")
    (tmp_path / "metrics").write_text(VLLM.replace("1.5e+03", "1.6e+03"))
    watch.ask_all()
    assert watch.engines is not None
    first, second = watch.engines
    assert first.pop("tokens_per_second") > 0
    expected = {
        "name": str(http),
        "pid": server.pid,
        "running": 4.0,
        "waiting": 3.0,
        "kv_cache_usage": 0.25,
        "preemptions_total": 2.0,
    }
    assert (first, second["name"]) == (expected, f"{http}/1")
    assert all(str(silent) not in row["name"] for row in watch.engines)

    server.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(script_servers, "TIMEOUT_S", 0.3)
        watch.ask_all()
    assert watch.engines[0].pop("silent_s") >= 0.3
    assert watch.engines[0] == {"name": str(http), "pid": server.pid}
    server.send_signal(signal.SIGCONT)
    watch.ask_all()
    assert watch.engines[0]["running"] == 4.0
    server.kill()
    server.wait()
    watch.look(seen(server))
    watch.ask_all()
    assert watch.engines == []


def test_a_server_without_counters_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[..., tuple[subprocess.Popen[str], int, int]]
) -> None:
    monkeypatch.setattr(script_servers, "TIMEOUT_S", 60.0)
    monkeypatch.setattr(script_servers, "EVERY_S", 3600.0)
    server, http, _ = start("ray::vLLMHttpServer")
    (tmp_path / "metrics").write_text("<html>hello</html>")
    watch = ScriptServers(str(tmp_path), "node1")
    watch._servers = [one for one in engines_among(listing(seen(server))) if one.port == http]
    for _ in range(script_servers.TRIES):
        watch.ask_all()
    (tmp_path / "metrics").write_text(VLLM)
    watch.ask_all()
    assert watch.engines is None


def test_the_ray_of_a_script_is_written_down_and_one_of_ours_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[..., tuple[subprocess.Popen[str], int, int]]
) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("", 0))
        port = held.getsockname()[1]
        monkeypatch.setenv("AT", str(port))
        server, *_ = start("python", "/x/ray/dashboard/dashboard.py --host=127.0.0.1", f"--port={port}")
    found = seen(server)
    ScriptServers(str(tmp_path), "node1").look(found)
    told = rundir.read_json(str(tmp_path / rundir.RAY_ENDPOINT))
    assert told is not None
    assert (told["dashboard"], told["token"], told["host"]) == (f"http://127.0.0.1:{port}", "secret", "node1")

    other = tmp_path / "other"
    other.mkdir()
    (other / rundir.RAY_ENDPOINT).write_text("{}")
    ScriptServers(str(other), "node1").look(found)
    assert (other / rundir.RAY_ENDPOINT).read_text() == "{}"
