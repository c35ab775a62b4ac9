"""Python tracebacks as frames: where an error happened decides what it means.

Understood are plain tracebacks, those of rich (whose boxes wrap long paths over two lines), Ray's
``ray::Class.method()`` lines, which stand for the remote part of a call, and tracebacks of several processes whose
lines are interleaved.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.diagnose.context import Context
    from rltui.diagnose.lines import Line

MOST_FRAME_LINES = 240
MOST_LINES_TO_FRAME = 12
"""Lines of message and source code between an error and the innermost frame."""

MOST_STRANGERS = 3
"""Lines in a row that belong to no traceback, after which it is taken to be over."""


LOADS_WEIGHTS = re.compile(r"\b(?:weight_loader|load_weights?)\b")
"""What an inference engine calls to take a checkpoint's tensors."""


class Frame(Struct, frozen=True):
    """One frame: path, function, and the source line where it was printed."""

    path: str
    function: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.path} {self.function} {self.code}"


_PLAIN = re.compile(r'File "(?P<path>[^"]{1,500})", line \d+(?:, in (?P<function>\S.{0,200}))?')
_RICH = re.compile(r"^(?P<path>\S{0,500}\.py):\d+ in (?P<function>\S{1,200})")
_REMOTE = re.compile(r"\b(?P<path>ray::[\w.]+?)\.?(?P<function>\w+)\(\)")
_LOOSE = re.compile(
    r"\.py(?::|\()\d+|(?:->|=>|[→➜↳»]) ?\S|^\s*(?:return|self\.)\b.*\(|^\s*\w[\w., ]* = [\w.]+\(|^\s+\w[\w.]*\(.*\)$|"
    r"❱ *\d+ [│|]"  # rich marks the line of code that failed
)
_ADVICE = re.compile(r"If reserved |See documentation|GPU \d+ has a total|\(GPU \d+;")
_PART_OF_TRACEBACK = re.compile(
    r"\s|[\^~]+$|$|ray::|❱|Traceback|During handling|The above exception|[╭╰]|--+>|\d+ [│|]|.{0,400}\.py:\d+ in |"
    r"Exception raised from"
)


def frames_of(context: Context) -> tuple[Frame, ...]:
    """Return the frames of the traceback that ends (or, where the error is quoted first, begins) at ``context``.

    The innermost frame is the last one.
    """
    lines = _traceback_lines(context)
    if lines:
        return _parse(list(reversed(lines)))
    return _parse([line for line in context.after(60) if _same_stream(line, context.line)])


def loose_frames_of(context: Context) -> tuple[Frame, ...]:
    """Return what stands for frames where there is no traceback, or none that says anything, outermost first.

    Some write a call path in one line (``a.py:7 → step → adamw``), some name the function in the error's own line, and
    some quote the lines of code without paths.
    """
    near = [*reversed(list(context.before(MOST_LINES_TO_FRAME))), *context.after(MOST_LINES_TO_FRAME)]
    texts = [line.text for line in near if _same_stream(line, context.line) and _LOOSE.search(line.text)]
    own = _ADVICE.split(context.line.text)[0]
    return tuple(Frame(text.strip(), "") for text in (*texts, own))


def _traceback_lines(context: Context) -> list[Line]:
    """Lines of the same process that end in this one, nearest first; empty where none of them is a frame."""
    taken: list[Line] = []
    strangers, any_frame = 0, False
    speaker = context.line
    for line in context.before(MOST_FRAME_LINES):
        if not taken and not any(speaker.stream):
            speaker = line  # native code writes without prefix, right after the lines of its process
        if not _same_stream(line, speaker):
            continue
        is_frame = bool(_PLAIN.search(line.text) or _RICH.match(line.text) or _REMOTE.search(line.text))
        if is_frame or _PART_OF_TRACEBACK.match(line.text):
            strangers = 0
        else:
            strangers += 1
            if strangers > MOST_STRANGERS:
                break
        any_frame = any_frame or is_frame
        taken.append(line)
        if not any_frame and len(taken) > MOST_LINES_TO_FRAME:
            break
        if any_frame and line.text.startswith("Traceback (most recent call last)"):
            break
    return taken if any_frame else []


def _parse(lines: list[Line]) -> tuple[Frame, ...]:
    found: list[Frame] = []
    for index, line in enumerate(lines):
        text = line.text.strip()
        match = _PLAIN.search(text) or _RICH.match(text) or _REMOTE.search(text)
        if match is None:
            continue
        path = match["path"]
        if text.startswith(path) and "/" not in path and index:
            path = lines[index - 1].text.strip() + path  # rich wrapped the path
        code = lines[index + 1].text.strip() if index + 1 < len(lines) else ""
        if _PLAIN.search(code) or _RICH.match(code):
            code = ""
        found.append(Frame(path, match["function"] or "", code))
    return tuple(found)


def _same_stream(line: Line, other: Line) -> bool:
    if line.stream == other.stream:
        return True
    if line.pid and line.pid == other.pid and line.actor == other.actor:
        return not (line.rank and other.rank)  # Ray's prefix is on every line, torch's rank on some
    # a process's own output often has the prefix on some lines only (native code writes without it)
    return line.pid == other.pid and line.rank == other.rank and not (line.actor and other.actor)
