"""Where a script of another system goes on: its newest complete checkpoint, and the words that say so to the system.

Written once for the machine that resubmits, which sees files through the relay, and for a node on which Slurm starts
the job again by itself.
"""

import contextlib
import glob
import os
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from rltui.onnode import checkpoints, rundir


class Checkpoint(NamedTuple):
    """A complete checkpoint of a script's run.

    Attributes:
        step: Its step.
        torn: The file that should tell which is the newest, and does not; empty: it does, or there is no such file.
        folder: Where it is, if ``torn``.
        place: The folder of all checkpoints.
    """

    step: int
    torn: str = ""
    folder: str = ""
    place: str = ""


def folder_of(told: Mapping[str, Any]) -> str:
    """The folder of the checkpoints of what ``script.json`` tells; empty where nobody can tell."""
    named = str(told.get("checkpoints") or "")
    place = named if named.startswith(("/", "~")) else "%s/%s" % (told.get("folder") or "~", named)
    return place if named and told["dialect"]["checkpoints"].get("folder") and place.startswith(("/", "~")) else ""


def newest_checkpoint(
    folder: str,
    marks: Mapping[str, Any],
    files: Callable[[str], Dict[str, str]],
    names: Callable[[str], Sequence[str]],
) -> Optional[Checkpoint]:
    """The newest complete checkpoint in ``folder``; None where there is none, or nobody can tell.

    Args:
        folder: Where the checkpoints are.
        marks: ``checkpoints`` of the system's dialect.
        files: The texts of files below the folder by their path in it, for a glob.
        names: What lies in a folder below it.
    """
    for inside in marks.get("inside") or [""]:
        found = _newest_in(folder, inside + "/" if inside else "", marks, files, names)
        if found is not None:
            return found._replace(place=folder)
    return None


def _newest_in(
    folder: str,
    inside: str,
    marks: Mapping[str, Any],
    files: Callable[[str], Dict[str, str]],
    names: Callable[[str], Sequence[str]],
) -> Optional[Checkpoint]:
    if marks.get("tracker"):
        tracker = inside + marks["tracker"]
        found = files(tracker)
        digits = re.findall(r"\d+", found.get(tracker, ""))
        if found and not digits:
            return _newest_but_one(os.path.join(folder, inside).rstrip("/"), marks, names(inside))
        return Checkpoint(int(digits[-1])) if digits else None
    whole = [_steps_with(inside, name, marks, files) for name in marks.get("complete") or ()]
    steps = set.intersection(*whole) if whole else set()
    return Checkpoint(max(steps)) if steps else None


def _steps_with(inside: str, name: str, marks: Mapping[str, Any], files: Callable[[str], Dict[str, str]]) -> Set[int]:
    """Steps of the checkpoints that have the file ``name``."""
    folders = (path[len(inside) :].split("/")[0] for path in files("%s*/%s" % (inside, name)))
    return {int(match["step"]) for one in folders for match in [re.fullmatch(marks["folder"], one)] if match}


def _newest_but_one(folder: str, marks: Mapping[str, Any], names: Sequence[str]) -> Optional[Checkpoint]:
    """The newest may be as torn as the file that tells of it; the one before was complete when that was begun."""
    steps = {int(match["step"]): match[0] for match in (re.fullmatch(marks["folder"], name) for name in names) if match}
    if len(steps) < 2:
        return None
    step = sorted(steps)[-2]
    return Checkpoint(step, marks["tracker"], "%s/%s" % (folder, steps[step]))


def resume_words(resume: Mapping[str, Any], newest: Optional[Checkpoint]) -> List[str]:
    """The words by which the system goes on from ``newest``; none where it does so by itself, or cannot.

    Where nobody can tell whether there is one (None), only words that do no harm then.
    """
    if newest is None:
        return list(resume.get("words") or ()) if resume.get("harmless") else []
    if not newest.torn:
        return [word.replace("{checkpoints}", newest.place) for word in resume.get("words") or ()]
    return [word.format(folder=newest.folder) for word in resume.get("words_at") or ()]


def with_resume(words: Sequence[str], resume: Mapping[str, Any], newest: Optional[Checkpoint]) -> List[str]:
    """``words`` that go on from ``newest``: those of an earlier attempt about the same are left out."""
    own = {word.partition("=")[0] for word in (*(resume.get("words") or ()), *(resume.get("words_at") or ()))}
    return [word for word in words if word.partition("=")[0] not in own] + resume_words(resume, newest)


def here(told: Dict[str, Any]) -> Dict[str, Any]:
    """``script.json`` of a start that Slurm makes again, with the words that go on from what the starts before saved.

    Args:
        told: ``script.json`` of the start that was submitted. Its folders are as this node sees them.
    """
    folder, resume = os.path.expanduser(folder_of(told)), told["dialect"]["resume"]
    if not told.get("passes_words") or not resume.get("possible", True):
        return told
    if not folder:
        return {**told, "words": with_resume(told["words"], resume, None)} if resume.get("harmless") else told
    newest = _newest_here(folder, told)
    return {**told, "words": with_resume(told["words"], resume, newest)} if newest is not None else told


def where_saved(attempt: str) -> str:
    """From where the run of ``attempt`` can go on, in words; empty where nobody can tell."""
    told = rundir.read_json(os.path.join(attempt, rundir.SCRIPT_RUN))
    if told is None:
        saved = checkpoints.newest_checkpoint(rundir.run_of(attempt))
        step = checkpoints.step_of(os.path.basename(saved)) if saved else None
    else:
        folder = os.path.expanduser(folder_of(told))
        if not folder:
            return ""
        newest = _newest_here(folder, told)
        step = newest.step if newest is not None else None
    return "there is no checkpoint yet" if step is None else "its newest checkpoint is of step %d" % step


def _newest_here(folder: str, told: Mapping[str, Any]) -> Optional[Checkpoint]:
    """The newest complete checkpoint that a script left in ``folder``, as this node sees it."""
    return newest_checkpoint(
        folder,
        told["dialect"]["checkpoints"],
        lambda pattern: _texts(folder, pattern),
        lambda inside: _names(os.path.join(folder, inside)),
    )


def _texts(folder: str, pattern: str) -> Dict[str, str]:
    found = {}
    for path in glob.glob(os.path.join(glob.escape(folder), pattern)):
        # one that was taken away just now, or is nobody's to read, is none: as through the relay
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
            found[os.path.relpath(path, folder)] = stream.read(4096)
    return found


def _names(folder: str) -> List[str]:
    return os.listdir(folder)
