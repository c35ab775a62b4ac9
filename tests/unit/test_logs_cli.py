"""``rltui logs``: where it begins, and that it goes on with the next start of the same run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rltui.cli import logs
from rltui.cli.main import main
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError


class Opened:
    """Clusters with one run, whose attempts follow each other, a look at a time; at attempt 0 they are away."""

    name = "local"

    def __init__(self, run: Path, attempts: list[tuple[int, bool]]) -> None:
        self.cluster = SimpleNamespace(client=RelayClient(LocalTransport()))
        self._run, self._attempts = run, attempts

    def __enter__(self) -> Any:
        return self, self.find("")

    def __exit__(self, *_: object) -> None:
        self.cluster.client.close()

    def find(self, _: str) -> Any:
        number, is_live = self._attempts.pop(0)
        if not number:
            raise ClusterError("the link broke")
        return SimpleNamespace(run_id="r", path=str(self._run), attempt=number, is_live=is_live, created_at=0.0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for number in (1, 2):
        folder = tmp_path / "attempts" / f"0{number}"
        folder.mkdir(parents=True)
        (folder / "out.log").write_text("".join(f"{number}-{line}\n" for line in range(3)))
    return tmp_path


def said(
    run: Path, attempts: list[tuple[int, bool]], words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> list[str]:
    monkeypatch.setattr(logs, "open_run", lambda *_: Opened(run, attempts))
    monkeypatch.setattr(logs, "PERIOD_S", 0.01)
    assert main(["logs", "r", *words]) == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "lines"), [(["-n", "2"], ["1-1", "1-2"]), (["-n", "0"], []), ([], ["1-0", "1-1", "1-2"])]
)
def test_no_more_lines_than_wanted(
    run: Path, words: list[str], lines: list[str], monkeypatch: Any, capsys: Any
) -> None:
    assert said(run, [(1, False)], words, monkeypatch, capsys) == lines


def test_an_empty_log_is_said_to_be_one(run: Path, monkeypatch: Any, capsys: Any) -> None:
    (run / "attempts/01/out.log").write_text("")
    monkeypatch.setattr(logs, "open_run", lambda *_: Opened(run, [(1, False)]))
    assert main(["logs", "r"]) == 0
    assert capsys.readouterr() == ("", "r has written nothing there; `rltui why r` says what is known of it.\n")


def test_following_outlives_a_link_that_breaks(run: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(logs, "open_run", lambda *_: Opened(run, [(1, True), (0, True), (0, True), (2, False)]))
    monkeypatch.setattr(logs, "PERIOD_S", 0.01)
    assert main(["logs", "r", "-f", "-n", "1"]) == 0
    out, told = capsys.readouterr()
    assert (out.split(), told) == (["1-2", "2-0", "2-1", "2-2"], "waiting for local: the link broke\n")


def test_following_in_json_is_an_object_a_line(run: Path, monkeypatch: Any, capsys: Any) -> None:
    looks = [(1, True), (2, True), (2, False)]
    lines = said(run, looks, ["-f", "-n", "1", "--json"], monkeypatch, capsys)
    assert [json.loads(line)["text"] for line in lines] == ["1-2", "2-0", "2-1", "2-2"]


def test_following_goes_on_with_the_next_attempt(run: Path, monkeypatch: Any, capsys: Any) -> None:
    looks = [(1, True), (1, True), (2, True), (2, False)]
    assert said(run, looks, ["-f", "-n", "1"], monkeypatch, capsys) == ["1-2", "2-0", "2-1", "2-2"]


def test_all_logs_of_all_nodes_are_one_stream(run: Path, monkeypatch: Any, capsys: Any) -> None:
    folder = run / "attempts" / "01"
    (folder / "gpu-n1.jsonl").touch()
    (folder / "out.log").write_text("2026-01-01 08:00:00 a\n2026-01-01 08:00:02 c\n  of c\n")
    (folder / "node-n1.log").write_text("2026-01-01 08:00:01 b\n2026-01-01 08:00:03 d\n")
    words = said(run, [(1, False)], ["--all"], monkeypatch, capsys)
    assert [word for word in words if len(word) == 1] == ["a", "b", "c", "c", "d"]
    assert words[:4] == ["[out]", "2026-01-01", "08:00:00", "a"]
    later = said(run, [(1, False)], ["--all", "--since", "2026-01-01T08:00:02"], monkeypatch, capsys)
    assert [word for word in later if len(word) == 1] == ["c", "c", "d"]
    found = said(run, [(1, False)], ["--all", "--grep", "[bcd]$"], monkeypatch, capsys)
    assert [word for word in found if len(word) == 1] == ["b", "c", "c", "d"]
    assert found[0] == "node-n1.log:1:"
    assert "b" not in said(run, [(1, False)], ["--log", "out"], monkeypatch, capsys)
    assert said(run, [(1, False)], ["--node", "n1", "-n", "1"], monkeypatch, capsys)[-1] == "d"


def test_a_terminal_shows_repeats_as_one_line_unless_raw(run: Path, monkeypatch: Any, capsys: Any) -> None:
    (run / "attempts" / "01" / "out.log").write_text("".join(f"step {9 * number}%|## 9/9 [\n" for number in range(9)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert said(run, [(1, False)], [], monkeypatch, capsys)[-3:] == ["9/9", "[", "[×9]"]
    assert len(said(run, [(1, False)], ["--raw"], monkeypatch, capsys)) == 36


def test_a_bar_without_a_line_end_is_printed_once(run: Path, monkeypatch: Any, capsys: Any) -> None:
    (run / "attempts/01/out.log").write_text("2026-01-01 08:00:00 one\n2026-01-01 08:00:01 50%")
    monkeypatch.setattr(logs, "LIST_EVERY_S", -1.0)
    words = ["-f", "--since", "2026-01-01"]
    out = said(run, [(1, True), (1, True), (1, False)], words, monkeypatch, capsys)
    assert " ".join(out) == "2026-01-01 08:00:00 one 2026-01-01 08:00:01 50%"
