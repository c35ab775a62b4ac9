"""Each operation of the relay, on a real relay in its own process, with real files, programs and servers."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from watch_support import TOKEN, Server, await_that, gone

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileRange, ProcessIdentity, RelayError
from rltui.onnode import processes, relay_files
from rltui.onnode.relay import carry_out
from rltui.service.sampling import DETACHED


def kind_of(error: pytest.ExceptionInfo[RelayError]) -> str:
    return error.value.kind


def test_hello_tells_who_and_where(client: RelayClient) -> None:
    hello = client.hello()
    assert hello.host == os.uname().nodename
    assert hello.pid != os.getpid()
    assert hello.cpus == len(os.sched_getaffinity(0))
    assert abs(hello.time - time.time()) < 60


@pytest.mark.parametrize("data", [b"", b"short", bytes(range(256)) * 40, b"z" * 100_000], ids=len)
def test_read_brings_any_bytes_and_offsets(client: RelayClient, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    whole = client.read(str(path))
    assert (whole.data, whole.offset, whole.size) == (data, 0, len(data))
    assert whole.inode == path.stat().st_ino
    part = client.read(str(path), 3, 5)
    assert part.data == data[3:8]
    assert client.read(str(path), len(data) + 10, 5).data == b""


def test_tail_brings_the_end_and_says_where_it_starts(client: RelayClient, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert (client.tail(str(path), 4).data, client.tail(str(path), 4).offset) == (b"6789", 6)
    assert (client.tail(str(path), 99).data, client.tail(str(path), 99).offset) == (b"0123456789", 0)


def test_a_limit_beyond_the_cap_is_the_cap(client: RelayClient, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as stream:
        stream.truncate(9 << 20)
    assert len(client.read(str(path), 0, 1 << 40).data) == 8 << 20


def test_what_is_no_file_is_refused_and_does_not_block(client: RelayClient, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in [("pipe", "not-a-file"), ("", "not-a-file"), ("missing", "missing"), ("pipe/x", "missing")]:
        with pytest.raises(RelayError) as error:
            client.read(str(tmp_path / path))
        assert kind_of(error) == kind
    with pytest.raises(RelayError) as error:
        client.read("/dev/zero")
    assert kind_of(error) == "not-a-file"
    with pytest.raises(RelayError) as error:
        client.read("a\0b")
    assert kind_of(error) == "bad-request"


def test_denied_is_said(client: RelayClient) -> None:
    with pytest.raises(RelayError) as error:
        client.put("/sys/file", b"")  # the kernel refuses this to root as well
    assert kind_of(error) == "denied"


def test_an_unknown_signal_is_refused(client: RelayClient) -> None:
    with pytest.raises(RelayError) as error:
        client.signal(os.getpid(), "0", 10_000)
    assert kind_of(error) == "bad-request"


def test_read_many_mixes_chunks_and_errors(client: RelayClient, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"alpha")
    answers = client.read_many(
        [
            FileRange(str(tmp_path / "a"), 0, 9),
            FileRange(str(tmp_path / "b"), 0, 9),
            FileRange(str(tmp_path / "a"), None, 2),
        ]
    )
    assert [getattr(answer, "data", None) for answer in answers] == [b"alpha", None, b"ha"]
    assert isinstance(answers[1], RelayError)


def test_collect_brings_matching_files_in_order(client: RelayClient, tmp_path: Path) -> None:
    for name in ("b/x.json", "a/x.json", "a/deep/y.json", ".hidden/x.json", "a/z.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "x.json").mkdir()
    os.mkfifo(tmp_path / "b" / "y.json")
    files = client.collect(str(tmp_path), ["*/x.json", "*/*/y.json"], 6)
    assert [(file.path, file.text, file.size) for file in files] == [
        ("a/x.json", "a/x.js", 8),
        ("b/x.json", "b/x.js", 8),
        ("a/deep/y.json", "a/deep", 13),
    ]
    assert client.collect(str(tmp_path / "nowhere"), ["*"]) == ()


def test_collect_brings_the_last_whole_lines_of_a_file_that_grows(client: RelayClient, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(10, 40)))
    for limit, last in ((19, 1), (20, 2), (21, 2), (29, 2), (30, 3), (300, 30), (1000, 30)):
        (file,) = client.collect(str(tmp_path), ["*.jsonl"], limit)
        assert file.size == 300
        assert file.text == "".join(f'{{"n": {number}}}\n' for number in range(40 - last, 40))


def test_collect_of_a_root_with_wildcards_in_its_name(client: RelayClient, tmp_path: Path) -> None:
    root = tmp_path / "r[1]*"
    root.mkdir()
    (root / "x").write_text("here")
    assert [file.text for file in client.collect(str(root), ["*"])] == ["here"]


def test_collect_brings_all_however_much_it_is(client: RelayClient, tmp_path: Path) -> None:
    # a first request has room for some eight of these
    for number in range(20):
        (tmp_path / f"r{number:02d}").mkdir()
        (tmp_path / f"r{number:02d}/long.json").write_text("x" * (1 << 20))
        (tmp_path / f"r{number:02d}/end.json").write_text("{}")
    files = client.collect(str(tmp_path), ["*/long.json", "*/end.json"])
    assert [file.path for file in files] == [f"r{n:02d}/{name}.json" for name in ("long", "end") for n in range(20)]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b"])
def test_collect_stays_below_its_root(client: RelayClient, tmp_path: Path, name: str) -> None:
    with pytest.raises(RelayError) as error:
        client.collect(str(tmp_path), [name])
    assert kind_of(error) == "bad-request"


def test_collect_since_leaves_out_old_text(client: RelayClient, tmp_path: Path) -> None:
    for name, age in (("old", 100), ("new", 0)):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    answer = client.collect_since(str(tmp_path), ["*"], 99, time.time() - 50)
    assert [(file.path, file.text) for file in answer.files] == [("new", "new"), ("old", None)]


def test_a_disk_that_is_slow_has_no_other_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, make, passed_s = time.time, tempfile.TemporaryFile, 0.0

    def slowly(**options: Any) -> Any:
        nonlocal passed_s
        passed_s = 30.0
        return make(**options)

    monkeypatch.setattr(relay_files, "_offsets", {})
    monkeypatch.setattr(relay_files.time, "time", lambda: right() - 30.0 + passed_s)
    monkeypatch.setattr(relay_files.tempfile, "TemporaryFile", slowly)
    for _ in range(2):  # when it asks, and with what it remembers
        assert abs(relay_files.disk_time(str(tmp_path)) - right()) < 5.0


@pytest.mark.parametrize("ahead_s", [600, -600])
def test_files_are_as_old_as_their_disk_says_where_this_machine_s_clock_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    (tmp_path / "file").write_text("x")
    right = time.time
    monkeypatch.setattr(relay_files, "_offsets", {})
    monkeypatch.setattr(relay_files.time, "time", lambda: right() + ahead_s)
    answer = relay_files.collect({"root": str(tmp_path), "names": ["*"]})
    assert abs(answer["time"] - answer["files"][0]["mtime"]) < 60
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_takes_no_file_has_this_machine_s_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(relay_files, "_offsets", {})
    monkeypatch.setattr(relay_files.tempfile, "TemporaryFile", refuse)
    assert abs(relay_files.collect({"root": str(tmp_path), "names": ["*"]})["time"] - time.time()) < 60


def test_put_writes_whole_private_files(client: RelayClient, tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = os.urandom(3_000_000)
    client.put(str(path), data)
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    client.put(str(path), b"\0\xff" * 4000, mode=0o644)
    assert path.read_bytes() == b"\0\xff" * 4000
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["file"]


def test_put_refusals_leave_nothing_behind(client: RelayClient, tmp_path: Path) -> None:
    path = tmp_path / "file"
    client.put(str(path), b"first", exclusive=True)
    with pytest.raises(RelayError) as error:
        client.put(str(path), b"second", exclusive=True)
    assert kind_of(error) == "exists"
    assert path.read_bytes() == b"first"
    with pytest.raises(RelayError) as error:
        client.put(str(tmp_path / "no" / "file"), b"")
    assert kind_of(error) == "missing"
    with pytest.raises(RelayError) as error:
        client.put(str(tmp_path), b"")
    assert kind_of(error) in ("not-a-file", "exists", "failed")
    with pytest.raises(RelayError) as error:
        client.put(str(path), bytes(17 << 20))
    assert kind_of(error) == "too-large"
    assert os.listdir(tmp_path) == ["file"]


def test_list_names_types_and_odd_names(client: RelayClient, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/odd\xff"
    with open(odd, "wb") as stream:
        stream.write(b"123")
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("dir")
    os.mkfifo(tmp_path / "pipe")
    entries = {entry.name: entry for entry in client.list(str(tmp_path))}
    assert {name: entry.type for name, entry in entries.items()} == {
        "dir": "dir",
        "link": "link",
        "odd\udcff": "file",
        "pipe": "other",
    }
    assert entries["odd\udcff"].size == 3
    assert client.read(f"{tmp_path}/odd\udcff").data == b"123"


def test_run_passes_bytes_and_status(client: RelayClient) -> None:
    done = client.run(["sh", "-c", "cat; printf '\\377' >&2; exit 7"], stdin=b"\xfe\0caf\xc3\xa9")
    assert done.rc == 7
    assert os.fsencode(done.out) == b"\xfe\0caf\xc3\xa9"
    assert os.fsencode(done.err) == b"\xff"
    assert client.run(["sh", "-c", "echo $WORD"], env={"WORD": "it's"}).out == "it's\n"
    assert client.run(["sh", "-c", "kill -9 $$"]).rc == -signal.SIGKILL
    with pytest.raises(RelayError) as error:
        client.run(["/no/such/program"])
    assert kind_of(error) == "missing"


def test_run_drops_output_over_its_cap(client: RelayClient) -> None:
    done = client.run(["sh", "-c", "head -c 5000000 /dev/zero"])
    assert (done.rc, len(done.out), done.truncated) == (0, 4 << 20, True)
    done = client.run(["sh", "-c", "head -c 5000000 /dev/zero; printf '\\377\\303\\244'"], limit=6 << 20)
    assert (done.rc, done.truncated) == (0, False)
    assert done.out == "\0" * 5_000_000 + "\udcff\u00e4"
    assert client.run(["sh", "-c", "head -c 5000000 /dev/zero"], limit=1000).truncated


def test_run_ends_what_overruns_with_its_group(client: RelayClient, tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait; sleep 600"
    for timeout_s in (1, 2, 4, 8, 16, 32):
        with pytest.raises(RelayError) as error:
            client.run(["sh", "-c", script], timeout_s=timeout_s)
        assert kind_of(error) == "timeout"
        if (tmp_path / "pid").exists():  # else its time was over before it had a child
            break
    grandchild = int((tmp_path / "pid").read_text())
    await_that(lambda: gone(grandchild), "the grandchild is gone")


def test_run_does_not_wait_for_what_stays_in_the_background(client: RelayClient, tmp_path: Path) -> None:
    began = time.monotonic()
    done = client.run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; echo done"])
    assert (done.rc, done.out) == (0, "done\n")
    assert time.monotonic() - began < 60
    left = int((tmp_path / "pid").read_text())
    await_that(lambda: gone(left), "what it left is gone")


def test_what_is_started_to_stay_outlives_its_request_on_a_busy_machine(client: RelayClient, tmp_path: Path) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        for turn in range(60):
            client.run(["sh", "-c", DETACHED, f"{tmp_path}/log", "sh", "-c", f"sleep 0.2; touch '{tmp_path}/{turn}'"])
        await_that(lambda: len([*tmp_path.iterdir()]) == 61, "all have done their work")
    finally:
        for one in busy:
            one.kill()
            one.wait()


def test_slow_requests_do_not_hold_up_others(client: RelayClient, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    done: list[int] = []
    waiting = threading.Thread(target=lambda: done.append(client.run(["cat", str(tmp_path / "gate")]).rc))
    waiting.start()
    for _ in range(20):
        assert client.run(["true"]).rc == 0
    assert not done
    (tmp_path / "gate").write_bytes(b"")
    waiting.join(60)
    assert done == [0]


def test_alive_and_signal_want_the_exact_process(client: RelayClient) -> None:
    child = subprocess.Popen(["sleep", "600"])
    started = processes.start_time(child.pid)
    assert started is not None
    exact, reused = ProcessIdentity(child.pid, started), ProcessIdentity(child.pid, str(int(started) - 1))
    elsewhere = ProcessIdentity(child.pid, started, "another-host")
    assert client.alive([exact, reused, elsewhere]) == (True, False, None)
    assert client.signal(child.pid, reused.start_time, signal.SIGKILL) is False
    assert child.poll() is None
    assert client.signal(child.pid, started, signal.SIGTERM) is True
    assert child.wait(60) == -signal.SIGTERM
    assert client.alive([exact]) == (False,)
    assert client.signal(child.pid, started, signal.SIGTERM) is False


def test_alive_takes_a_zombie_for_dead(client: RelayClient) -> None:
    child = subprocess.Popen(["sleep", "600"])
    started = processes.start_time(child.pid) or ""
    child.kill()
    await_that(lambda: client.alive([ProcessIdentity(child.pid, started)]) == (False,), "the zombie counts as dead")
    assert processes.start_time(child.pid) == started
    child.wait()


@pytest.mark.parametrize("pid", [0, 1])
def test_signal_never_reaches_groups_or_init(client: RelayClient, pid: int) -> None:
    with pytest.raises(RelayError) as error:
        client.signal(pid, "0", signal.SIGTERM)
    assert kind_of(error) == "bad-request"


def test_http_asks_loopback_with_headers_and_follows_no_redirect(client: RelayClient) -> None:
    with Server().running() as server:
        server.pages = {"/x?a=1": (200, b"\0\xff" + b"y" * 5000), "/moved": (302, b"")}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = client.http(server.url + "/x?a=1", headers=headers)
        assert (answer.status, answer.body) == (200, b"\0\xff" + b"y" * 5000)
        assert client.http(server.url + "/x?a=1").status == 401
        assert client.http(server.url.replace("127.0.0.1", "localhost") + "/moved", headers=headers).status == 302
        assert "/elsewhere" not in server.asked


@pytest.mark.parametrize(
    "url",
    ["http://192.0.2.1/", "https://127.0.0.1/", "file:///etc/passwd", "http://127.0.0.1@192.0.2.1/", "http://", "x"],
)
def test_http_goes_nowhere_but_to_loopback(client: RelayClient, url: str) -> None:
    with pytest.raises(RelayError) as error:
        client.http(url)
    assert kind_of(error) == "refused"


def test_http_knows_a_timeout_of_older_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    older = type("timeout", (OSError,), {})  # a TimeoutError only since Python 3.10

    def request(*_: object) -> None:
        raise older("timed out")

    monkeypatch.setattr(socket, "timeout", older)
    monkeypatch.setattr(http.client.HTTPConnection, "request", request)
    answer = carry_out({"op": "http", "url": "http://127.0.0.1:9/"})
    assert (answer["kind"], answer["error"]) == ("timeout", "timed out")


def test_http_failures_have_their_kinds(client: RelayClient) -> None:
    with Server().running() as server:
        server.pages = {"/stuck": (200, None), "/large": (200, bytes((16 << 20) + 1))}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for path, kind in (("/stuck", "timeout"), ("/large", "too-large")):
            with pytest.raises(RelayError) as error:
                client.http(server.url + path, headers=headers, timeout_s=0.5 if path == "/stuck" else 20)
            assert kind_of(error) == kind
        with pytest.raises(RelayError) as error:
            client.http(server.url, headers={"A": "b\r\nInjected: c"})
        assert kind_of(error) == "bad-request"
        url = server.url
    with pytest.raises(RelayError) as error:
        client.http(url)
    assert kind_of(error) == "unreachable"
