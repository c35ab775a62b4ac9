"""One line of a log: made harmless, freed of the prefixes that launchers put before it, and attributed.

Ray, torchrun, srun, MPI, docker and vLLM each put their own prefix on every line of the processes they start, often
several at once. The prefix says who wrote the line; what remains can be compared across systems.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from msgspec import Struct

from rltui.diagnose.json_lines import CONTINUES
from rltui.watch.text import LINE_LIMIT, plain


class Line(Struct, frozen=True):
    """A cleaned line.

    Attributes:
        number: Counted from 1 in its file.
        text: Printable characters only, prefixes removed, leading spaces kept (they show the depth of a traceback).
        level: The level that the line's own logger gave it, in capitals; empty where it gave none.
    """

    number: int
    text: str
    rank: str = ""
    actor: str = ""
    pid: str = ""
    node: str = ""
    time: str = ""
    level: str = ""
    repeated: int = 1

    @property
    def stream(self) -> tuple[str, str, str]:
        """Lines of one stream were written by one process, as far as the prefixes tell."""
        return (self.actor, self.pid, self.rank)


_CARET_ESCAPES = re.compile(
    r"(?:\^\[|#033|\\033|\\x1b|\\e|\\u001b)(?:\[[0-9;?]*[A-Za-z]|\][^\x07]{0,200}?\^G|"
    r"[()][0AB])"
)
_ESCAPE_MARKS = ("^[", "#033", "\\033", "\\x1b", "\\e[", "\\u001b")
_REPEATED = re.compile(r" ?\[repeated (\d{1,7})x across (?:all )?cluster\](?:\s*\(Ray deduplicates.{0,200})?")
_POD_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
"""What Kubernetes makes the ends of pods' names of: no vowels, so that no words come about."""

_ANY_PREFIX = re.compile(
    r"[\[(\d│|A-Z^>]|[A-Za-z][\w.-]{0,60}-\d{1,6}\s{0,20}\||rank|wandb|[a-z][\w.-]{0,60}\d: |"
    rf"[a-z][a-z0-9-]{{0,200}}-{_POD_LETTERS}{{5}} [a-z]"
)

