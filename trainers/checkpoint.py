"""Checkpoints of a run: written under a temporary name, marked complete last, the newest few kept."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import msgspec

from rltui.layout.roles import stage_as_run
from rltui.onnode import rundir
from rltui.onnode.checkpoints import mark_complete, newest_checkpoint, step_name, step_of
from trainers.data.curriculum import CurriculumState
from trainers.durable import flush_to_disk

log = logging.getLogger("trainers")

STATE = "state.json"
GIB = 2**30
SPARE = 1.1
"""A save is begun only where this many times its estimated bytes are free."""


class NoSpaceError(RuntimeError):
    """The file system has no room for a checkpoint."""


class TrainingState(msgspec.Struct, frozen=True, kw_only=True):
    """All that the driver must know to go on from a checkpoint; the learners' parts lie beside it.

    Attributes:
        step: Training steps done.
        cursor: Prompts of the task that the steps done have used up.
        ahead: First prompt of each of the next steps, as far as they had their prompts already.
        prompts_per_step: How many each of these has; 0 where a checkpoint does not say.
        weight_version: Version of the weights.
        num_learners: Ranks that wrote the checkpoint; ZeRO's shards fit no other number as they are.
        zero_stage: ZeRO stage in its layout; see ``rltui.layout.roles.effective_stage`` for what is run.
        precision: Of the learner; empty where a checkpoint does not say, as of ``adapters`` and ``critic_precision``.
        adapters: What of the policy is trained, in words.
        optimizer: The learner's; DeepSpeed reshards the states of ``adamw`` only.
        num_critics: Ranks of the critic; 0 where there is none.
        critic_zero_stage: That of the critic.
        critic_precision: Of the critic.
        curriculum: What that must remember; None where a checkpoint does not say.
        kl_coefficient: Where an adaptive controller has brought it; None where it is fixed.
    """

    step: int = 0
    cursor: int = 0
    ahead: tuple[int, ...] = ()
    prompts_per_step: int = 0
    weight_version: int = 0
    num_learners: int = 1
    zero_stage: int = 0
    precision: str = ""
    adapters: str = ""
    optimizer: str = ""
    num_critics: int = 0
    critic_zero_stage: int = 0
    critic_precision: str = ""
    kl_coefficient: float | None = None
    curriculum: CurriculumState | None = None

    @property
    def first_needed(self) -> int:
        """Number of the first prompt that a step to come trains on."""
        return min(self.ahead, default=self.cursor)

    def after_step(self, num_prompts: int, weight_version: int) -> TrainingState:
        """The state one step later."""
        return msgspec.structs.replace(
            self, step=self.step + 1, cursor=self.cursor + num_prompts, weight_version=weight_version
        )

    def ranks_changed(self, here: TrainingState) -> tuple[str, ...]:
        """Which kinds of roles differ from those that wrote this state's checkpoint, and must load it resharded.

        Args:
            here: The state of the roles that are to load it.

        Raises:
            ValueError: They cannot: ZeRO-0 keeps its optimizer in a form of its own, so does an 8-bit one, a critic is
                there or not, and what is trained, in which precision, stays as it was.
        """
        self._check_kept(here)
        wrote, loads = self.trained, here.trained
        changed = tuple(kind for kind in wrote if wrote[kind] != loads[kind])
        for kind in changed:
            (written, old), (wanted, new) = wrote[kind], loads[kind]
            if bool(old) != bool(new) or bool(written) != bool(wanted):
                raise ValueError(
                    f"the checkpoint of step {self.step} was written by {written} {kind}s with ZeRO-{old} and fits no "
                    f"others of that kind: {wanted} with ZeRO-{new} cannot load it; launch a new run, or go back to "
                    f"the old values of roles.{kind} (another number of GPUs, and ZeRO-1 to 3 among each other, are "
                    "well)"
                )
        if "learner" in changed and here.optimizer == "adamw_8bit":
            raise ValueError(
                f"the checkpoint of step {self.step} was written by {self.num_learners} learners with "
                f"ZeRO-{self.zero_stage}, and the states of {self.optimizer} fit no others; go back to the old values "
                "of roles.learner.gpus and roles.learner.zero_stage"
            )
        return changed

    @property
    def trained(self) -> dict[str, tuple[int, int]]:
        """Ranks and ZeRO stage of each kind of role that is trained; the stage that is run, not the one asked for."""
        return {
            "learner": (self.num_learners, stage_as_run(self.zero_stage, self.precision)),
            "critic": (self.num_critics, stage_as_run(self.critic_zero_stage, self.critic_precision)),
        }

    def _check_kept(self, here: TrainingState) -> None:
        """Refuse what a checkpoint cannot be loaded into, whatever the number of ranks; an older one may not say."""
        keys = {
            "adapters": "roles.learner.lora_rank and lora_alpha",
            "precision": "roles.learner.precision",
            "optimizer": "roles.learner.optimizer",
            "critic_precision": "roles.critic.precision",
        }
        for name, key in keys.items():
            wrote, loads = getattr(self, name), getattr(here, name)
            if wrote and loads and wrote != loads:
                raise ValueError(
                    f"the checkpoint of step {self.step} was trained with {wrote}, which {loads} cannot go on from; "
                    f"launch a new run, or go back to the old {key}"
                )


class Checkpoints:
    """The ``checkpoints`` folder of a run.

    Args:
        run: The run's directory.
        keep: Newest complete checkpoints to keep.
    """

    def __init__(self, run: str, keep: int) -> None:
        self._run, self._keep = run, keep
        self._folder = Path(run) / rundir.CHECKPOINTS

    def newest(self) -> tuple[Path, TrainingState] | None:
        """The newest complete checkpoint, or None.

        Raises:
            ValueError: It is marked complete, but its state cannot be read.
        """
        found = newest_checkpoint(self._run)
        if found is None:
            return None
        path = Path(found)
        try:
            return path, msgspec.json.decode((path / STATE).read_bytes(), type=TrainingState)
        except (OSError, msgspec.DecodeError) as error:
            raise ValueError(f"the checkpoint {path} is marked complete, but {STATE} is unreadable: {error}") from error

    def path(self, step: int) -> Path:
        """Where the checkpoint of ``step`` lies."""
        return self._folder / step_name(step)

    def has(self, step: int) -> bool:
        """Whether the checkpoint of ``step`` is there and complete."""
        return is_complete(self.path(step))

    def begin(self, state: TrainingState, needed_bytes: int) -> Path:
        """Begin a checkpoint; the folder to write the learners' parts into. Any other that was begun is given up.

        Args:
            state: The driver's part.
            needed_bytes: About the bytes that will be written.

        Raises:
            NoSpaceError: There is no room; nothing was written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        # first, as what a killed attempt has left takes the room that is looked for next
        self._sweep_drafts()
        ensure_space(self._folder, needed_bytes)
        draft = self._draft(state)
        draft.mkdir()
        return draft

    def complete(self, state: TrainingState) -> Path:
        """Mark what was begun for ``state`` complete and forget the oldest ones beyond ``keep``; where it lies.

        Every rank's part must be on the disk.
        """
        draft, target = self._draft(state), self.path(state.step)
        (draft / STATE).write_bytes(msgspec.json.encode(state))
        flush_to_disk([draft / STATE, draft])
        # rename(2) replaces no folder that has something in it
        if target.exists():
            _remove(target)
        draft.rename(target)
        flush_to_disk([self._folder])  # everything is on the disk before the marker says so
        flush_to_disk([Path(mark_complete(str(target), state.step)), target])
        self._forget()
        return target

    def _draft(self, state: TrainingState) -> Path:
        return self._folder / f".saving-{step_name(state.step)}"

    def _sweep_drafts(self) -> None:
        for draft in self._folder.glob(".saving-step-*"):
            shutil.rmtree(draft)

    def _forget(self) -> None:
        """Remove complete checkpoints beyond the newest ``keep``, and incomplete ones older than the newest."""
        paths = sorted((path for path in self._folder.glob("step-*") if step_of(path.name) is not None), key=_step)
        complete = [path for path in paths if is_complete(path)]
        kept = set(complete[-self._keep :])
        for path in paths[: paths.index(complete[-1])] if complete else []:
            if path not in kept:
                try:
                    _remove(path)
                # somebody reads in it (NFS keeps such files): the newest is whole all the same, and the next one tries
                except OSError as error:
                    log.warning("the old checkpoint %s was not removed: %s", path, error)


def is_complete(path: Path) -> bool:
    """Whether the checkpoint at ``path`` was written to its end."""
    return (path / rundir.CHECKPOINT_COMPLETE).exists()


def ensure_space(folder: Path, needed_bytes: int) -> None:
    """Check that ``folder``'s file system has room for ``needed_bytes`` and some more.

    Raises:
        NoSpaceError: It has not; both numbers are named.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes * SPARE:
        needed_gib = max(needed_bytes / GIB, 0.01)
        raise NoSpaceError(
            f"a checkpoint needs about {needed_gib:.2f} GiB and {folder} has {free / GIB:.2f} GiB free; "
            "remove old runs there, or lower checkpoint.keep"
        )


def _remove(path: Path) -> None:
    """Remove a checkpoint, its marker first, so that one removed halfway is never taken for a whole one."""
    (path / rundir.CHECKPOINT_COMPLETE).unlink(missing_ok=True)
    shutil.rmtree(path)


def _step(path: Path) -> int:
    return step_of(path.name) or 0
