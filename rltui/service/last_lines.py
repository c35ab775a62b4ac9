"""The last words of every process in a log."""

from __future__ import annotations

from rltui.diagnose.lines import Line, clean

MOST_STREAMS = 500


def last_lines(text: str) -> str:
    """The last line that each rank, actor or other writer of a log wrote, one a line, the newest last."""
    newest: dict[tuple[str, str, str], Line] = {}
    for number, raw in enumerate(text.encode("utf-8", "replace").split(b"\n"), 1):
        line = clean(raw, number)
        if line.text.strip():
            newest.pop(line.stream, None)
            newest[line.stream] = line
    return "".join(f"{_writer(line)}: {line.text}\n" for line in list(newest.values())[-MOST_STREAMS:])


def _writer(line: Line) -> str:
    words = (line.actor, line.pid and f"pid {line.pid}", line.rank and f"rank {line.rank}", line.node)
    return " ".join(word for word in words if word) or "the program itself"
