"""Loading a checkpoint that another number of ranks wrote, or another ZeRO stage, through DeepSpeed's universal format.

ZeRO's shards fit the number of ranks that wrote them. DeepSpeed's converter writes each parameter with its optimizer
state to files of its own, from which ranks of any number take their slices. That takes time and room for two copies
more (the converter cuts the shards before it joins them), so it is done only where something did change.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

UNIVERSAL = "universal"
"""Folder of the converted files, inside the checkpoint; gone once they are loaded."""


def reshard(folder: str, tag: str, stage: int) -> None:
    """Convert the shards of ``tag`` in ``folder``; by one rank, before all of them load.

    Args:
        folder: The checkpoint.
        tag: DeepSpeed's name for the model's part of it.
        stage: ZeRO stage of the ranks that will load it, 1 to 3; that of the shards may be another of these.

    Raises:
        RuntimeError: The converter could not read them.
    """
    from deepspeed.checkpoint import ds_to_universal

    target = Path(folder) / UNIVERSAL / tag
    # an attempt that was killed while it converted has left half of it
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    wanted = Namespace(
        input_folder=str(Path(folder) / tag),
        output_folder=str(target),
        num_extract_workers=1,  # more would be forks of a process that holds a model and collectives' threads
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=True,
        # only Megatron-DeepSpeed writes universal_checkpoint_info, which the converter asserts otherwise
        inject_missing_state=True,
    )
    # It talks, with progress bars, which in a log file are long lines of noise.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            ds_to_universal.main(wanted)
        except Exception as error:  # it raises whatever went wrong inside
            raise RuntimeError(f"the shards of {tag} in {folder} could not be resharded: {error!r}") from error
    _suit(target, stage)


def _suit(target: Path, stage: int) -> None:
    """Let ``target`` be what DeepSpeed expects at ``stage``: stages 1 and 2 differ from 3 in names and in one file."""
    import deepspeed
    import torch

    file = target / "zero" / "optimizer_state.pt"
    # the loss scaler in it is an object of DeepSpeed's, which weights_only refuses
    found = torch.load(file, map_location="cpu", weights_only=False)
    step = _optimizer_step(target, found)
    scalars = {name: value for name, value in found.items() if name not in ("fp32_flat_groups", "optimizer_state_dict")}
    inner = {"state": {0: {"step": step}}, "param_groups": found["param_groups"]}
    # Written anew without the first rank's shard, which every rank would read.
    torch.save({"ds_version": deepspeed.__version__, **scalars, "optimizer_state_dict": inner}, file)
    if stage < 3:
        for file in (target / "zero").rglob("exp_avg.pt"):
            _suit_parameter(file.parent, step)
    written = next(path for path in sorted(target.glob("*model_states.pt")) if "_rank_00" in path.name)
    name = "zero_pp_rank_0_mp_rank_00_model_states.pt" if stage == 3 else "mp_rank_00_model_states.pt"
    if not (target / name).exists():
        shutil.copyfile(written, target / name)


def _suit_parameter(folder: Path, step: Any) -> None:
    """Stages 1 and 2 want each tensor in a dictionary, and the step beside them; stage 3 takes tensors either way."""
    import torch

    for file in folder.glob("*.pt"):
        found = torch.load(file, map_location="cpu", weights_only=False)
        if file.stem != "step" and isinstance(found, torch.Tensor):
            torch.save({"param": found}, file)
    torch.save(step, folder / "step.pt")


def _optimizer_step(target: Path, found: dict[str, Any]) -> Any:
    """Optimizer steps made, which stage 3 writes to the common file, and stages 1 and 2 to one for each parameter."""
    import torch

    if "optimizer_state_dict" in found:
        return found["optimizer_state_dict"]["state"][0]["step"]
    return torch.load(next((target / "zero").rglob("step.pt")), map_location="cpu", weights_only=False)


def load_resharded(engine: Any, folder: str, tag: str) -> bool:
    """Load what ``reshard`` wrote into DeepSpeed's ``engine``; by all ranks. Returns whether there was something."""
    # The setting belongs to the engine's construction, when nobody knows yet who wrote the checkpoint.
    engine._config.load_universal_checkpoint = True
    try:
        loaded, _ = engine.load_checkpoint(str(Path(folder) / UNIVERSAL), tag=tag)
    finally:
        engine._config.load_universal_checkpoint = False
    return loaded is not None


def forget_resharded(folder: str) -> None:
    """Remove what ``reshard`` wrote: as large as the checkpoint, and of use only once."""
    shutil.rmtree(Path(folder) / UNIVERSAL, ignore_errors=True)
