"""What a dialect says of a training system; docs/dialects.md teaches how to write one."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from rltui.errors import RltuiError

RoleName = Literal["learner", "engine", "reference", "critic", "teacher", "judge", "reward"]

Values = Literal["", "pairs", "words", "python", "json", "block"]
"""How the numbers of a line are worded: ``name:1.5 - other:2``, a Python or JSON dictionary, one over several lines."""


class Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the console, as a regular expression.

    Named groups: ``step`` and ``steps``; ``values`` is read as ``Line.values`` says; ``name`` and ``value`` are one
    metric; any other group is a metric of that name, with ``__`` for a slash.
    """

    pattern: str
    values: Values = ""
    is_step: Annotated[
        bool, Meta(description="Whether every such line is a step of its own, for systems that do not say its number.")
    ] = False


class StageLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that says where a run stands before its first step, or that it saves."""

    pattern: str
    stage: Literal["placing", "loading", "training", "saving"]


class MetricsFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a system's numbers are in full: its own file of JSON lines, then W&B's and TensorBoard's files."""

    file: Annotated[str, Meta(description="Its own file, with {attempt}; empty: it has none, or says where.")] = ""
    said: Annotated[
        str, Meta(description="How it says where its own file is: a regular expression with the group file.")
    ] = ""
    step: Annotated[str, Meta(description="The key of the step in it.")] = "step"
    values: Annotated[str, Meta(description="The key that holds the numbers; empty: beside the step.")] = ""
    prefix: Annotated[str, Meta(description="What stands before the names of metrics in W&B and TensorBoard.")] = ""
    counted: Annotated[
        bool, Meta(description="Whether the step is given to W&B as its own, so that it need not be among the metrics.")
    ] = False


class Checkpoints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a system keeps its checkpoints, and what is there when one is complete."""

    places: Annotated[
        tuple[str, ...],
        Meta(description="Folders, with {words} of the command: the first of which all words are there is meant."),
    ] = ()
    inside: Annotated[tuple[str, ...], Meta(description="Folders in it that may hold them; empty: itself.")] = ("",)
    folder: Annotated[str, Meta(description="Name of one checkpoint, a regular expression with the group step.")] = ""
    complete: Annotated[tuple[str, ...], Meta(description="Files in a checkpoint that are written last.")] = ()
    tracker: Annotated[
        str, Meta(description="A file beside the checkpoints, written last, that holds the newest complete step.")
    ] = ""


class Samples(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a system writes the answers that it trains on: a file of JSON lines a step, in a folder that it is told."""

    training: Annotated[str, Meta(description="The word of the command that names the folder; empty: none.")] = ""
    evaluation: Annotated[str, Meta(description="The same for answers of evaluations.")] = ""
    fields: Annotated[
        dict[str, str],
        Meta(description="What it calls step, prompt, answer, right_answer, reward, tokens, version, finish_reason."),
    ] = field(default_factory=dict)


class Resume(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run goes on from its newest checkpoint."""

    words: Annotated[
        tuple[str, ...],
        Meta(description="Words to append, with {checkpoints} for their folder; none where it goes on by itself."),
    ] = ()
    words_at: Annotated[
        tuple[str, ...],
        Meta(description="Words for one checkpoint by its {folder}, where the file that tells the newest is torn."),
    ] = ()
    harmless: Annotated[
        bool, Meta(description="Whether it begins anew with these words where there is no checkpoint.")
    ] = False
    possible: Annotated[bool, Meta(description="Whether the system as it comes can go on at all.")] = True
    demands: Annotated[str, Meta(description="What must be as before, in a few words for people.")] = ""


class Dialect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One training system."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,31}\Z")]
    summary: str
    sources: Annotated[tuple[str, ...], Meta(description="Where what stands here was read: address and version.")] = ()
    recognise: Annotated[
        tuple[str, ...], Meta(description="Regular expressions; one that is found in a script makes it this system's.")
    ] = ()
    needs_ray: Annotated[
        bool, Meta(description="Whether a script on several nodes finds its Ray cluster by RAY_ADDRESS.")
    ] = False
    progress: tuple[Line, ...] = ()
    details: Annotated[tuple[Line, ...], Meta(description="Lines with further numbers of the step at hand.")] = ()
    stages: tuple[StageLine, ...] = ()
    metrics: MetricsFile = field(default_factory=MetricsFile)
    status: Annotated[
        str,
        Meta(
            description="How it says where it answers /api/status as open-instruct does: a regular expression with the "
            "groups host and port."
        ),
    ] = ""
    aliases: Annotated[
        dict[str, str], Meta(description="Names of metrics that rltui does not know yet, and what it calls them.")
    ] = field(default_factory=dict)
    quotients: Annotated[
        dict[str, tuple[str, str]], Meta(description="Metrics that are one metric of the system divided by another.")
    ] = field(default_factory=dict)
    export: Annotated[
        dict[str, str], Meta(description="Variables for the script, with {attempt}, {run}, {wandb_run_id}.")
    ] = field(default_factory=dict)
    words: Annotated[
        dict[str, str], Meta(description="Keys of a layout, and the words of the command that mean the same.")
    ] = field(default_factory=dict)
    roles: Annotated[
        dict[RoleName, tuple[str, ...]],
        Meta(description="Who works on a card: class and name of a Ray actor, or a process's title; the first counts."),
    ] = field(default_factory=dict)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    resume: Resume = field(default_factory=Resume)
    samples: Samples = field(default_factory=Samples)

    def own_words(self, override: str) -> str:
        """``key.path=value`` of a layout in the system's words; empty where it has none that rltui knows."""
        key, _, value = override.partition("=")
        own = self.words.get(key, "")
        if not own:
            return ""
        return own if own.startswith("--") and value == "true" else f"{own}={value}"

    def __post_init__(self) -> None:
        """Refuse patterns that are none."""
        lines = [line.pattern for line in (*self.progress, *self.details)]
        lines += [line.pattern for line in self.stages]
        roles = [pattern for patterns in self.roles.values() for pattern in patterns]
        for pattern in (*self.recognise, *lines, *roles, self.metrics.said, self.status, self.checkpoints.folder):
            _require_expression(self.name, pattern)
        if self.status and {"host", "port"} - set(re.compile(self.status).groupindex):
            raise RltuiError(f"Dialect {self.name}: status needs the groups host and port.")
        if self.metrics.said and "file" not in re.compile(self.metrics.said).groupindex:
            raise RltuiError(f"Dialect {self.name}: metrics.said needs the group file: (?P<file>…).")


def _require_expression(dialect: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise RltuiError(f"Dialect {dialect}: {pattern!r} is no regular expression: {error}.") from error
