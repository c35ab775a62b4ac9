"""The first exception of a log that no rule knows: with its own frames, without what passes it on.

Ray, torchrun, engines and launchers wrap the exception of a process into one of their own; what helps a reader is
the one inside, from the process that raised first, and which part of the run it was raised in.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.diagnose.progress import GOES_ON
from rltui.diagnose.raised_in import PARTS, part_of
from rltui.diagnose.wording import Hit, Reading, Wording

if TYPE_CHECKING:
    from rltui.diagnose.lines import Line
    from rltui.diagnose.matches import Match, Matches

STATE = "traceback"

MOST_TRACEBACK_LINES = 200
MOST_FRAMES = 3
MOST_FRAMES_TOLD = 40
MOST_LINES_ABOVE = 40
MOST_LINES_BELOW = 40
MOST_LINES_OF_ONE = 3
MOST_BLANKS = 8
"""Before an exception that stands alone: what quotes it moves it in."""

RESERVED_LINES = 190_000
"""Of the lines that may be read around others, so many are left to causes: only the first tracebacks matter here."""

_EXCEPTION = re.compile(
    r"(?:(?:\w+\.)+[A-Z]\w*|[A-Z]\w*(?:Error|Exception|Failure|Timeout|Empty|Full)|Exception)(?::|$)"
)
_NAMED_AS_MEANT = re.compile(r"(?:(?:\w+|<locals>)\.)*(?=\w*[a-z])[A-Z]\w*[A-Z]\w*(?:: \S|:?$)")
"""An exception below its frames may be called whatever its author liked, and one of the program's own has no module."""

_WRAPPERS = re.compile(
    r"(?:\w+\.)*(?:RayTaskError|RayActorError|ActorDiedError|WorkerCrashedError|ChildFailedError|CalledProcessError|"
    r"\w*EngineDeadError|ProcessRaisedException|ProcessExitedException|(?:Base)?ExceptionGroup|RetryError|SystemExit|"
    r"KeyboardInterrupt|\w*Warning)\b"
)
_CARRIES = re.compile(r"\s*(?:ray\.exceptions\.)?RayTaskError\(\w+\): ")
"""How Ray begins what another process raised, whose frames come below it."""

_PASSED_ON = re.compile(r"(?i)engine core initialization failed|died unexpectedly")
_QUOTED = re.compile(r"(?<=: )Worker failed with error ['\"](.{1,300}?)['\"], please check.*")
"""The engine passes on what a worker of it raised, in the worker's words but as an exception of its own."""

_ENDS = re.compile(
    r"(?i)shut|exit|terminat|clean|kill|stop|abort|destroy|close|closing|summary|sync|wandb|nccl|fail|error|exception|dead|die|"
    r"signal|unhandled|cancel|traceback|core dump|retr(?:y|ies)|teardown|finali|release|disconnect"
)
_SEEN_TO_END = re.compile(
    r"closing signal SIG|\(exitcode: -?[1-9]|ChildFailedError|[Ee]xited with exit code [1-9]|return code = -?[1-9]"
)
"""What launchers say as soon as one of their processes has failed."""

_EXCUSED = re.compile(
    r"(?i)\boptional\b|(?<!exception )\bignor(?:ed|ing)\b|\bskipp(?:ed|ing)\b|fall(?:ing)? ?back|will not be enabled"
)
_EXCUSED_ITSELF = re.compile(r"(?i)(?<!exception )\bignor(?:ed|ing)\b|\bskipp(?:ed|ing)\b|falls? back|falling back")
"""The same in the exception's own words: what it calls optional, or a fallback, may be what it lacks."""

_AT_THE_END = re.compile(
    r"multiprocessing/(?:queues|util|resource_tracker)\.py:\d+ in (?:_feed|_run_finalizers)|in __del__$"
)
"""Frames of what Python clears away after a program: nothing waits for it."""

_OF_LOGGERS = re.compile(r"/(?:comet_ml|neptune|clearml|swanlab)/")
"""Who sends metrics away, in threads of its own: where its frame is the outermost, the program does not wait for it."""

_PROBES = re.compile(r" in _?(?:is|has|can|check|try)_\w*(?:available|installed|importable|usable)$")
"""Functions that ask whether something is there: a traceback that begins in one was caught in it, and is a no."""

