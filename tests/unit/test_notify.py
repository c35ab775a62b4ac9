"""Telling people: a real server, a real sendmail program, a real command; hostile names; no secret where one reads."""

from __future__ import annotations

import email
import email.policy
import http.client
import json
import os
import socket
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from watch_support import await_that
from webhook import SECRET, Hook

from rltui.cli.main import main
from rltui.onnode import hands_off, notify, rundir, tell_once
from rltui.onnode.attempt_runner import AttemptRunner, Verdict

HOSTILE = "grpo'\"`$(touch x)`; \x1b]0;owned\x07\x1b[2J\r\nBcc: all@example.org\n<!channel> \u202egnp\x00 %s & -x"
EVIL = ("\x1b", "\x07", "\r", "\x00", "\u202e", "owned")
MESSAGE = {
    "kind": "ended",
    "cluster": "local",
    "run": HOSTILE,
    "title": HOSTILE,
    "text": f"{HOSTILE}\nline 2",
    "time_s": 0,
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with programs that keep their arguments, input and variables beside themselves."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sendmail", "pager", "notify-send"):
        path = folder / name
        path.write_text(
            "#!/bin/sh\n"
            f'printf "%s\\0" "$@" >{folder}/{name}.argv\n/bin/cat >{folder}/{name}.stdin\n'
            f"/usr/bin/env -0 >{folder}/{name}.env\n"
        )
        path.chmod(0o755)
    return folder


def argv(programs: Path, name: str) -> list[str]:
    return (programs / f"{name}.argv").read_text().split("\0")[:-1]


def test_every_channel_gets_the_message_and_nothing_of_a_hostile_name_acts(hook: Hook, programs: Path) -> None:
    settings = {
        "events": ["ended"],
        "webhook": "HOOK",
        "mail": ["me@example.org", "root"],
        "command": ["pager", "--to", "me"],
        "desktop": True,
    }
    environment = {"PATH": str(programs), "HOOK": hook.url, "DISPLAY": ":7", "PYTHONPATH": "/rltui"}
    results = notify.tell(settings, MESSAGE, environment)
    assert {one["channel"]: one["ok"] for one in results} == dict.fromkeys(
        ("webhook", "mail", "command", "desktop"), True
    )
    assert SECRET not in json.dumps(results)

    [got] = hook.got
    assert set(got) == {"path", "type", "user", "text"}
    assert (got["path"], got["type"]) == (f"/services/{SECRET}", "application/json")
    assert got["text"].splitlines()[0].startswith("grpo'\"`$(touch x)`; ")
    assert got["text"].endswith("line 2")
    assert "<!channel>" not in got["text"]
    assert "&lt;!channel&gt;" in got["text"]

    assert argv(programs, "sendmail") == ["-i", "me@example.org", "root"]
    mail = email.message_from_bytes((programs / "sendmail.stdin").read_bytes(), policy=email.policy.default)
    assert mail["To"] == "me@example.org, root"
    assert mail["Bcc"] is None
    assert "Bcc: all@example.org" in mail["Subject"]
    assert "line 2" in mail.get_content()

    assert argv(programs, "pager") == ["--to", "me"]
    variables = dict(one.split("=", 1) for one in (programs / "pager.env").read_text().split("\0") if one)
    assert variables["RLTUI_NOTIFY_KIND"] == "ended"
    assert "\n" not in variables["RLTUI_NOTIFY_TITLE"]
    assert "PYTHONPATH" not in variables
    assert (programs / "pager.stdin").read_text().endswith("line 2\n")

    assert argv(programs, "notify-send")[:2] == ["--app-name=rltui", "--"]
    assert "&lt;!channel&gt;" in argv(programs, "notify-send")[3]

    written = [path.read_text() for path in programs.glob("*.*")]
    said = [got["text"], mail["Subject"], mail.get_content(), *written]
    for text in said:
        separators = text.replace("\0", "") if text in written else text
        assert not [evil for evil in EVIL if evil in separators]
    assert not [path for path in programs.glob("*.argv") if SECRET in path.read_text()]
    assert not list(Path.home().glob("x"))


