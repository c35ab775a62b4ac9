"""The client of the relay through faults: killed, stopped, noisy and missing relays, all of them real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from watch_support import await_that, gone

from rltui.cluster import local_transport, relay_connection
from rltui.cluster.local_transport import LocalStream, LocalTransport, cleaned_environment
from rltui.cluster.relay_client import RelayClient, reconnect_delay_s
from rltui.cluster.relay_program import BOOTSTRAP, relay_argv, relay_program
from rltui.cluster.relay_types import RelayError
from rltui.errors import ClusterError
from rltui.onnode.rundir import ATTEMPT_VARIABLE


@pytest.fixture
def client() -> Iterator[RelayClient]:
    client = RelayClient(LocalTransport())
    yield client
    client.close()


def wrapped(tmp_path: Path, script: str) -> RelayClient:
    """A client whose relay's interpreter is a shell script around the real one."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return RelayClient(LocalTransport(str(path)))


def test_nothing_is_started_before_the_first_request(tmp_path: Path) -> None:
    client = wrapped(tmp_path, f'touch {tmp_path}/started; exec {sys.executable} "$@"')
    assert not (tmp_path / "started").exists()
    client.hello()
    assert (tmp_path / "started").exists()
    client.close()


def test_the_command_survives_every_login_shell() -> None:
    assert not set(BOOTSTRAP) & set("'$!\\`\n")
    quoted = " ".join(f"'{word}'" for word in relay_argv(sys.executable))
    process = subprocess.run(
        ["sh", "-c", quoted], input=relay_program() + b'{"op":"hello","id":1}\n', capture_output=True
    )
    assert b'"ok":true' in process.stdout


def test_close_ends_the_relay_and_the_next_request_opens_another(client: RelayClient) -> None:
    first = client.hello().pid
    client.close()
    assert gone(first)
    assert client.hello().pid != first


def test_a_relay_killed_while_idle_is_replaced(client: RelayClient) -> None:
    first = client.hello().pid
    os.kill(first, signal.SIGKILL)
    assert client.hello().pid != first