_ORDINARY_LEVELS = ("INFO", "DEBUG", "WARNING")
_FRAME = re.compile(r'\s*File "(?P<path>[^"]{1,500})", line (?P<line>\d+), in (?P<function>\S.{0,100})')
_RICH_FRAME = re.compile(r"(?P<path>\S{0,500}\.py):(?P<line>\d+) in (?P<function>\S{1,100})")
_CODE = re.compile(r"(?:\s+|❱ *\d+ [│|\s]+)(?!File \"|[\^~\s]*$|\.\.\.|raise\b|\d+ +[│|]|❱)(?P<code>\S.*)")
_OF_OTHERS = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<frozen |ray/_private/")


def read_traceback(hit: Hit) -> Reading | None:
    """Find the exception that ends the traceback; of a wrapped one, the first that wraps nothing."""
    context = hit.context
    ignored = any(
        line.text.startswith("Exception ignored") and line.stream == context.line.stream for line in context.before(1)
    )
    if ignored or context.budget.lines < RESERVED_LINES:
        return None
    above: list[Line] = []
    depth = outer = 0
    lines = context.after(MOST_TRACEBACK_LINES)
    for line in lines:
        if line.stream != context.line.stream:
            continue
        depth = _depth(line.text) if _FRAME.match(line.text) else depth
        is_below_frames = bool(above) and 0 < depth <= _depth(above[-1].text)
        if _is_own_exception(line.text, depth, is_below_frames=is_below_frames):
            return _reading(line, above, lines, line.number - context.line.number, outer)
        if _CARRIES.match(line.text):
            outer = len(above)  # so far those of who waited for it; below are its own
        above.append(line)
    return None


def read_bare_exception(hit: Hit) -> Reading | None:
    """Find the frames above an exception whose traceback has no first line, as some loggers and wrappers print it."""
    context = hit.context
    if context.budget.lines < RESERVED_LINES or not _is_own_exception(context.line.text.lstrip()):
        return None
    above: list[Line] = []
    for line in context.before(MOST_LINES_ABOVE):
        if line.stream != context.line.stream:
            continue
        if line.text.startswith("Traceback"):
            return None  # read from there
        if _EXCEPTION.match(line.text):
            break
        above.append(line)
    depth = next((_depth(line.text) for line in above if _FRAME.match(line.text)), MOST_BLANKS + 1)
    if not _is_own_exception(context.line.text, depth):
        return None
    return _reading(context.line, above[::-1], context.after(MOST_LINES_BELOW))


def read_carried_exception(hit: Hit) -> Reading | None:
    """Ray names the class of what it carries: all there is where the log ends before the exception's own line."""
    context = hit.context
    if context.budget.lines < RESERVED_LINES:
        return None
    below = list(context.after(MOST_TRACEBACK_LINES))
    if any(_EXCEPTION.match(line.text) for line in below):
        return None
    reading = _reading(structs.replace(context.line, text=hit.groups["kind"]), below, ())
    return structs.replace(reading, fields={**reading.fields, "carried": "yes"})


def _frames(lines: Sequence[Line]) -> list[str]:
    """Frames as Python prints them, and as rich does in its boxes, where a long path begins on the line before."""
    found: list[str] = []
    before = ""
    for line in lines:
        text = line.text.strip()
        frame = _FRAME.match(line.text) or _RICH_FRAME.match(text)
        if frame is not None:
            start = before if frame.re is _RICH_FRAME and before.startswith("/") and " " not in before else ""
            found.append(f"{start}{frame['path']}:{frame['line']} in {frame['function']}")
        before = text
    return found


def read_native_exception(hit: Hit) -> Reading | None:
    """What the runtime of C++ says of an exception that nothing caught: its class, and below it its words."""
    context = hit.context
    if context.budget.lines < RESERVED_LINES:
        return None
    below = [line for line in context.after(MOST_LINES_OF_ONE) if line.stream == context.line.stream]
    said = next((line for line in below if "what():" in line.text), None)
    if said is None:
        reading = _reading(structs.replace(context.line, text=hit.groups["kind"]), (), ())
        return structs.replace(reading, fields={**reading.fields, "native": "yes", "signal": "SIGABRT"})
    text = f"{hit.groups['kind']}: {said.text.split('what():', 1)[1].strip()}"
    return _reading(structs.replace(said, text=text), (), (), said.number - context.line.number)


