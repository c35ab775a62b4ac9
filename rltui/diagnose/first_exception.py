"""The first exception of a log that no rule knows: with its own frames, without what passes it on.

Ray, torchrun, engines and launchers wrap the exception of a process into one of their own; what helps a reader is
the one inside, from the process that raised first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.diagnose.wording import Hit, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rltui.diagnose.matches import Match, Matches

STATE = "traceback"

MOST_TRACEBACK_LINES = 200
MOST_FRAMES = 3
RESERVED_LINES = 190_000
"""Of the lines that may be read around others, so many are left to causes: only the first tracebacks matter here."""

_EXCEPTION = re.compile(r"(?:(?:\w+\.)+[A-Z]\w*|[A-Z]\w*(?:Error|Exception|Failure|Timeout|Empty|Full))(?::|$)")
_WRAPPERS = re.compile(
    r"(?:\w+\.)*(?:RayTaskError|RayActorError|ActorDiedError|WorkerCrashedError|ChildFailedError|CalledProcessError|"
    r"\w*EngineDeadError|ProcessRaisedException|ProcessExitedException|SystemExit|KeyboardInterrupt|\w*Warning)\b"
)
_PASSED_ON = re.compile(r"(?i)engine core initialization failed|worker failed with error|died unexpectedly")
_FRAME = re.compile(r'\s*File "(?P<path>[^"]{1,500})", line (?P<line>\d+), in (?P<function>\S.{0,100})')
_OF_OTHERS = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen |ray/_private/")


def read_traceback(hit: Hit) -> Reading | None:
    """Find the exception that ends the traceback; of a wrapped one, the first that wraps nothing."""
    context = hit.context
    ignored = any(line.text.startswith("Exception ignored") for line in context.before(1))
    if ignored or context.budget.lines < RESERVED_LINES:
        return None
    frames: list[str] = []
    for line in context.after(MOST_TRACEBACK_LINES):
        if line.stream != context.line.stream:
            continue
        frame = _FRAME.match(line.text)
        if frame is not None:
            frames.append(f"{frame['path']}:{frame['line']} in {frame['function']}")
        match = _EXCEPTION.match(line.text)
        if match is None or _WRAPPERS.match(line.text) or _PASSED_ON.search(line.text):
            continue
        fields = {"exception": line.text.strip(), "line": str(line.number), "frames": "\n".join(_own(frames))}
        return Reading(0.3, fields=fields)
    return None


def _own(frames: Sequence[str]) -> list[str]:
    """The innermost frames, those of installed libraries only where there are no others."""
    own = [frame for frame in frames if not _OF_OTHERS.search(frame)]
    return list((own or frames)[-MOST_FRAMES:])


def first_exception(matches: Matches) -> Match | None:
    """Return the match of the first traceback; its fields are ``exception``, ``line`` and ``frames``."""
    return next(iter(matches.of(STATE)), None)


def as_json(match: Match) -> dict[str, object]:
    """The JSON form: what the exception says, where, and its frames, innermost last."""
    fields, evidence = match.fields, match.evidence
    place = {"file": evidence.file, "line": int(fields["line"]) if evidence.line else 0, "text": fields["exception"]}
    known = {name: getattr(evidence, name) for name in ("rank", "actor", "pid", "node")}
    return {**place, **{name: value for name, value in known.items() if value}, "frames": fields["frames"].splitlines()}


def in_words(match: Match) -> Iterator[str]:
    """Yield the lines for people: where the exception stands, whose it is, what it says, and its frames."""
    evidence = match.evidence
    named = {"rank": evidence.rank, "actor": evidence.actor, "pid": evidence.pid, "on": evidence.node}
    whose = ", ".join(f"{name} {value}" for name, value in named.items() if value)
    where = f"{evidence.file}:{match.fields['line']}" if evidence.line else evidence.file
    yield f"The first exception is at {where}{f' ({whose})' if whose else ''}:"
    yield f"    {match.fields['exception']}"
    yield from (f"      {frame}" for frame in match.fields["frames"].splitlines())
