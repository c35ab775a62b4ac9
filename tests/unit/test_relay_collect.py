"""What the relay's ``collect`` costs where there are thousands of files."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest

from rltui.onnode import relay_files


def test_collect_of_thousands_of_files_looks_for_each_folder_once_and_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("a", "b", "c"):
        for name in ("run.json", "attempts/01/job.json", "attempts/02/job.json", "attempts/02/end.json"):
            file = tmp_path / run / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
    (tmp_path / "a-file").write_text("no folder")
    patterns: list[str] = []
    find = glob.glob
    monkeypatch.setattr(relay_files.glob, "glob", lambda pattern: patterns.append(pattern) or find(pattern))
    names = ["*/run.json", *(f"*/attempts/*/{name}.json" for name in ("job", "stage", "end"))]
    whole = relay_files.collect({"root": str(tmp_path), "names": names})
    assert [file["path"] for file in whole["files"]] == [
        *("a/run.json", "b/run.json", "c/run.json"),
        *(f"{run}/attempts/{number}/job.json" for run in "abc" for number in ("01", "02")),
        *(f"{run}/attempts/02/end.json" for run in "abc"),
    ]
    assert len(patterns) == 2
    monkeypatch.setattr(relay_files, "COLLECT_S", -1.0)
    found, first, pieces = [], 0, 0
    while first is not None:
        piece = relay_files.collect({"root": str(tmp_path), "names": names, "first": first})
        found += piece["files"]
        pieces += 1
        first = piece["next"] if piece["truncated"] else None
    assert found == whole["files"]
    assert pieces > len(found)