def read_debugger_exception(hit: Hit) -> Reading | None:
    """What an editor's debugger says of an exception: its class, then its words, then its frames, innermost first."""
    context = hit.context
    if context.budget.lines < RESERVED_LINES:
        return None
    below = list(context.after(MOST_LINES_BELOW))
    said = next((line for line in below if line.text.strip()), None)
    if said is None:
        return None
    words = "" if _FRAME.match(said.text) else said.text.strip()
    text = f"{hit.groups['kind']}: {words}".rstrip(": ")
    return _reading(structs.replace(said, text=text), below[::-1], (), said.number - context.line.number)


def _is_own_exception(text: str, depth: int = 1, *, is_below_frames: bool = False) -> bool:
    """Whether the line is an exception that passes on no other one.

    Args:
        text: The line; some launchers put blanks before all of a traceback.
        depth: Blanks before its frames: the exception has fewer.
        is_below_frames: Whether the line before is the last one of a frame.
    """
    if _depth(text) >= max(depth, 1):
        return False
    text = text.lstrip()
    is_one = _EXCEPTION.match(text) or (is_below_frames and _NAMED_AS_MEANT.match(text))
    return bool(is_one) and not _WRAPPERS.match(text) and not _PASSED_ON.search(text)


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip())


def _reading(line: Line, above: Sequence[Line], after: Iterable[Line], lower: int = 0, outer: int = 0) -> Reading:
    """What is told of the exception in ``line``; one after which the process goes on did not end the run.

    Args:
        line: The line with the exception.
        above: The lines of its traceback, outermost frame first.
        after: The lines below.
        lower: How many lines it stands below the one that was found.
        outer: How many of the lines above are of another process, to which it was carried.
    """
    shown = _frames(above)
    frames = _frames(above[outer:]) or shown
    below = [later for later, _ in zip(after, range(MOST_LINES_BELOW), strict=False)]
    text, quoted = _QUOTED.subn(r"\1", line.text.strip())
    if text.endswith(":"):  # what it says begins in the next line
        text = f"{text} {next((later.text.strip() for later in below if later.text.strip()), '')}".strip()
    fields = {
        "exception": text,
        "line": str(line.number),
        "lower": str(lower),
        "frames": "\n".join(_own(shown)),
        "trace": "\n".join(frames[-MOST_FRAMES_TOLD:]),
        "code": next((code["code"] for one in reversed(above) if (code := _CODE.match(one.text))), "").strip(),
        "part": part_of(frames, text),
        **({"quoted": "yes"} if quoted else {}),
        **_survival(line, above, frames, below),
    }
    return Reading(0.3, fields=fields)


def _survival(line: Line, above: Sequence[Line], frames: Sequence[str], below: Sequence[Line]) -> dict[str, str]:
    """The field ``survived``, where the program went on: ``said`` if it says that it does without what failed.

    Who logs an exception as a warning has caught it, and goes on. Who calls its frames information, line by line,
    passes on what another process printed.
    """
    passed_on = any(one.level in ("INFO", "DEBUG") and _FRAME.match(one.text) for one in above)
    is_excused = (
        _EXCUSED_ITSELF.search(line.text) is not None
        or any(_EXCUSED.search(one.text) for one in below[:2] if one.stream == line.stream)
        or (bool(frames) and _PROBES.search(frames[0]) is not None)
    )
    if (line.level in _ORDINARY_LEVELS and not passed_on) or is_excused:
        return {"survived": "said"}
    is_aside = any(_AT_THE_END.search(frame) for frame in frames)
    is_aside = is_aside or (bool(frames) and _OF_LOGGERS.search(frames[0]) is not None)
    # without prefixes it may be another process that goes on
    near = below if any(line.stream) else below[:MOST_LINES_OF_ONE]
    others_go_on = any(GOES_ON.search(one.text) for one in below)
    is_usual = not passed_on and any(_is_usual(line, one) for one in near)
    goes_on = (others_go_on and not _is_seen_to_end(line, below)) or is_usual
    return {"survived": "yes"} if is_aside or goes_on else {}


def _is_seen_to_end(line: Line, below: Sequence[Line]) -> bool:
    """Whether a launcher saw a process fail before anything else was raised: then only other ranks made a step."""
    for later in below:
        if _SEEN_TO_END.search(later.text):
            return True
        if _is_own_exception(later.text) and later.text.strip() != line.text.strip():
            return False
    return False


def _is_usual(line: Line, later: Line) -> bool:
    """Whether ``later`` shows the process of ``line`` at its usual work."""
    is_usual = later.level in _ORDINARY_LEVELS or re.match(r"\W*(?:INFO|DEBUG)\b|\[.{1,40}\] \[INFO\]", later.text)
    return bool(is_usual) and later.stream == line.stream and not _ENDS.search(later.text)