_ACTOR = re.compile(
    r"\((?=[A-Za-z_])(?P<actor>(?!pid=\d)[A-Za-z_][\w.:<>\[\]-]{0,120})?"
    r"(?:,? rank=\d{1,6})?(?:,? ?\bpid=(?P<pid>\d+))?(?:, ip=(?P<node>[\w.:-]+))?(?: \+\w+)?(?:, ip=[\w.:-]+)?\) ?"
)
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"[A-Za-z][\w.-]{0,60}-\d{1,6} {1,20}\| ?",  # docker compose: vllm-1  |
        r"\[?\[?rank ?(?P<rank>\d{1,6})\]?\]? ?: ?",  # torch: [rank0]:
        r"\[default(?P<rank>\d{1,6})\]:",  # torchrun --tee
        r"\[\d+,(?P<rank>\d{1,6})\]<std(?:out|err)>: ?",  # mpirun --tag-output
        # pdsh, by which DeepSpeed starts on several nodes
        r"(?P<node>\d{1,3}(?:\.\d{1,3}){3}|(?!(?:slurmstepd|steps?|epoch|iter|batch|gcc|clang|python)-)"
        r"[a-z][a-z0-9.]*-[a-z0-9.-]*\d): (?=\S|\s+File \")",
        r"\[\d{1,9}\] (?=\[)",  # a line number put there by the tool that copied the log
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<node>[\w.-]+) (?!kernel)[\w./@-]+(?:\[\d+\])?: ",  # journald, syslog
        r"(?P<rank>\d{1,5}): (?=.)",  # srun --label; what follows keeps its indentation
        r"(?P<level>ERROR|WARNING|INFO|DEBUG|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d)"
        r" \[?[\w./]+(?:\.py)?:\d+\](?: |$)",  # vLLM
        r"\[?(?P<time>\d{4}-\d\d-\d\d[T ,_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)\]? ?",
        # torch's own warnings, with its place in the compiler: [0/1]
        r"(?P<warning>W)\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \S{1,200}\.py:\d+\] (?:\[\d+/\d+(?:_\d+)?\] ?)?",
        # loguru, logging with bars, and with the logger's name
        r"[-|] (?:[\w.]+ +[-|] +)?(?P<level>ERROR|WARNING|INFO|DEBUG|CRITICAL) +[-|] (?:[\w.]+ [-|] )?",
        # Airflow, whose level is its own, and what the nodes of Kubernetes write
        r"\[\d{4}-\d\d-\d\d, \d\d:\d\d:\d\d \w{1,5}\] \{\w+\.py:\d+\} [A-Z]+ - ",
        r"std(?:out|err) [FP] ",
        r"(?:E {3}|> )(?=\s*\S)",  # pytest's errors, and quoted lines
        r"\[?(?P<level>ERROR|WARNING|INFO|DEBUG|CRITICAL)\]?:? +(?=\[?\d{4}-)",
        # logging as Python sets it up by itself, and with the place alone
        r"(?P<level>ERROR|WARNING|INFO|DEBUG|CRITICAL):[A-Za-z_][\w.]*:(?=\S)",
        r"\[?(?P<level>ERROR|WARNING|INFO|DEBUG|CRITICAL)\]? \[[\w./]+\.py:\d+(?::\w+)?\](?: |$)",
        r"\[(?:PID:(?P<pid>\d+)|RANK:(?P<rank>\d+))\] ?",
        # pods: kubectl logs --prefix, and stern's pod and container
        r"\[pod/[\w./-]{1,200}\] ",
        rf"[a-z][a-z0-9-]{{0,200}}-{_POD_LETTERS}{{5,10}}-{_POD_LETTERS}{{5}} [a-z][a-z0-9-]{{0,60}} ",
        # pods, and stages of a service
        r"\[[A-Za-z][\w.]{0,60}(?:-[\w.]{1,60}){0,6}-\d{1,6}\] (?=\S|\s+File \")",
    )
)
LONGEST_PREFIX = 120
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|[DIWEF]"
_NUMBERS_OR_LEVELS = re.compile(
    rf"(?P<number>\d+|(?<![A-Za-z])[\da-f]{{8,}})|\b(?:{_LEVELS})(?![A-Za-z])", re.IGNORECASE
)
_NUMBER, _LEVEL = "\0", "\1"
"""What stands for any of them where beginnings of lines are compared."""

_ANY_NUMBER, _ANY_LEVEL = r"(?:\d+|[\da-f]{8,})", rf"(?:{_LEVELS})"
_HEAD = re.compile(rf"(?:[^{_NUMBER}]*{_NUMBER}|\w+\W*?{_LEVEL}|{_LEVEL}\W*?\w+)(?:.*[^\w\s{_NUMBER}{_LEVEL}(\[])? ?")
_SAYS_WHO = re.compile(r"\[?\[rank|\([\w.:]* ?pid=")
FEWEST_LINES_OF_HEAD = 20
SHARE_OF_HEAD = 0.9
"""How many lines are enough, and which share of them has to begin alike: a program's own logger writes fewer."""

FRAME_BEGINS = '  File "'
_BOX = re.compile(r"[│|┃] ?(.*?)\s*[│|┃]?$")
_MOST_PREFIXES = 6


_DATA = re.compile(
    r"\W{0,6}(?:(?:sample|example|item|step|rollout) ?#?\d*\W{1,4})?(?:"
    r"(?:the |raw |full |final )?(?:(?:user |system |decoded )?prompts?|question|problem|instruction|completions?|"
    r"ground[_ ]truth|"
    r"reference answer|(?:model|generated|sampled|decoded)[ _](?:response|output|text|answer)s?|assistant|"
    r"predicted answer|(?:tool|code|program|interpreter|execution)[ _](?:calls?|responses?|outputs?|results?|stdout|"
    r"stderr)|observation)"
    r"['\"]?\s?[:=] |\[(?:prompt|response|ground_truth|input|output|answer|question|solution)\] )",
    re.IGNORECASE,
)