def test_only_chosen_kinds_are_told(programs: Path) -> None:
    environment = {"PATH": str(programs)}

    def told(kind: str, **settings: object) -> list[str]:
        results = notify.tell({"command": ["pager"], **settings}, {**MESSAGE, "kind": kind}, environment)
        return [one["channel"] for one in results]

    assert [kind for kind in rundir.TOLD_EVENTS if told(kind)] == ["ended", "stalled", "warned", "fixed", "needs you"]
    assert told("started", events=["started"]) == ["command"]
    assert told("../ended", events=["../ended"]) == []


@pytest.mark.parametrize(
    ("status", "answer", "detail"),
    [(404, b"no_service", "HTTP 404: no_service"), (500, b"", "HTTP 500: Internal Server Error")],
)
def test_a_refusal_is_said_in_the_servers_words(hook: Hook, status: int, answer: bytes, detail: str) -> None:
    hook.status, hook.answer = status, answer
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, {"HOOK": hook.url})
    assert result == {"channel": "webhook", "ok": False, "detail": detail}


def test_an_echo_of_the_secret_and_a_redirect_stay_here(hook: Hook) -> None:
    hook.status, hook.answer = 400, f"bad request to {hook.url}".encode()
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, {"HOOK": hook.url})
    assert result["detail"] == "HTTP 400: bad request to ***"
    hook.status, hook.headers, hook.answer = 303, {"Location": hook.url}, b""
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, {"HOOK": hook.url})
    assert not result["ok"]
    assert len(hook.got) == 2  # nobody followed it


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ("", "the variable HOOK is not set; a line of env_file sets it"),
        (f"file:///{SECRET}", "what HOOK holds is no address that begins with https://"),
        (f"http://127.0.0.1:9/{SECRET}", "not reached: [Errno 111] Connection refused"),
        (f"http://127.0.0.1:nine/{SECRET}", "ValueError: Port could not be cast to integer value"),
        (f"http://127.0.0.1:9/{SECRET} {SECRET}", "no address"),
        (f"http:///{SECRET}", ""),
    ],
)
def test_an_address_that_cannot_work_is_said_without_it(value: str, detail: str) -> None:
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, {"HOOK": value})
    assert not result["ok"]
    assert detail in result["detail"]
    assert not any(part in result["detail"] for part in SECRET.split("/"))


def test_what_a_program_says_of_its_failure_is_masked(tmp_path: Path) -> None:
    settings = {"command": ["/bin/sh", "-c", "echo no >&2; echo token $PAGER_TOKEN is wrong >&2; exit 3"]}
    [result] = notify.tell(settings, MESSAGE, {"PAGER_TOKEN": "s3cr3t-s3cr3t"})
    assert result["detail"] == "/bin/sh ended with code 3: token *** is wrong"
    gone = notify.tell({"command": [str(tmp_path / "no"), "x"], "mail": ["a@b"]}, MESSAGE, {"PATH": str(tmp_path)})
    assert [one["ok"] for one in gone] == [False, False]


def test_a_node_without_the_users_home_tells_all_the_same() -> None:
    [result] = notify.tell({"command": ["/bin/true"]}, MESSAGE, {})
    assert result["ok"], result
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "/nowhere/at/all")
        [result] = notify.tell({"command": ["/bin/true"]}, MESSAGE, {})
    assert result["ok"], result


def test_settings_that_make_no_sense_raise_nothing() -> None:
    nonsense: dict[str, Any] = {"webhook": 3, "mail": {"a": 1}, "command": [7], "desktop": "x", "events": ["ended"]}
    assert [one["ok"] for one in notify.tell(nonsense, {"kind": "ended", "title": None}, {})] == [False] * 4