_OTHER_NAMES = (
    "BackendCompilerFailed", "ConnectTimeout", "OutOfResources", "ReadTimeout", "RemoteDisconnected", "StopIteration",
)  # fmt: skip
"""Exceptions whose names do not say what they are: these too are looked for without the first line of a traceback."""

WORDINGS = (
    Wording(anchor="traceback (most recent call last)", check=read_traceback),
    Wording(
        anchor="",
        words=("error", "exception", *map(str.lower, _OTHER_NAMES)),
        pattern=rf"^ {{0,{MOST_BLANKS}}}(?:\w+\.)*(?:(?:[A-Z]\w*)?(?:Error|Exception)|{'|'.join(_OTHER_NAMES)})(?::|$)",
        check=read_bare_exception,
    ),
    Wording(
        anchor="terminate called after throwing",
        pattern=r"terminate called after throwing an instance of ['‘](?P<kind>[^'’]{1,200})['’]",
        check=read_native_exception,
    ),
    Wording(
        anchor="exception has occurred: ",
        pattern=r"Exception has occurred: (?P<kind>(?:\w+\.)*[A-Z]\w*)",
        check=read_debugger_exception,
    ),
    Wording(anchor="raytaskerror(", pattern=r"RayTaskError\((?P<kind>\w+)\)", check=read_carried_exception),
    # libraries keep their own exceptions in a module of that name
    Wording(
        anchor="",
        words=("exc", "exception", "exceptions", "error", "errors"),
        pattern=r"^(?:\w+\.)+(?:\w+_)?(?:exc|exceptions?|errors?)\.[A-Z]\w*(?::|$)",
        check=read_bare_exception,
    ),
)


def _own(frames: Sequence[str]) -> list[str]:
    """The innermost frames outside of installed libraries, and the one that raised, wherever it is."""
    own = [frame for frame in frames if not _OF_OTHERS.search(frame)]
    above = [frame for frame in own if frame is not frames[-1]]
    return [*(above if own else frames[:-1])[1 - MOST_FRAMES :], *frames[-1:]]


def exception_order(match: Match) -> int:
    """Position of the exception's own line among all lines; the match stands at the first line of its traceback."""
    return match.order + int(match.fields["lower"])


def first_exception(matches: Matches) -> Match | None:
    """Return the match of the first exception that the run did not survive; one with frames before one without.

    Its fields are ``exception``, ``line``, ``frames`` (those to show), ``trace`` (all), ``code`` (the source
    line of the innermost) and ``part``, a key of ``PARTS``.
    """
    found = matches.of(STATE)
    fatal = [match for match in found if "survived" not in match.fields]
    fatal = fatal or [match for match in found if match.fields["survived"] != "said"]
    return next((match for match in fatal if match.fields["frames"]), next(iter(fatal), None))


def as_json(match: Match) -> dict[str, object]:
    """The JSON form: what the exception says, where, its frames, innermost last, the part of the run, a next step."""
    fields, evidence = match.fields, match.evidence
    place = {"file": evidence.file, "line": int(fields["line"]) if evidence.line else 0, "text": fields["exception"]}
    known = {name: getattr(evidence, name) for name in ("rank", "actor", "pid", "node")}
    part = {
        "frames": fields["frames"].splitlines(),
        "part": fields["part"],
        "next_step": PARTS[fields["part"]].next_step,
    }
    return {**place, **{name: value for name, value in known.items() if value}, **part}


def in_words(match: Match, *, advised: bool = False) -> Iterator[str]:
    """Yield the lines for people: where the exception stands, whose it is, what it says, its frames, a next step.

    Args:
        match: What ``first_exception`` returned.
        advised: Whether a diagnosis has told already which part raised it and what to do first.
    """
    evidence = match.evidence
    named = {"rank": evidence.rank, "actor": evidence.actor, "pid": evidence.pid, "on": evidence.node}
    whose = ", ".join(f"{name} {value}" for name, value in named.items() if value)
    where = f"{evidence.file}:{match.fields['line']}" if evidence.line else evidence.file
    yield f"The first exception is at {where}{f' ({whose})' if whose else ''}:"
    yield f"    {match.fields['exception']}"
    yield from (f"      {frame}" for frame in match.fields["frames"].splitlines())
    if advised:
        return
    part = PARTS[match.fields["part"]]
    yield from textwrap.wrap(f"It was raised in {part.title}. {part.next_step}", 80, break_on_hyphens=False)
