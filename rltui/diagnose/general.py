"""What kind of error the first exception is, where no wording knows it: by its class, its words and its frames.

The table in ``kinds.py`` gives the cause that is meant; what is in no row is an error of the program itself, told with
the part of the run in which it was raised.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.diagnose.first_exception import STATE, exception_order
from rltui.diagnose.guesses import GUESS
from rltui.diagnose.guesses import STATE as HINT
from rltui.diagnose.kind import PROGRAM, Kind
from rltui.diagnose.kinds import KINDS
from rltui.diagnose.progress import ANSWERED
from rltui.diagnose.raised_in import PARTS
from rltui.diagnose.wording import ENDED, compiled

if TYPE_CHECKING:
    from rltui.diagnose.matches import Match, Matches

SURE = 0.62
"""Confidence of a cause from the table, and of none in it where the exception stands with its source line.

With each repository's own words held out (``tests/truth/why_folds.py``), 118 of 133 causes from the table were right,
and 66 of 85 errors of the program itself; of those without a source line it was 17 of 47.
"""

_MISTAKES = r"TypeError|AttributeError|NameError|UnboundLocalError"
"""What only wrong code raises, whatever it says: 17 of 18 were the program's."""

_PATHS = (
    re.compile(r"(?:No such file|Not a|Is a|Permission|Operation not)[\w ]*: b?['\"](?P<path>[^'\"]+)['\"]"),
    re.compile(r"(?:^|[\s'\"(=:])(?P<path>~?/[\w.@+-]+(?:/[\w.@+=,-]*[\w-])+)"),
)
"""How Python names the path that the operating system refused, and what any program's word for one looks like."""

_SETTINGS = (
    re.compile(r"(?<![\w-])(?P<setting>--[a-z][\w.-]*\w)"),
    re.compile(r"[`'\"](?P<setting>[a-z][a-z\d]+(?:[_.][a-z\d]+)+)(?=[`'\"=])"),
    re.compile(r"(?<![\w./])(?P<setting>[a-z]\w+(?:[_.][a-z]\w*)+)(?= ?={1,2}|:? )"),
)
"""How a refusal names the setting: as a flag, in quotes, or as a name in more than one part."""

_NAMES_IN = {"path_missing": _PATHS, "access_denied": _PATHS, "settings_rejected": _SETTINGS}
"""What the summary and the remedies of a cause name out of the exception's words."""

_TOLD_ELSEWHERE = (
    r"^Caught \w+ in \w+ worker|Traceback \(most recent|run with NCCL_DEBUG|^NCCL (?:communicator|error)\b|"
    r"\bHCCL .{0,10}error\b|^CUDA error: CU\w+_STATUS_|\bsee .{0,60}\b(?:above|log)"
)
"""What passes on another one's words, or says where they are, and no reason of its own."""

MOST_LINES_APART = 60
"""An exception so soon after the first one tells the same failure again, in other words."""


def general_cause(matches: Matches) -> Match | None:
    """Return the first exception that ended a process, as a match of the cause that its kind speaks for.

    ``PROGRAM`` is the cause where it is of no kind in the table, unless native code raised it without a word; None
    where there is no exception, or only such as wordings know already, as what passes on another one's end.
    """
    open_ones = (STATE, HINT, ANSWERED)  # what an exception says of another way is no cause of it
    known = {match.order for cause, found in matches.by_cause.items() if cause not in open_ones for match in found}
    fatal = [
        one
        for one in matches.of(STATE)
        if "survived" not in one.fields and (exception_order(one) not in known or "quoted" in one.fields)
    ]
    first = next((one for one in fatal if one.fields["trace"]), next(iter(fatal), None))
    if first is None:
        return None
    # an exception soon after the first one may say better what it is about
    near = [one for one in fatal if one.source == first.source and 0 < one.order - first.order <= MOST_LINES_APART]
    told = next(((one, row) for one in (first, *near) if (row := _row(one)) is not None), None)
    return _told(*told) if told else _told(first, None)


def _row(match: Match) -> Kind | None:
    name, _, message = match.fields["exception"].partition(":")
    return next((kind for kind in KINDS if _fits(kind, name.rpartition(".")[2], message.strip(), match.fields)), None)


def _told(first: Match, row: Kind | None) -> Match:
    fields = first.fields
    _, _, message = fields["exception"].partition(": ")
    wanted = _NAMES_IN.get(row.cause, ()) if row else ()
    named = next((found for one in wanted if (found := one.search(message))), None)
    told = {"failure": fields["exception"][:160].rstrip(".: "), "place": PARTS[fields["part"]].title, **fields}
    told |= {**(named.groupdict() if named else {}), ENDED: "yes"}
    line = int(fields["line"]) if first.evidence.line else 0
    return structs.replace(
        first,
        cause=row.cause if row else "process_crashed" if "native" in fields else PROGRAM,
        confidence=_confidence(fields, row),
        evidence=structs.replace(first.evidence, line=line, text=fields["exception"]),
        order=exception_order(first),
        fields=told,
    )


def _confidence(fields: dict[str, str], row: Kind | None) -> float:
    """How far the exception itself says why: its class alone does not, nor do words that lead elsewhere.

    Of no known kind and without the line of code that raised it, it may as well be anything that no row words yet.
    """
    if row is not None and row.cause != PROGRAM:
        return SURE
    name, _, message = fields["exception"].partition(":")
    is_own = bool(fields["code"]) or compiled(_MISTAKES).fullmatch(name.rpartition(".")[2]) is not None
    is_told = bool(message.strip() or "carried" not in fields) and not compiled(_TOLD_ELSEWHERE).search(message.strip())
    return SURE if is_own and is_told and fields["part"] != "network" else GUESS


def _fits(kind: Kind, name: str, message: str, fields: dict[str, str]) -> bool:
    if kind.parts and fields["part"] not in kind.parts:
        return False
    if kind.exceptions and not compiled(kind.exceptions).fullmatch(name):
        return False
    said = message or f"{name} {fields['code']}"  # an assertion without words says what its code does
    if kind.message and not compiled(f"(?is){kind.message}").search(
        f"{name}: {said}" if "error" in kind.message else said
    ):
        return False
    if kind.code and not compiled(kind.code).search(fields["code"]):
        return False
    return not kind.frames or compiled(f"(?m){kind.frames}").search(fields["trace"]) is not None
