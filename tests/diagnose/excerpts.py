"""Excerpts of logs from the text files beside this one: ``@@ class`` begins each."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def excerpts(name: str) -> list[tuple[str, str]]:
    """Return (class, text) of every excerpt in the file ``name``."""
    found: list[tuple[str, list[str]]] = []
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("@@ "):
            found.append((line[3:].strip(), []))
        elif found:
            found[-1][1].append(line)
    return [(cause, "\n".join(lines)) for cause, lines in found]