def test_who_does_not_answer_in_time_may_have_been_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "SOCKET_S", 0.2)
    monkeypatch.setattr(notify, "DEADLINE_S", 0.3)
    connect = http.client.HTTPConnection.connect

    def reached(connection: http.client.HTTPConnection) -> None:
        """Connect however long this machine takes for that: who is not reached is known not to have been told."""
        limit_s, connection.timeout = connection.timeout, 300.0
        connect(connection)
        connection.sock.settimeout(limit_s)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", reached)
    join = threading.Thread.join  # each channel has begun, however late its thread gets to run
    monkeypatch.setattr(threading.Thread, "join", lambda thread, timeout=None: join(thread))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}"
        settings = {"webhook": "HOOK", "command": ["/bin/sh", "-c", "sleep 60 & wait"]}
        results = notify.tell(settings, MESSAGE, {"HOOK": url, "PATH": os.defpath})
    assert [(one["ok"], one.get("unknown")) for one in results] == [(False, True)] * 2
    assert "within" in results[1]["detail"]


def test_the_files_proxy_is_used_and_its_exceptions(hook: Hook) -> None:
    port = hook.server.server_port
    environment = {"HOOK": "http://chat.invalid/services/x", "http_proxy": f"http://127.0.0.1:{port}"}
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, environment)
    assert result["ok"]
    assert hook.got[0]["path"] == "http://chat.invalid/services/x"
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, {**environment, "no_proxy": "invalid"})
    assert not result["ok"]
    assert len(hook.got) == 1


