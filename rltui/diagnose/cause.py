"""What a cause is: how logs word it, how it is weighed, its story for people, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, structs

from rltui.diagnose.verdicts import Change, Remedy

if TYPE_CHECKING:
    from rltui.diagnose.matches import Match, Matches, Verdict
    from rltui.diagnose.wording import Wording

Fields: TypeAlias = Mapping[str, str]
Remedies: TypeAlias = "tuple[Remedy, ...] | Callable[[Fields], tuple[Remedy, ...]]"

Tier: TypeAlias = Literal["site", "root", "effect", "wrapper", "aside"]
"""How causes rank against each other.

``site``: Slurm, kernel and GPU; they end processes whatever these were doing, so they explain what follows.
``root``: an error that ends the process it happens in.
``effect``: what the other ranks see when one of them dies; a cause only where nothing else is in view.
``wrapper``: frameworks passing on that something died.
``aside``: goes wrong beside the training, and seldom ends it.
"""


Recovery: TypeAlias = Literal["restart", "elsewhere", "change", "person"]
"""What lets a run go on that ended by a cause.

``restart``: the newest checkpoint is enough, as what happened was not the run's doing.
``elsewhere``: the same, without the node that the evidence names.
``change``: only with a change of the layout; as it was it would end the same way.
``person``: something outside of the layout has to be put right first.
"""

Weigh: TypeAlias = "Callable[[Sequence[Match], Matches], Verdict | None]"


class Cause(Struct, frozen=True, kw_only=True):
    """One cause of death.

    Attributes:
        id: Stable word.
        tier: See ``Tier``.
        word: At most 14 characters for lists of runs that go on; empty for what ends a run.
        recovery: See ``Recovery``.
        title: The cause in plain words, without a full stop.
        detail: Added to the title where the evidence has all the fields it names.
        tell: How to tell it from others.
        wordings: How logs word it. Empty where only checks of other causes' wordings lead to it.
        weigh: Weighs its matches together, in view of all others; without it, the surest one counts.
        remedies: What helps, best first; a function where the numbers of the evidence decide.
        wrong: What is often tried and does not help, and why.
        collect: What to look at where the evidence is thin.
        explains: Ids of causes that are consequences where this one was seen.
        sources: Where the knowledge is from.
    """

    id: str
    tier: Tier
    word: str = ""
    recovery: Recovery = "person"
    title: str
    detail: str = ""
    tell: str
    wordings: tuple[Wording, ...] = ()
    weigh: Weigh | None = None
    remedies: Remedies
    wrong: tuple[str, ...] = ()
    collect: tuple[str, ...] = ()
    explains: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()

    def summary(self, fields: Fields) -> str:
        """Return the cause in one sentence, with the numbers of the evidence where it has them."""
        wanted = set(re.findall(r"{(\w+)}", self.detail))
        if self.detail and wanted <= set(fields):
            return f"{self.title}: {self.detail.format_map(dict(fields))}."
        return f"{self.title}."

    def remedies_for(self, fields: Fields) -> tuple[Remedy, ...]:
        """Return the remedies, the evidence's words filled in; ``<node>`` and the like where there is none."""
        remedies = self.remedies(fields) if callable(self.remedies) else self.remedies
        return tuple(_filled(remedy, fields) for remedy in remedies)


_SAFE_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,200}")
_SAFE_PATH = re.compile(r"(?:~/|/|(?:\.{1,2}/)+)?[A-Za-z0-9._][A-Za-z0-9._:/@+=,-]{0,200}")
_BLANK = re.compile(r"{(\w+)}")


def _filled(remedy: Remedy, fields: Fields) -> Remedy:
    def fill(text: str) -> str:
        return _BLANK.sub(lambda match: safe_word(match[1], fields), text)

    return structs.replace(
        remedy, summary=fill(remedy.summary), commands=tuple(fill(command) for command in remedy.commands)
    )


_ADDRESS = re.compile(r"[\d.]+|.*:.*")


def exclude_node(fields: Fields, summary: str) -> Remedy:
    """Return the remedy that leaves the evidence's node out; Slurm takes its name only, and Ray's lines give addresses.

    Args:
        fields: The evidence's words.
        summary: What to do, and what else.
    """
    node = safe_word("node", fields)
    known = "<" not in node and not _ADDRESS.fullmatch(node)
    name_it = (f"getent hosts {node}",) if "<" not in node and not known else ()
    return Remedy(
        id="exclude-node",
        summary=summary,
        changes=(Change("slurm.exclude", "plus", node),) if known else (),
        commands=(*name_it, f"sbatch --exclude={node if known else '<node>'} …"),
        safe="confirm",
    )


def safe_word(name: str, fields: Fields) -> str:
    """Return the field ``name`` where it is a plain word, else a blank such as ``<node>``.

    A word from a log may end up in a shell, so anything but a plain name stays a blank to fill in.
    """
    value = fields.get(name, "")
    is_safe = (_SAFE_PATH if name == "path" else _SAFE_WORD).fullmatch(value)
    return value if is_safe else f"<{name}>"
