"""Events of an attempt of which many hear: people are told once, whoever sees it first."""

from __future__ import annotations

import errno
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from webhook import SECRET, Hook, hang_up

from rltui.onnode import rundir, tell_once

MESSAGE = {
    "kind": "ended",
    "cluster": "local",
    "run": "r",
    "title": "r has ended",
    "text": "line 1\nline 2",
    "time_s": 0,
}


def events(attempt: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (attempt / "events.jsonl").read_text().splitlines()]


def test_of_many_who_see_it_one_tells(tmp_path: Path, hook: Hook) -> None:
    settings, environment = {"webhook": "HOOK"}, {"HOOK": hook.url}

    def tell(_: int) -> int:
        return len(tell_once.tell_once(str(tmp_path), settings, MESSAGE, environment, wait_s=60.0))

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(tell, range(8))) == [0] * 7 + [1]
    assert len(hook.got) == 1
    [event] = events(tmp_path)
    assert (event["kind"], event["text"]) == ("notify", "ended: told by webhook: HTTP 200")
    tell_once.tell_once(str(tmp_path), settings, {**MESSAGE, "kind": "needs you"}, environment)
    assert len(hook.got) == 2  # another event
    assert SECRET not in "".join(path.read_text() for path in tmp_path.iterdir())


def test_what_could_not_be_told_is_left_to_others_and_what_may_have_arrived_is_not(tmp_path: Path, hook: Hook) -> None:
    settings: dict[str, Any] = {"webhook": "HOOK", "command": ["/bin/true"]}
    refused = tell_once.tell_once(str(tmp_path), settings, MESSAGE, {"HOOK": f"http://127.0.0.1:9/{SECRET}"})
    assert [one["ok"] for one in refused] == [False, True]
    assert "ended: not told by webhook: not reached" in events(tmp_path)[0]["text"]
    again = tell_once.tell_once(str(tmp_path), settings, MESSAGE, {"HOOK": hook.url})
    assert [(one["channel"], one["ok"]) for one in again] == [("webhook", True)], again
    assert len(hook.got) == 1
    stalled = {**MESSAGE, "kind": "stalled"}
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        hung_up, url = pool.submit(hang_up, silent), f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        said = tell_once.tell_once(str(tmp_path), settings, stalled, {"HOOK": url})
        hung_up.result()
    assert [one.get("unknown", False) for one in said] == [True, False], said
    assert tell_once.tell_once(str(tmp_path), settings, stalled, {"HOOK": hook.url}) == []


def test_a_disk_that_is_full_by_then_does_not_make_untold_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(rundir, "log_event", full)
    settings: dict[str, Any] = {"command": ["/bin/true"], "mail": ["a@example.org"]}
    told = tell_once.tell_once(str(tmp_path), settings, MESSAGE, {"PATH": "/nowhere"})
    assert {one["channel"]: one["ok"] for one in told} == {"mail": False, "command": True}
    # the mark of the channel that told stays, that of the other one is given back
    assert [path.name for path in tmp_path.iterdir()] == [".told-ended-command"]


def test_a_folder_that_takes_no_mark_is_no_reason_to_tell_again_and_again(tmp_path: Path, hook: Hook) -> None:
    [result] = tell_once.tell_once(str(tmp_path / "gone"), {"webhook": "HOOK"}, MESSAGE, {"HOOK": hook.url})
    assert "no mark can be left" in result["detail"]
    assert not hook.got
