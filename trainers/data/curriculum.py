"""A curriculum by solve rate: prompts that taught nothing when they were answered last are drawn less often."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from trainers.data.prompts import Prompt, Task


class CurriculumState(msgspec.Struct, frozen=True):
    """What a checkpoint must remember of a curriculum.

    Attributes:
        settled: Prompts all of whose last answers passed, or none, by ``Prompt.key``.
        places: Numbers in the task of the prompts that were drawn and may still be needed, in the order of drawing.
        next_place: Number in the task of the next prompt to look at.
    """

    settled: frozenset[str] = frozenset()
    places: tuple[int, ...] = ()
    next_place: int = 0


class Curriculum:
    """A task that passes over prompts which the policy always solves, or never, with a given chance.

    Their groups have no advantage (DAPO, Yu et al. 2025, draws others in their place once they were answered). Here
    they are not answered in the first place, but now and then, because the policy changes. Whether prompt i of the task
    is passed over depends on the seed, i, and what was answered before the draw; what is drawn is remembered in the
    checkpoint, so a resumed run draws the same.

    Args:
        task: Where prompts come from; one with ``Prompt.key`` repeats its prompts.
        skip: Chance that a settled prompt is passed over; 0: the task as it is.
        passes: The least reward that solves a prompt.
        seed: The run's.
    """

    def __init__(self, task: Task, skip: float, passes: float, seed: int) -> None:
        self._task, self._skip, self._passes, self._seed = task, skip, passes, seed
        self._settled: set[str] = set()
        self._first, self._places = 0, list[int]()
        self._next = self._looked_at = self._skipped = 0

    @property
    def left_out(self) -> int:
        """Prompts left out so far because they are longer than ``lengths.prompt``."""
        return self._task.left_out

    @property
    def size(self) -> int | None:
        """Different prompts; None: there is no end to them."""
        return self._task.size

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1`` of those that are drawn."""
        while len(self._places) < cursor - self._first:  # drawn by a run that did not remember where
            self._places.append(self._next)
            self._next += 1
        known = self._places[cursor - self._first : cursor - self._first + count]
        found = [prompt for place in known for prompt in self._task.prompts(place, 1)]
        # at most one whole set is passed over in a call, so that this comes to an end
        passed_over, most = 0, self._task.size or 0
        while len(found) < count:
            begin, wanted = self._next, count - len(found)
            for place, prompt in enumerate(self._task.prompts(begin, wanted), begin):
                # were all of them settled, the whole set in turn is as good as anything
                if passed_over < most and self._passes_over(place, prompt):
                    passed_over += 1
                else:
                    found.append(prompt)
                    self._places.append(place)
            self._next += wanted
            self._looked_at += wanted
        self._skipped += passed_over
        return found

    def _passes_over(self, place: int, prompt: Prompt) -> bool:
        is_settled = prompt.key in self._settled
        return is_settled and random.Random(f"curriculum/{self._seed}/{place}").random() < self._skip

    def note(self, prompts: Sequence[Prompt], rewards: Sequence[Sequence[float]]) -> None:
        """Remember which prompts were solved by all of their answers, or by none; ``rewards`` are those of each."""
        for prompt, group in zip(prompts, rewards, strict=True) if self._skip else ():
            solved = sum(reward >= self._passes for reward in group)
            if prompt.key and solved in (0, len(group)):
                self._settled.add(prompt.key)
            else:
                self._settled.discard(prompt.key)

    def measures(self) -> dict[str, float]:
        """Shares of what was looked at since the last call that was passed over, and of all prompts that is settled.

        Nothing where no prompt is ever passed over.
        """
        if not self._skip:
            return {}
        found = {"curriculum/skipped_fraction": self._skipped / max(1, self._looked_at)}
        self._skipped = self._looked_at = 0
        return found | {"curriculum/settled_fraction": len(self._settled) / (self.size or 1)}

    def state(self, first: int) -> CurriculumState:
        """What to remember when no prompt before number ``first`` is needed any more; their places are forgotten."""
        del self._places[: first - self._first]
        self._first = first
        return CurriculumState(frozenset(self._settled), tuple(self._places), self._next)

    def resume(self, first: int, saved: CurriculumState | None) -> None:
        """Go on from a checkpoint that needed no prompt before number ``first``; None: it knew no curricula."""
        saved = CurriculumState(next_place=first) if saved is None else saved
        self._settled, self._places = set(saved.settled), list(saved.places)
        self._first, self._next = first, saved.next_place


def make_curriculum(layout: Layout, task: Task) -> Curriculum:
    """The curriculum of the layout over ``task``."""
    return Curriculum(task, layout.data.curriculum_skip, layout.data.eval_pass, layout.train.seed)