_MARKUP = re.compile(
    r"<\|(?:im_start|im_end|eot_id|endoftext|start_header_id|user|assistant)\|>|</?(?:think|answer|tool_call)>|"
    r"\"role\": ?\"(?:user|assistant|system|tool)\"|"
    r"\b(?:Finish|First) rollout(?: sample)?: \["  # slime prints whole samples
)

_QUOTES = re.compile(r"\s*(?:\w+\.)*\w+(?:Error|Exception): ")
"""What refuses a word of a prompt quotes it."""

# What a sandbox answers: how the program of a sample ended.
_END_OF_PROGRAM = re.compile(r"['\"](?:return|exit)_?code['\"]: ?")
_OUTPUT_OF_PROGRAM = re.compile(r"['\"]std(?:err|out)['\"]: ?['\"]")


_COUNTED = re.compile(
    r"\b\d+ ?(?:/|of|out of) ?\d+ (?:rollouts?|samples?|requests?|episodes?|trajectories|groups?|tasks?|examples?)\b"
    r".{0,20}\b(?:error|fail|timed)",
    re.IGNORECASE,
)
"""A share of the rollouts that went wrong: the run counts them and goes on."""


def shows_data(text: str) -> bool:
    """Whether the line shows a prompt, an answer, a program's end or counted failures: they say nothing of the run."""
    if _COUNTED.search(text) is not None:
        return True
    if _DATA.match(text) is not None or (_MARKUP.search(text) is not None and _QUOTES.match(text) is None):
        return True
    return _OUTPUT_OF_PROGRAM.search(text) is not None and _END_OF_PROGRAM.search(text) is not None


def clean(raw: bytes, number: int, learned: Sequence[re.Pattern[str]] = ()) -> Line:
    """Return the line ``raw`` (without its end) cleaned and attributed; what is over ``LINE_LIMIT`` is cut.

    Of a progress bar, which returns to the line's start again and again, the last state counts.

    Args:
        raw: The line.
        number: Counted from 1 in its file.
        learned: Prefixes that ``learned_prefix`` and ``shared_head`` found in the same file.
    """
    raw = raw.removeprefix(CONTINUES)
    if b"\r" in raw:
        raw = next((state for state in reversed(raw.split(b"\r")) if state.strip()), b"")
    text = plain(raw[: 4 * LINE_LIMIT].decode("utf-8", "replace"))[:LINE_LIMIT]
    if any(mark in text for mark in _ESCAPE_MARKS):
        text = _CARET_ESCAPES.sub("", text)
    fields: dict[str, str] = {}
    repeated = 1
    if "across" in text and (match := _REPEATED.search(text)):
        repeated = int(match[1])
        text = text[: match.start()] + text[match.end() :]
    if _ANY_PREFIX.match(text.lstrip()):
        text = _without_prefixes(text, fields)
    for prefix in learned:
        match = prefix.match(text)
        if match is not None:
            # what a service calls all that it passes on (INFO, ERROR) says nothing; a warning is the program's own word
            _keep(fields, {"warning": match.groupdict().get("warning")})
            text = _without_prefixes(text[match.end() :], fields)
    return Line(number, text, repeated=repeated, **fields)


def learned_prefix(frame: str, following: str) -> re.Pattern[str] | None:
    """Return what stands before a traceback's frame and the line of code after it: a prefix of this file's lines.

    Schedulers, services and loggers put before each line what no list of prefixes can hold, and a traceback's blanks
    tell where a line begins. None where nothing but blanks stands before the frame, or the next line begins otherwise.

    Args:
        frame: A cleaned line with a frame.
        following: The one after it, cleaned.
    """
    before = frame.partition(FRAME_BEGINS)[0]
    if not before.strip() or len(before) > LONGEST_PREFIX:
        return None
    shape = _NUMBERS_OR_LEVELS.sub(lambda found: _NUMBER if found["number"] else _LEVEL, re.escape(before))
    prefix = re.compile(_any_such(shape), re.IGNORECASE)
    match = prefix.match(following)
    return prefix if match is not None and following[match.end() :].startswith(("    ", FRAME_BEGINS)) else None


