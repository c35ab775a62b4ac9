"""What the journal knows of each submission, folded from its entries, and what follows from that.

intent      about to be made: nothing has been handed to a scheduler
submitting  about to be handed over: from here on only a look at the cluster can tell
done        the scheduler gave it an id
failed      the scheduler refused it, or it was never handed over
unknown     the answer was lost
adopted     looked up and found: as good as done
absent      looked up for long enough and not found; whether to submit again is the user's decision
superseded  absent, and barred from ever starting because a new attempt took its place
recorded    what the journal knows is now on the cluster's disk too
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, structs

ACTIONS = frozenset({"submit", "resubmit"})
UNDECIDED = frozenset({"intent", "submitting", "unknown", "absent"})
NEVER_SENT = "not submitted: rltui was ended before it came to that"
"""How an attempt ended that was made and never handed to a scheduler."""
LOOK_UP_FOR_S = 60.0
"""How long a submission is looked for before it counts as absent: accounting lags, controllers restart."""


class Submission(Struct, frozen=True, kw_only=True):
    """One submission as the journal tells it."""

    uuid: str
    action: str = "submit"
    phase: str = "intent"
    run: str = ""
    attempt: int = 0
    cluster: str = ""
    path: str = ""
    """The attempt's directory on the cluster."""
    intended_at: float = 0.0
    sent_at: float = 0.0
    """When it was about to be handed to the scheduler; 0: it certainly was not."""
    job: str = ""
    reason: str = ""
    recorded: bool = True
    """Whether the attempt's directory says what the journal says."""
    pid: int = 0
    started: str = ""
    host: str = ""
    """Who wrote the last entry: pid, its start time, its host."""

    @property
    def is_undecided(self) -> bool:
        """Whether somebody must look at the cluster to know what became of it."""
        return self.phase in UNDECIDED

    @property
    def needs_care(self) -> bool:
        """Whether anything is left to do for it."""
        return self.is_undecided or not self.recorded


def fold_submissions(entries: Iterable[Mapping[str, Any]]) -> dict[str, Submission]:
    """Return every submission in ``entries`` by its uuid, oldest first; entries that make no sense are passed over."""
    found: dict[str, Submission] = {}
    for entry in entries:
        uuid, phase = entry.get("uuid"), entry.get("phase")
        if entry.get("action") in ACTIONS and isinstance(uuid, str) and isinstance(phase, str):
            found[uuid] = _advanced(found.get(uuid) or Submission(uuid=uuid), phase, entry)
    return found


def _advanced(before: Submission, phase: str, entry: Mapping[str, Any]) -> Submission:
    at = _number(entry.get("time"))
    texts = {
        name: value
        for name in ("action", "run", "cluster", "path", "job", "reason", "started", "host")
        if isinstance(value := entry.get(name), str)
    }
    after = structs.replace(before, **texts, pid=int(_number(entry.get("pid"))))
    if isinstance(entry.get("attempt"), int):
        after = structs.replace(after, attempt=entry["attempt"])
    if phase == "recorded":
        return structs.replace(after, recorded=True)
    return structs.replace(
        after,
        phase=phase,
        intended_at=at if phase == "intent" else before.intended_at,
        sent_at=at if phase == "submitting" else before.sent_at,
        recorded=entry.get("recorded") is not False,
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
