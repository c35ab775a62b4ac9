"""``--watch``: the same print again and again, over connections that stay open."""

from __future__ import annotations

import argparse
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from rltui.cli import watch as watching
from rltui.cli.main import main
from rltui.errors import ClusterError, UsageError
from rltui.service.all_clusters import AllClusters, kept_open, open_clusters


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching.time, "sleep", lambda _: None)


def options(*, as_json: bool = False, every_s: float = 2.0) -> argparse.Namespace:
    return argparse.Namespace(watch=every_s, json=as_json)


def verb(*pictures: str | Exception, code: int = 0) -> Callable[[argparse.Namespace], int]:
    """A verb that prints these one after the other, and is then interrupted."""
    left = list(pictures)

    def run(_: argparse.Namespace) -> int:
        if not left:
            raise KeyboardInterrupt
        picture = left.pop(0)
        if isinstance(picture, Exception):
            raise picture
        print(picture)
        return code

    return run


def test_pictures_follow_each_other_and_the_last_exit_code_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert watching.watch("rltui ps", options(), verb("one", "two", code=3)) == 3
    assert capsys.readouterr().out == "one\n\ntwo\n"


def test_json_is_a_line_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    pictures = [json.dumps({"step": step}, indent=2) for step in (1, 2)]
    watching.watch("rltui ps", options(as_json=True), verb(pictures[0], ClusterError("hpc is away"), pictures[1]))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"step": 1}, {"problem": "hpc is away"}, {"step": 2}]


def test_a_cluster_that_goes_away_is_said_and_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    watching.watch("rltui ps", options(), verb("one", ClusterError("hpc is away"), "three"))
    assert capsys.readouterr().out == "one\n\nrltui: hpc is away\n\nthree\n"


def test_what_is_wrong_from_the_start_ends_it() -> None:
    with pytest.raises(ClusterError):
        watching.watch("rltui ps", options(), verb(ClusterError("hpc is away"), "never"))
    with pytest.raises(UsageError, match="at least 1 s"):
        watching.watch("rltui ps", options(every_s=0.5), verb("never"))
    with pytest.raises(UsageError, match="at least 1 s"):
        watching.watch("rltui ps", options(every_s=float("nan")), verb("never"))


def test_clusters_stay_open_between_two_pictures_and_are_closed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[AllClusters] = []
    monkeypatch.setattr(AllClusters, "close", lambda clusters: closed.append(clusters))
    with kept_open():
        with open_clusters("") as first:
            pass
        with open_clusters("") as again, open_clusters("local") as other:
            assert again is first
            assert other is not first
        assert not closed
    assert set(map(id, closed)) == {id(first), id(other)}
    with open_clusters("") as fresh:
        assert fresh is not first
    assert len(closed) == 3


@pytest.mark.parametrize("words", [["ps", "--every", "soon"], ["ps", "--watch", "3"], ["why", "--watch"]])
def test_words_that_are_none_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"`rltui {words[0]} --help` tells more." in capsys.readouterr().err


def test_on_a_terminal_each_picture_takes_the_place_of_the_one_before_and_ctrl_c_ends_it() -> None:
    terminal, end = pty.openpty()
    os.set_inheritable(end, True)
    process = subprocess.Popen(
        [sys.executable, "-m", "rltui", "ps", "--every", "1", "--cluster", "local"],
        stdin=end, stdout=end, stderr=end, start_new_session=True,
    )  # fmt: skip
    os.close(end)
    seen, deadline = b"", time.monotonic() + 60
    while seen.count(b"\x1b[H") < 3 and time.monotonic() < deadline:
        seen += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    os.close(terminal)
    first, second = seen.split(b"\x1b[H")[1:3]
    assert first.startswith(b"\x1b[2J")
    assert not second.startswith(b"\x1b[2J"), "cleared once: a screen that is cleared each time flickers"
    assert b"every 1 s  rltui ps" in second