def test_a_relay_killed_in_mid_request_is_said_and_replaced(client: RelayClient, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/times; kill -9 $PPID"
    with pytest.raises(RelayError) as error:
        client.run(["sh", "-c", script])
    assert error.value.kind == "lost"
    assert "this machine" in error.value.message
    assert "unknown" in error.value.hint
    assert client.run(["true"]).rc == 0
    assert (tmp_path / "times").read_text() == "x\n"


def test_only_what_may_be_done_twice_is_done_twice(client: RelayClient, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/times; [ -e {tmp_path}/second ] || {{ touch {tmp_path}/second; kill -9 $PPID; }}"
    assert client.run(["sh", "-c", script], idempotent=True).rc == 0
    assert (tmp_path / "times").read_text() == "x\nx\n"


def test_a_request_that_kills_every_relay_is_tried_twice_only(client: RelayClient, tmp_path: Path) -> None:
    with pytest.raises(RelayError) as error:
        client.run(["sh", "-c", f"echo x >> {tmp_path}/times; kill -9 $PPID"], idempotent=True)
    assert error.value.kind == "lost"
    assert (tmp_path / "times").read_text() == "x\nx\n"


@pytest.mark.parametrize("tick_s", [1e-9, 1.0], ids=["a fine clock", "a coarse one"])
def test_a_relay_that_hangs_is_given_up_in_time_and_replaced(monkeypatch: pytest.MonkeyPatch, tick_s: float) -> None:
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() // tick_s * tick_s)
    monkeypatch.setattr(relay_connection, "time", clock)
    monkeypatch.setattr(local_transport, "CLOSE_GRACE_S", 0.2)
    client = RelayClient(LocalTransport(), timeout_s=3600.0)
    first = client.hello().pid
    os.kill(first, signal.SIGSTOP)
    with monkeypatch.context() as hurried:
        hurried.setattr(client, "_timeout_s", 2.0)
        with pytest.raises(RelayError) as error:
            client.list("/")
    assert error.value.kind == "timeout"
    assert client.hello().pid != first
    await_that(lambda: gone(first), "the stopped relay is killed")
    client.close()


def test_a_relay_that_takes_nothing_does_not_block_its_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_transport, "CLOSE_GRACE_S", 0.2)
    client = RelayClient(LocalTransport())
    first = client.hello().pid
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(client, "_timeout_s", 1.5)
    kinds: list[str] = []

    def put() -> None:
        try:
            client.put(str(tmp_path / "file"), os.urandom(4 << 20), exclusive=True)
        except RelayError as error:
            kinds.append(error.kind)

    threads = [threading.Thread(target=put) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    # those that came second may find the connection given up, or a new relay that does it
    assert "timeout" in kinds
    assert set(kinds) <= {"timeout", "lost", "exists"}
    await_that(lambda: gone(first), "the stopped relay is killed")
    client.close()


def test_a_stream_that_is_closed_while_it_sends_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = LocalTransport().open()
    stdin = stream._stdin

    def closing(_: memoryview) -> None:
        stdin.close()  # as a thread does that gives the link up, between two steps of this one

    monkeypatch.setattr(stream, "_stdin", SimpleNamespace(write=closing, fileno=stdin.fileno, closed=False))
    with pytest.raises(ConnectionError, match="closed"):
        stream.send(b"x", 30.0)
    monkeypatch.undo()
    stream.close()


def test_many_threads_share_one_relay(client: RelayClient) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for round_ in range(20):
            word = f"{number}-{round_}"
            if client.run(["echo", word]).out != word + "\n":
                wrong.append(word)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_a_greeting_of_the_login_shell_is_no_answer(tmp_path: Path) -> None:
    noise = "echo Welcome to login1; echo '{\"id\": 1, \"motd\": true'; printf '\\377\\n[1]\\n'"
    client = wrapped(tmp_path, f'{noise}; exec {sys.executable} "$@"')
    assert client.hello().user
    client.close()


def test_a_relay_that_does_not_start_says_why_and_is_not_hammered(tmp_path: Path) -> None:
    client = wrapped(tmp_path, f"echo x >> {tmp_path}/times; echo 'Quota \033[31mexceeded' >&2; exit 1")
    for _ in range(3):
        with pytest.raises(ClusterError, match=r"Quota exceeded") as error:
            client.hello()
        assert "\033" not in str(error.value)
        assert "python3" in error.value.hint
        assert error.value.exit_code == 3
    assert (tmp_path / "times").read_text() == "x\n"
    client.close()
    with pytest.raises(ClusterError):
        client.hello()
    assert (tmp_path / "times").read_text() == "x\nx\n"


def test_a_relay_that_is_gone_before_it_is_sent_anything_says_why_too(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho Quota exceeded >&2; exit 1\n")
    (tmp_path / "python").chmod(0o755)

    class AlreadyGone(LocalTransport):
        def open(self) -> LocalStream:
            stream = super().open()
            stream._process.wait(60)
            return stream

    with pytest.raises(RelayError, match="Quota exceeded") as error:
        RelayClient(AlreadyGone(str(tmp_path / "python"))).hello()
    assert "python3" in error.value.hint


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    client = RelayClient(LocalTransport(str(tmp_path / "nowhere")))
    with pytest.raises(ClusterError, match="nowhere"):
        client.hello()


def test_the_pause_between_tries_grows_to_a_limit() -> None:
    assert [reconnect_delay_s(failures) for failures in (1, 2, 3, 5, 6, 50, 5000)] == [1, 2, 4, 16, 30, 30, 30]


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1", "ja_JP.eucJP"])
def test_any_locale_on_the_other_side_will_do(tmp_path: Path, locale: str) -> None:
    setting = f"export LC_ALL={locale} LANG={locale} PYTHONCOERCECLOCALE=0 PYTHONUTF8=0 PYTHONIOENCODING=ascii"
    client = wrapped(tmp_path, f'{setting}; exec {sys.executable} "$@"')
    name = str(tmp_path / "récompense ☃")
    client.put(name, "☃".encode())
    assert [entry.name for entry in client.list(str(tmp_path))] == ["python", "récompense ☃"]
    assert client.run(["cat", name]).out == "☃"
    with pytest.raises(RelayError, match="☃"):
        client.read(name + "☃")
    client.close()


def test_modules_in_the_directory_of_the_relay_are_not_taken_for_python_s(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    process = subprocess.run(
        relay_argv(sys.executable),
        input=relay_program() + b'{"op":"hello","id":1}\n',
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert b'"ok":true' in process.stdout


@pytest.mark.parametrize("how", ["stdin closes", "SIGTERM", "SIGHUP"])
def test_the_relay_takes_its_children_with_it(tmp_path: Path, how: str) -> None:
    relay = subprocess.Popen(relay_argv(sys.executable), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert relay.stdin is not None
    script = f"trap '' TERM; sleep 600 & echo $$ $! > {tmp_path}/pids.new; mv {tmp_path}/pids.new {tmp_path}/pids; wait"
    request = f'{{"op":"run","id":1,"argv":["sh","-c","{script}"],"timeout_s":600}}\n'
    relay.stdin.write(relay_program() + request.encode())
    relay.stdin.flush()
    await_that((tmp_path / "pids").exists, "the child runs")
    if how == "stdin closes":
        relay.stdin.close()
    else:
        relay.send_signal(getattr(signal, how))
    assert relay.wait(60) == 0
    for pid in (tmp_path / "pids").read_text().split():
        await_that(lambda pid=int(pid): gone(pid), f"{pid} is gone")  # type: ignore[misc]


def test_the_relay_ends_with_the_process_that_uses_it(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from rltui.cluster.local_transport import LocalTransport\n"
        "from rltui.cluster.relay_client import RelayClient\n"
        "client = RelayClient(LocalTransport())\n"
        "print(client.hello().pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    user = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, timeout=120)
    assert user.returncode == -signal.SIGKILL
    await_that(lambda: gone(int(user.stdout)), "the relay is gone")


def test_what_the_relay_starts_is_not_taken_for_our_own() -> None:
    environment = {
        "PATH": "/bin",
        "PYTHONPATH": "x",
        "LD_LIBRARY_PATH": "y",
        ATTEMPT_VARIABLE: "z",
        "WANDB_SERVICE": "w",
    }
    assert cleaned_environment(environment) == {"PATH": "/bin", "LD_LIBRARY_PATH": "y"}