def shared_head(texts: Iterable[str], n_texts: int, telling: Set[bytes]) -> re.Pattern[str] | None:
    """Return how nearly all of the lines begin, numbers and levels aside: what a service or collector put there.

    A message that is repeated begins alike too, so what follows has to differ. A number (a time, a process) has
    to be in it, or a level with a name, as the name alone of who speaks may be what tells the cause. It ends
    before ranks and actors.

    Args:
        texts: Cleaned lines from all over a part of the log; no more are asked for once too many begin otherwise.
        n_texts: How many there are.
        telling: Words in lower case that no such head may hold, as causes are known by them.
    """
    seen: list[str] = []
    firsts: Counter[str] = Counter()
    alike = 0
    for n_left, text in zip(reversed(range(n_texts)), texts, strict=True):
        if not text.strip():
            continue
        seen.append(text)
        firsts[first := _first(text)] += 1
        alike = max(alike, firsts[first])
        if alike + n_left < SHARE_OF_HEAD * (len(seen) + n_left):
            return None
    if len(seen) < FEWEST_LINES_OF_HEAD:
        return None
    shapes = sorted(map(_shape, seen))
    most = math.ceil(SHARE_OF_HEAD * len(shapes))
    pairs = zip(shapes, shapes[most - 1 :], strict=False)
    head = _HEAD.match(_SAYS_WHO.split(max(map(os.path.commonprefix, pairs), key=len))[0])
    if head is None or not telling.isdisjoint(re.findall(rb"[a-z]+", head[0].lower().encode())):
        return None
    escaped = _any_such(re.escape(head[0]).replace(r"\ ", " +"))
    end = r"(?!\w) ?" if head[0].endswith(_NUMBER) else " ?"
    prefix = re.compile(escaped.removesuffix(" +") + end, re.IGNORECASE)
    rests = {_shape(text[match.end() :]) for text in seen if (match := prefix.match(text))}
    return prefix if len(rests) >= FEWEST_LINES_OF_HEAD // 2 else None


def _first(text: str) -> str:
    """Return the first character of the line's shape."""
    found = _NUMBERS_OR_LEVELS.match(text)
    if found is None:
        return text[0]
    return _NUMBER if found["number"] else _LEVEL


def _shape(text: str) -> str:
    """Return the line's beginning with what any number or level is replaced by, and no blanks for mere alignment."""
    marked = _NUMBERS_OR_LEVELS.sub(lambda found: _NUMBER if found["number"] else _LEVEL, text[:LONGEST_PREFIX])
    return re.sub(" +", " ", marked)


def _any_such(shape: str) -> str:
    """Return the pattern for beginnings of that shape, whatever their numbers and levels; a warning is named."""
    named = rf"(?:(?P<warning>W(?:ARN(?:ING)?)?)(?![A-Za-z])|{_ANY_LEVEL})"
    return shape.replace(_NUMBER, _ANY_NUMBER).replace(_LEVEL, named, 1).replace(_LEVEL, _ANY_LEVEL)


def _without_prefixes(text: str, fields: dict[str, str]) -> str:
    for _ in range(_MOST_PREFIXES):
        shorter = _one_prefix_less(text, fields)
        if shorter is None:
            break
        text = shorter
    return text


def _one_prefix_less(text: str, fields: dict[str, str]) -> str | None:
    start = text.lstrip()
    first = start[:1]
    # a bar alone is the box of a group of exceptions, several are a table
    if first in "│┃" or (first == "|" and "|" not in start[1:]):
        match = _BOX.match(start)
        return match[1] if match else None
    if first == "(":
        match = _ACTOR.match(start)
        if match is None or not (match["pid"] or match["actor"] in ("raylet", "gcs_server", "autoscaler", "scheduler")):
            return None
        _keep(fields, match.groupdict())
        return start[match.end() :]
    for prefix in _PREFIXES:
        match = prefix.match(start)
        if match is not None:
            _keep(fields, match.groupdict())
            return start[match.end() :]
    return None


def _keep(fields: dict[str, str], found: dict[str, str | None]) -> None:
    # the outermost prefix knows best: a time inside the text is of something else
    for name, value in found.items():
        if value:
            fields.setdefault(*(("level", "WARNING") if name == "warning" else (name, value)))
