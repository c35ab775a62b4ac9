"""From a checkpoint to a folder that Hugging Face tools load: ``python -m trainers.export --checkpoint DIR --to DIR``.

It needs no GPU and no other process, and holds one file of the result at a time: shards are read where they lie. Of
adapters (LoRA) it writes the base with their updates added, for which the base stands in memory, or the adapters alone.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltui.layout.load import load_layout
from rltui.layout.schema import Layout
from rltui.onnode import rundir
from trainers.checkpoint import is_complete
from trainers.data.models import resolve_model
from trainers.merging import has_adapters, merge, write_adapters
from trainers.roles.zero import TORCH_DTYPES

TAG = "deepspeed"
"""The policy's part of a checkpoint; a critic is no model for anyone else."""

BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.txt", "*.model", "*.py")
"""Files of a model's folder that say what the weights are: configuration, tokenizer, chat template, own code."""

NOT_BESIDE = (".index.json", "contents.json")
MAX_FILE = "5GB"


def export(checkpoint: Path, target: Path, precision: str = "", *, adapter: bool = False) -> Path:
    """Write the policy of ``checkpoint`` into ``target`` and return it.

    Args:
        checkpoint: A complete checkpoint, ``RUN/checkpoints/step-NNNNNN``.
        target: Made; complete where it is there.
        precision: ``fp32``, ``bf16`` or ``fp16``; empty: that of the learner.
        adapter: Write the adapters alone, in peft's format, instead of the model with them.

    Raises:
        ValueError: The checkpoint is not complete, does not fit the layout's model, or has no adapters where these are
            asked for; or ``target`` is there already.
    """
    if not is_complete(checkpoint):
        raise ValueError(f"{checkpoint} is no complete checkpoint: it has no {rundir.CHECKPOINT_COMPLETE}")
    if target.exists():
        raise ValueError(f"{target} is there already")
    layout = _layout_of(checkpoint)
    learner, dtype = layout.roles.learner, TORCH_DTYPES[precision or layout.roles.learner.precision]
    weights = _weights(checkpoint / TAG)
    if adapter and not has_adapters(weights):
        raise ValueError(f"{checkpoint} has no adapters: it is of a whole model")
    with _draft_of(target) as draft:
        model = Path(resolve_model(learner.model, layout, lambda _words, _done: None))
        if adapter:
            named = str(model) if learner.model.startswith("builtin/") else learner.model
            write_adapters(_outline(model), weights, draft, learner, named, dtype)
        else:
            _copy_beside(model, draft, dtype)
            if has_adapters(weights):
                weights = _without_repeats(merge(_base(model, TORCH_DTYPES[learner.precision]), weights, learner))
            _write_weights(weights, draft, dtype)
        draft.rename(target)
    return target


@contextlib.contextmanager
def _draft_of(target: Path) -> Iterator[Path]:
    """An empty folder beside ``target`` that only this export writes; what a killed one has left there is gone.

    Raises:
        ValueError: Another export into ``target`` is under way, or has just ended.
    """
    draft = target.with_name(f".exporting-{target.name}")
    draft.mkdir(parents=True, exist_ok=True)
    handle = os.open(draft, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another export into {target} is under way") from None
        except OSError:  # Lustre that is mounted without flock has no locks: two at once are not told apart there
            pass
        if target.exists():
            raise ValueError(f"{target} is there already")
        for left in draft.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield draft
    finally:
        os.close(handle)


def _base(model: Path, dtype: str) -> Any:
    """The model that adapters were trained on, as the learner computes with it."""
    from trainers.roles.vision import model_class

    return model_class(str(model)).from_pretrained(str(model), dtype=dtype)


def _outline(model: Path) -> Any:
    """The model in ``model`` without its weights."""
    import torch
    from transformers import AutoConfig

    from trainers.roles.vision import model_class

    with torch.device("meta"):
        return model_class(str(model)).from_config(AutoConfig.from_pretrained(str(model)))


def _layout_of(checkpoint: Path) -> Layout:
    """The layout of the run's newest attempt, which has the model of all of them."""
    attempts = sorted((checkpoint.parent.parent / rundir.ATTEMPTS).glob(f"*/{rundir.LAYOUT}"))
    if not attempts:
        raise ValueError(f"{checkpoint} is not in a run's directory: which model it is of is not known")
    return load_layout(attempts[-1]).layout


def _copy_beside(model: Path, target: Path, dtype: str) -> None:
    """Copy configuration and tokenizer, with the type of the weights as it will be."""
    for pattern in BESIDE_WEIGHTS:
        for file in model.glob(pattern):
            if not file.name.endswith(NOT_BESIDE):
                shutil.copyfile(file, target / file.name)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config["torch_dtype" if "torch_dtype" in config else "dtype"] = dtype
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _weights(folder: Path) -> dict[str, Any]:
    """All weights by name, each once, as tensors or as what becomes one by ``contiguous()``."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # a card that is there has no part in this
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    if any(folder.glob("*zero_pp_rank_*_optim_states.pt")):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = get_fp32_state_dict_from_zero_checkpoint(str(folder.parent), tag=folder.name, lazy_mode=True)
    else:
        file = folder / "mp_rank_00_model_states.pt"
        found = torch.load(file, map_location="cpu", mmap=True, weights_only=False)["module"]
    return _without_repeats(found)


def _without_repeats(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Tied weights once, under their first name: safetensors has no two names for one tensor."""
    import torch

    seen: set[Any] = set()
    kept = {}
    for name, weight in weights.items():
        # the shape too: views of one buffer, as ZeRO's flat ones are, may begin at one place
        same = (weight.data_ptr(), weight.shape) if isinstance(weight, torch.Tensor) else id(weight)
        if same not in seen:
            kept[name] = weight
        seen.add(same)
    return kept


def _write_weights(weights: Mapping[str, Any], target: Path, dtype: str) -> None:
    import torch
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    kind = getattr(torch, dtype)
    planned = {name: torch.empty(weight.shape, dtype=kind, device="meta") for name, weight in weights.items()}
    files = split_torch_state_dict_into_shards(planned, max_shard_size=MAX_FILE)
    for file, names in files.filename_to_tensors.items():
        tensors = {name: weights[name].contiguous().to(kind) for name in names}
        save_file(tensors, target / file, metadata={"format": "pt"})
    if files.is_sharded:
        index = {"metadata": files.metadata, "weight_map": files.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True)
        (target / "model.safetensors.index.json").write_text(text + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 0 written, 1 not."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.export", description="Write a checkpoint as a Hugging Face folder."
    )
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help="RUN/checkpoints/step-NNNNNN")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the folder to make")
    parser.add_argument("--precision", choices=sorted(TORCH_DTYPES), default="", help="default: the learner's")
    parser.add_argument("--adapter", action="store_true", help="the LoRA adapters alone, in peft's format")
    options = parser.parse_args(arguments)
    checkpoint, target = options.checkpoint.resolve(), options.to.resolve()
    try:
        print(export(checkpoint, target, options.precision, adapter=options.adapter))
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