def test_a_name_that_is_not_found_in_time_is_not_sent_to_later(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without a network wait long for names; the other side is to tell then, and nobody twice."""
    monkeypatch.setattr(notify, "DEADLINE_S", -0.9)
    found, looked = threading.Event(), threading.Event()
    connect = http.client.HTTPConnection.connect

    def slowly(connection: http.client.HTTPConnection) -> None:
        found.wait(30.0)
        connect(connection)
        looked.set()

    monkeypatch.setattr(http.client.HTTPConnection, "connect", slowly)
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, {"HOOK": hook.url})
    found.set()
    assert looked.wait(30.0)
    for thread in threading.enumerate():
        if thread._target is notify._tell:  # type: ignore[attr-defined]
            thread.join(30.0)
    assert (result["ok"], "unknown" in result) == (False, False)
    assert not hook.got


def test_a_proxy_that_wants_a_name_gets_it_and_a_tunnel_for_https(hook: Hook) -> None:
    proxy = f"http://me:pa%40ss@127.0.0.1:{hook.server.server_port}"
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, {"HOOK": "http://chat.invalid/x", "HTTP_PROXY": proxy})
    assert result["ok"]
    assert hook.got[0]["user"] == "Basic bWU6cGFAc3M="
    [result] = notify.tell({"webhook": "HOOK"}, MESSAGE, {"HOOK": "https://chat.invalid/x", "https_proxy": proxy})
    assert result["detail"].startswith("not reached: Tunnel connection failed: 403")
    assert hook.got[1] == {"path": "chat.invalid:443", "user": "Basic bWU6cGFAc3M="}


@pytest.mark.parametrize(("stage", "words"), [({"step": 13}, "step 13"), ({"step": 13, "steps": 40}, "step 13 of 40")])
def test_a_message_says_the_step_as_far_as_it_is_known(tmp_path: Path, stage: dict[str, int], words: str) -> None:
    rundir.write_json(str(tmp_path / rundir.STAGE), stage)
    assert tell_once.attempt_message(str(tmp_path), "fixed")["text"].rpartition(", ")[2] == words


def test_a_desktop_is_told_only_where_there_is_one(tmp_path: Path, programs: Path) -> None:
    settings = {"desktop": True}
    assert tell_once.tell_once(str(tmp_path), settings, MESSAGE, {"PATH": str(programs)}) == []
    [result] = tell_once.tell_once(str(tmp_path), settings, MESSAGE, {"PATH": str(programs), "DISPLAY": ":7"})
    assert result["ok"]


class Hurried(AttemptRunner):
    """An attempt that ends at once; whoever ends it may not leave it time to clean up."""

    hurry = (True, True)
    seen_at_clean_up: tuple[bool, int] = (False, 0)
    deciding: bool = False
    was_deciding_at_clean_up: bool = False

    def _attempt(self) -> Verdict:
        return Verdict("cancelled", None, "preempted")

    def in_a_hurry(self) -> bool:
        return self.hurry[rundir.read_json(f"{self.attempt}/stage.json") is not None]

    def clean_up(self) -> None:
        self.was_deciding_at_clean_up = self.deciding
        told = hook_of(self)
        if self.hurry[0]:
            await_that(lambda: told.got, "it is told meanwhile")
        self.seen_at_clean_up = (Path(self.attempt, "end.json").exists(), len(told.got))
        rundir.write_stage(self.attempt, "saving")


def hook_of(runner: AttemptRunner) -> Hook:
    hook: Hook = runner.job["hook"]
    return hook


@pytest.mark.parametrize(
    ("hurry", "seen"), [((True, True), (True, 1)), ((False, False), (False, 0)), ((False, True), (False, 0))]
)
def test_who_may_be_killed_soon_tells_while_it_cleans_up_and_an_end_is_never_left_out(
    tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch, hurry: tuple[bool, bool], seen: tuple[bool, int]
) -> None:
    monkeypatch.setattr("rltui.onnode.attempt_runner.signal.signal", lambda *_: None)
    monkeypatch.setattr("rltui.onnode.attempt_runner.os.umask", lambda _: 0)
    monkeypatch.setenv("HOOK", hook.url)
    attempt = tmp_path / "attempts/01"
    attempt.mkdir(parents=True)
    job = {"uuid": "u", "run_id": "r", "attempt": 1, "notify": {"webhook": "HOOK"}}
    rundir.write_json(str(attempt / "job.json"), job)
    rundir.write_json(str(tmp_path / "run.json"), {"cluster": "alps"})
    runner = Hurried(str(attempt))
    runner.hurry, runner.job["hook"] = hurry, hook
    rundir.write_json(str(tmp_path / "hands-off.json"), {"on": True})

    def start(attempt: str) -> subprocess.Popen[bytes]:
        assert Path(attempt, "end.json").exists()
        runner.deciding = True
        return subprocess.Popen(["true"])

    monkeypatch.setattr(hands_off, "start", start)
    assert runner.run() == 1
    assert (runner.deciding, runner.was_deciding_at_clean_up) == (True, hurry[0])
    assert runner.seen_at_clean_up == seen
    assert [got["text"] for got in hook.got] == ["r: cancelled\npreempted\nattempt 1 on alps"]
    assert json.loads((attempt / "end.json").read_text())["outcome"] == "cancelled"


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: Hook, programs: Path) -> Path:
    """A profile of this machine that tells by all channels; returns its file of secrets."""
    secrets = tmp_path / "secrets"
    secrets.write_text(f"export HOOK='{hook.url}'\n")
    secrets.chmod(0o600)
    folder = tmp_path / "config"
    folder.mkdir()
    words = f"notify: {{webhook: HOOK, mail: [me@example.org], command: [{programs}/pager]}}"
    (folder / "clusters.yaml").write_text(f"local: {{env_file: {secrets}, {words}}}\n")
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(folder))
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return secrets


def test_the_verb_tells_a_test_and_says_what_came_of_each(
    profile: Path, hook: Hook, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["notify"]) == 0
    assert not hook.got
    assert main(["notify", "--test"]) == 0
    told = capsys.readouterr().out
    assert "✓ webhook" in told
    assert hook.got[0]["text"].startswith("rltui: a test\n")
    assert (programs / "sendmail.stdin").exists()
    (programs / "sendmail").write_text("#!/bin/sh\necho queue is full >&2; exit 75\n")
    assert main(["notify", "--test", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [one["ok"] for one in answer["results"]] == [True, False, True]
    assert answer["results"][1]["detail"].endswith("ended with code 75: queue is full")
    assert SECRET not in told + json.dumps(answer)
    profile.chmod(0o644)
    assert stat.S_IMODE(profile.stat().st_mode) == 0o644
    assert main(["notify", "--test"]) == 1
    said = capsys.readouterr().out
    assert "the variable HOOK is not set" in said
    assert "can be read by others; run: chmod 600" in said
