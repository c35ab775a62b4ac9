"""Answers that a run trained on or was evaluated by: found, ranked and read where their files lie."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RecordQuery
from rltui.errors import RltuiError, UsageError
from rltui.watch.lines import parse_object
from rltui.watch.sample_text import escaped
from rltui.watch.text import checked_pattern, is_literal, plain

PIECE_BYTES = 64 << 20
"""Bytes that one request looks at; between two, a search can be left and says how far it is."""
AROUND_BYTES = 1 << 20
"""What is read on either side of a sample to find its siblings, which are written together."""
TAIL_BYTES = 4 << 20
"""End of a file in which the newest samples are looked for."""
MOST_BYTES = 8 << 20
MOST_TEXT = 1 << 17
"""Characters of a prompt or an answer that are shown."""

Order = Literal["newest", "best", "worst", "longest"]


class Fields(Struct, frozen=True, kw_only=True):
    """What a system calls the parts of a sample in its files; empty: it does not write that."""

    step: str = "step"
    prompt: str = "prompt"
    answer: str = "answer"
    right_answer: str = "right_answer"
    reward: str = "reward"
    tokens: str = "tokens"
    version: str = "weight_version"
    finish_reason: str = "finish_reason"


OURS = Fields()


class SampleFile(Struct, frozen=True, kw_only=True):
    """A file of JSON lines with samples."""

    path: str
    size: int
    fields: Fields = OURS


class SampleQuery(Struct, frozen=True, kw_only=True):
    """Which samples are wanted, and which of them first."""

    order: Order = "newest"
    grep: str = ""
    """A regular expression that the line has, as it stands in the file: an end of line in an answer is ``\\\\n``."""
    step: int | None = None
    evaluation: bool = False
    limit: int = 200
    clip: int = 200
    """Characters of each text that are wanted."""
    text: str = ""
    """As it was typed."""


class Sample(Struct, frozen=True, kw_only=True):
    """One answer to a prompt. Texts have no control characters but line ends; those that were there are escaped."""

    path: str
    offset: int
    """Where its line begins in the file."""
    length: int
    """Bytes of the line."""
    step: int | None = None
    reward: float | None = None
    tokens: int | None = None
    version: int | None = None
    """Of the weights that began the answer."""
    finish_reason: str = ""
    prompt: str = ""
    answer: str = ""
    right_answer: str = ""


class SamplesFound(Struct, frozen=True, kw_only=True):
    """What a search for samples has found so far, best first, and how far it is."""

    samples: tuple[Sample, ...] = ()
    share: float = 1.0
    read_bytes: int = 0
    unread: int = 0
    """Lines that are no samples."""
    note: str = ""
    """Why there are none, and how there would be."""


class SampleGroup(Struct, frozen=True, kw_only=True):
    """A sample in full, among the answers to the same prompt in the same step that were written with it."""

    chosen: Sample
    siblings: tuple[Sample, ...]
    """All of them, the chosen one as well, the best first."""

    @property
    def best(self) -> Sample:
        """The sibling with the highest reward."""
        return self.siblings[0]


def read_sample_query(text: str) -> SampleQuery:
    """Read ``step:12 words`` or ``re:REGEX``; plain words count whatever their case.

    Raises:
        UsageError: It cannot be read.
    """
    rest, step = text.strip(), None
    match = re.match(r"step:(\S*)\s*", rest)
    if match is not None:
        if not match[1].isdecimal():
            raise UsageError(f"{match[1]!r} is no step.", "A number: step:12")
        step, rest = int(match[1]), rest[match.end() :]
    grep = rest[3:] if rest.startswith("re:") else f"(?i:{re.escape(as_written(rest))})" if rest else ""
    return SampleQuery(grep=checked_pattern(grep), step=step, text=text)


def as_written(text: str) -> str:
    """``text`` as it stands within a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def record_query(query: SampleQuery, fields: Fields) -> RecordQuery:
    """What the relay is asked for.

    Raises:
        UsageError: Files of this kind do not say what the samples are to be ranked by.
    """
    key = {"newest": "", "best": fields.reward, "worst": fields.reward, "longest": fields.tokens}[query.order]
    if query.order != "newest" and not key:
        raise UsageError("The samples of this run do not say how long they are.", "--best and --worst need no length.")
    pattern: str = query.grep
    anchors: tuple[str, ...] = ()
    if query.step is not None and fields.step:
        name = f'"{fields.step}":'
        anchors = (f"{name} {query.step}", f"{name}{query.step}")
        # step 12 is neither 120 nor 12.5
        step = rf"{re.escape(name)} ?{query.step}(?![0-9.])"
        pattern = rf"^(?=.*{step})(?=.*(?:{query.grep}))" if query.grep else step
    elif query.grep and is_literal(query.grep):
        anchors = (query.grep,)
    return RecordQuery(
        hits=query.limit,
        number=key,
        smallest=query.order == "worst",
        pattern=pattern,
        anchors=anchors,
        clip=query.clip,
    )


def find_samples(client: RelayClient, files: Sequence[SampleFile], query: SampleQuery) -> Iterator[SamplesFound]:
    """Search ``files`` (the newest last) piece by piece; each answer has all that was found so far.

    The newest samples without a pattern are at the end of the last files, and only that is read.

    Raises:
        RelayError: A file is not there, the pattern cannot be read, or the cluster is away.
        UsageError: Files of this kind do not say what the samples are to be ranked by.
    """
    whole = sum(file.size for file in files) or 1
    kept: list[tuple[tuple[float, ...], Sample]] = []
    read = unread = 0
    for place, file in reversed(list(enumerate(files))):
        wanted = record_query(query, file.fields)
        for offset, stop in _spans(client, file, query):
            while offset < stop:
                part = client.records(file.path, offset, min(PIECE_BYTES, stop - offset), wanted)
                found = [sample_of(file, *record) for record in part.records]
                kept += [(_rank(sample, query.order, place), sample) for sample in found]
                kept = sorted(kept, key=lambda one: one[0], reverse=True)[: query.limit]
                passed, unread = part.offset - offset, unread + part.unread
                read, offset = read + passed, part.offset
                yield _so_far(kept, min(0.99, read / whole), read, unread)
                if not passed:
                    break
            if query.order == "newest" and len(kept) >= query.limit:
                break
        if query.order == "newest" and len(kept) >= query.limit:
            break
    yield _so_far(kept, 1.0, read, unread)


def _spans(client: RelayClient, file: SampleFile, query: SampleQuery) -> Iterator[tuple[int, int]]:
    """What to search, in this order: all; where only the newest are wanted, from the end on, each time further back."""
    stop, reach = file.size, TAIL_BYTES
    is_plain = query.order == "newest" and not query.grep and query.step is None
    while stop > 0:
        start = stop - reach
        if is_plain and start > 0:
            start += client.read(file.path, start, min(reach, AROUND_BYTES)).data.find(b"\n") + 1
        else:
            start = 0
        yield start, stop
        stop, reach = start, 4 * reach


def _rank(sample: Sample, order: Order, place: int) -> tuple[float, ...]:
    """What samples are sorted by, the largest first; a reward that is no number is looked at first."""
    value = {"newest": 0.0, "best": sample.reward, "longest": sample.tokens}.get(order, sample.reward)
    number = -math.inf if value is None else float(value)
    number = -number if order == "worst" and value is not None else number
    return (math.inf if math.isnan(number) else number, place, sample.offset)


def _so_far(kept: Sequence[tuple[object, Sample]], share: float, read: int, unread: int) -> SamplesFound:
    return SamplesFound(samples=tuple(sample for _, sample in kept), share=share, read_bytes=read, unread=unread)


def sample_of(file: SampleFile, offset: int, length: int, values: Mapping[str, Any]) -> Sample:
    """The sample that a line's object tells of."""
    fields = file.fields
    return Sample(
        path=file.path,
        offset=offset,
        length=length,
        step=_whole(values.get(fields.step)),
        reward=_number(values.get(fields.reward)),
        tokens=_whole(values.get(fields.tokens)),
        version=_whole(values.get(fields.version)),
        finish_reason=plain(_text(values.get(fields.finish_reason))),
        prompt=_text(values.get(fields.prompt)),
        answer=_text(values.get(fields.answer)),
        right_answer=_text(values.get(fields.right_answer)),
    )


def read_group(client: RelayClient, file: SampleFile, offset: int, length: int) -> SampleGroup:
    """Read the sample whose line begins at ``offset`` in full, and its siblings around it.

    Raises:
        RltuiError: There is no sample any more.
        RelayError: The file is not there, or the cluster is away.
    """
    first = max(0, offset - AROUND_BYTES)
    chunk = client.read(file.path, first, min(MOST_BYTES, offset - first + length + AROUND_BYTES))
    samples = list(_samples(file, first, chunk.data, offset))
    chosen = next((sample for sample in samples if sample.offset == offset), None)
    if chosen is None:
        raise RltuiError("This sample is not in its file any more.", "Search again.")
    alike = [one for one in samples if (one.step, one.prompt) == (chosen.step, chosen.prompt)]
    alike.sort(key=lambda one: (-math.inf if one.reward is None else one.reward, -one.offset), reverse=True)
    return SampleGroup(chosen=chosen, siblings=tuple(alike))


def _samples(file: SampleFile, first: int, data: bytes, wanted: int) -> Iterator[Sample]:
    """Whole lines of a piece that may begin and end within one."""
    at = 0
    while at < len(data):
        stop = data.find(b"\n", at)
        stop = len(data) if stop < 0 else stop
        values = parse_object(data[at:stop]) if at or not first or first == wanted else None
        if values is not None:
            yield sample_of(file, first + at, stop - at, values)
        at = stop + 1


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and math.isfinite(number) else None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return escaped(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:MOST_TEXT]
