"""What learner and critic have in common: one data-parallel rank of a model that DeepSpeed trains.

All heavy imports are inside the methods, so that the process is up, and its place verified, before it loads anything.
"""

from __future__ import annotations

import abc
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

from rltui.layout.roles import effective_stage, has_8_bit_moments
from rltui.layout.schema import Critic, Layout, Learner
from rltui.layout.settings import Train
from trainers.data.tensors import RowTensors
from trainers.durable import files_of_rank
from trainers.roles.card import OnCard, importing, own_threads, share_of_cpus
from trainers.roles.checkpoint_writer import CheckpointWriter, Written
from trainers.roles.completions import derive_seed
from trainers.roles.flight_recorder import record_torch
from trainers.roles.meter import METER, measured, resident_now_gib
from trainers.roles.optimizers import learning_rate_factor, new_optimizer, take_settings
from trainers.roles.reshard import load_resharded, reshard
from trainers.roles.zero import TORCH_DTYPES, deepspeed_config, forbid_compiling, full_shape, loaded_in_shards

LEAST_PATIENCE_S = 1800.0
"""How long a collective waits at least; DeepSpeed's own default."""


def patience(layout: Layout) -> timedelta:
    """How long a collective waits: the first rank may load or write alone while the others are in one already."""
    deadlines = layout.deadlines
    return timedelta(seconds=max(LEAST_PATIENCE_S, deadlines.load_s, deadlines.save_s))


def import_training(_actor: Any = None) -> None:
    """Import what a rank computes with, which takes seconds and nothing of the card.

    Runs inside a role's actor (``actor.__ray_call__.remote(import_training)``) while it waits for its turn to load.
    """
    with importing():
        record_torch()
        import deepspeed  # noqa: F401
        from transformers import AutoConfig, AutoModelForCausalLM  # noqa: F401


def join_ranks(host: str, port: int, rank: int, world: int, timeout: timedelta) -> Any:
    """Join the other ranks of a role at ``host:port``; the module deepspeed."""
    import ray

    from rltui.onnode.node_network import interface_of

    # Ray shows each actor its own card only, so the local rank is 0 everywhere.
    values = {"MASTER_ADDR": host, "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in values.items()}, LOCAL_RANK="0", LOCAL_SIZE="1")
    # By default gloo takes the address of the host name, which on many nodes is a loopback address.
    address = host if host == "127.0.0.1" else ray.util.get_node_ip_address()
    if interface := interface_of(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    import_training()
    import deepspeed
    import torch

    forbid_compiling()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    deepspeed.init_distributed(dist_backend=backend, verbose=False, timeout=timeout)
    return deepspeed


class Meeting(OnCard):
    """One of a role's ranks, where they meet."""

    def free_port(self) -> int:
        """A TCP port that is free on this node."""
        from rltui.onnode.node_network import free_ports

        return free_ports(1)[0]


class DeepSpeedRank(Meeting, abc.ABC):
    """One rank; subclasses say which model, and what it learns.

    Args:
        layout: The layout.
        rank: Data-parallel rank.
        model_path: Folder of the model.

    Attributes:
        tag: DeepSpeed's name for this model's part of a checkpoint.
    """

    tag: str

    def __init__(self, layout: Layout, rank: int, model_path: str) -> None:
        self._layout, self._rank, self._model_path = layout, rank, model_path
        self._engine: Any = None
        self._writer: CheckpointWriter

    @property
    @abc.abstractmethod
    def _role(self) -> Learner | Critic:
        """The layout's settings of this role."""

    @property
    def _has_frozen_base(self) -> bool:
        """Whether only adapters are trained."""
        return False

    @property
    @abc.abstractmethod
    def _world(self) -> int:
        """Number of ranks, all of which ZeRO divides the model among."""

    @property
    def _train(self) -> Train:
        """The layout's settings, with as many steps as this role makes: those that the learning rate falls over."""
        return self._layout.train

    @property
    @abc.abstractmethod
    def _learning_rate(self) -> float:
        """Learning rate once the warm-up is over."""

    @abc.abstractmethod
    def _model(self, dtype: Any) -> Any:
        """The model, from its folder."""

    @abc.abstractmethod
    def _probe(self, rows: RowTensors) -> Any:
        """What the model says of the response tokens of ``rows``, [B, R]."""

    @measured("load")
    def load(self, host: str, port: int) -> float:
        """Join the other ranks at ``host:port``, load the model and hand it to DeepSpeed; returns the seconds taken."""
        began = time.monotonic()
        deepspeed = join_ranks(host, port, self._rank, self._world, patience(self._layout))
        import torch

        # ranks have other rows each, and must not draw alike where a variant leaves tokens out by chance
        torch.manual_seed(self._layout.train.seed + self._rank)
        torch.set_num_threads(self._threads(on_card=torch.cuda.is_available()))
        self._initialize(deepspeed, torch)
        return time.monotonic() - began

    def _threads(self, *, on_card: bool) -> int:
        """Threads of this process: more than Ray leaves it only where the optimizer steps in a card's host memory."""
        if on_card and self._role.offload != "none":
            return share_of_cpus(self._layout.hardware.ray_gpus_per_node)
        return own_threads()

    def _initialize(self, deepspeed: Any, torch: Any) -> None:
        model = self._load_model(torch)
        train, trained = self._train, [one for one in model.parameters() if one.requires_grad]
        optimizer = new_optimizer(self._role, trained, self._learning_rate, train)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(train, step))
        self._engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, lr_scheduler=scheduler, config=self._config(model.config, trained)
        )
        self._writer = CheckpointWriter(self._engine.checkpoint_engine.save)
        self._engine.checkpoint_engine.save = self._writer.take
        # The first rank copies two scripts between collectives: a full disk there would leave the others waiting.
        self._engine._copy_recovery_script = lambda _: None
        # Dropout would make the trainer's log-probs random; recomputing activations works in training mode only.
        self._engine.module.train(self._role.gradient_checkpointing)
        self._prepare_rows(is_packed=bool(self._layout.lengths.pack))

    def _prepare_rows(self, *, is_packed: bool) -> None:
        """Make the model ready for the form in which it gets rows."""
        if is_packed:
            from trainers.roles.attention import prepare_for_packing

            prepare_for_packing(self._engine.module, self._probe, self._engine.device)

    def _config(self, model_config: Any, trained: Sequence[Any] = ()) -> dict[str, Any]:
        import torch

        return deepspeed_config(
            self._role,
            self._layout.train,
            model_config.get_text_config().hidden_size,
            trained=sum(math.prod(full_shape(parameter)) for parameter in trained),
            has_gpu=torch.cuda.is_available(),
        )

    def _load_model(self, torch: Any) -> Any:
        from transformers import AutoConfig
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # the stage file shows progress; a bar in a log file is a long line of noise

        is_divided = self._role.zero_stage == 3
        with loaded_in_shards(self._config(AutoConfig.from_pretrained(self._model_path)) if is_divided else None):
            model = self._model(getattr(torch, TORCH_DTYPES[self._role.precision]))
        if self._role.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        return model

    @measured("save")
    def begin_save(self, folder: str, copying: int = 0) -> None:
        """Begin to write this rank's part of a checkpoint into ``folder``; what later steps change is not in it.

        Args:
            folder: Of the checkpoint.
            copying: Ranks of this node that copy at this moment, this one among them; 0: the files are written before
                this returns.
        """
        import torch

        self._writer.open(copying)
        # no file `latest`: which checkpoint is whole is said by a mark of ours, once every role has written its part
        self._engine.save_checkpoint(
            folder, tag=self.tag, save_latest=False, exclude_frozen_parameters=self._has_frozen_base
        )
        state = {"torch": torch.get_rng_state()}
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state()
        self._writer.take(state, str(self._random_state_file(folder)))
        self._writer.close(lambda: files_of_rank(Path(folder), self.tag, self._rank))

    def finish_save(self) -> Written:
        """Wait until this rank's part of the checkpoint is on the disk; may be called while the rank trains.

        Raises:
            OSError, RuntimeError: It could not be written.
        """
        return self._writer.wait()

    def restore(self, folder: str) -> None:
        """Go back to the checkpoint in ``folder``, which as many ranks wrote with the same ZeRO stage.

        Raises:
            RuntimeError: DeepSpeed finds no checkpoint there that fits this model and number of ranks.
        """
        import torch

        # under adapters a checkpoint has no base weights, and strict loading would miss them
        strict = not self._has_frozen_base
        loaded, _ = self._engine.load_checkpoint(folder, tag=self.tag, load_module_strict=strict)
        # where DeepSpeed finds no checkpoint, it warns and returns None instead of raising
        if loaded is None:
            raise RuntimeError(f"DeepSpeed could not load the checkpoint in {folder}")
        take_settings(self._engine.lr_scheduler, self._learning_rate, self._train)
        state = torch.load(self._random_state_file(folder))
        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])

    def reshard(self, folder: str) -> None:
        """Make the checkpoint in ``folder`` one that any number of ranks can load; for rank 0 only."""
        if effective_stage(self._role):  # without ZeRO every rank has everything, and one file holds it
            reshard(folder, self.tag, effective_stage(self._role))

    def restore_resharded(self, folder: str, step: int) -> None:
        """Go back to the checkpoint in ``folder``, which another number of ranks wrote.

        Args:
            folder: The checkpoint.
            step: Its training step. Random states of other ranks are no use: this rank's is drawn anew from it.

        Raises:
            RuntimeError: DeepSpeed finds no checkpoint there that fits this model.
        """
        import torch

        if effective_stage(self._role):
            loaded = load_resharded(self._engine, folder, self.tag)
        else:
            strict = not self._has_frozen_base
            loaded = self._engine.load_checkpoint(folder, tag=self.tag, load_module_strict=strict)[0] is not None
        if not loaded:
            raise RuntimeError(f"DeepSpeed could not load the checkpoint in {folder}")
        take_settings(self._engine.lr_scheduler, self._learning_rate, self._train)
        torch.manual_seed(derive_seed(self._layout.train.seed, step, self._rank))

    def _random_state_file(self, folder: str) -> Path:
        return Path(folder) / f"random-state-{self.tag}-{self._rank:04d}.pt"

    def checkpoint_bytes(self) -> int:
        """About the bytes of a checkpoint, all ranks together.

        AdamW's two moments and the fp32 weights take 12 bytes a parameter, 6 where the moments have 8 bits; weights of
        16 bits are stored besides. Of what is not trained there are the weights alone, and under adapters nothing.
        """
        width, sizes = (4 if self._role.precision == "fp32" else 2), {True: 0, False: 0}
        for parameter in self._engine.module.parameters():
            sizes[parameter.requires_grad] += int(getattr(parameter, "ds_numel", parameter.numel()))
        states = 6 if has_8_bit_moments(self._role) else 12
        return sizes[True] * (states + width) + (0 if self._has_frozen_base else sizes[False] * width)

    @measured("optimizer step")
    def step(self) -> float | None:
        """Make an optimizer step from the gradients there are; their norm before clipping.

        None: a gradient overflowed fp16 and no step was made: the weights are as they were, and the loss scale falls.
        """
        engine = self._engine
        plain = self._role.zero_stage == 0 and self._role.precision == "fp32"  # where DeepSpeed tells no norm
        bound, nothing = self._layout.train.gradient_clip, list[float]()
        told: AbstractContextManager[list[float]] = _norm_of_step(engine, bound) if plain else nullcontext(nothing)
        with told as norms:
            engine.step()
        if not engine.was_step_applied():
            return None
        return norms[0] if norms else float(engine.get_global_grad_norm() or 0.0)

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by in the backward pass, so that gradients do not underflow; 1 but in fp16."""
        return float(self._engine.optimizer.loss_scale) if self._role.precision == "fp16" else 1.0

    def memory_gib(self) -> float:
        """Peak of memory allocated on the card, or resident memory of the process where there is no card."""
        import torch

        if torch.cuda.is_available():
            return max((peak.get("allocated_gib", 0.0) for peak in METER.peaks().values()), default=0.0)
        return resident_now_gib()


@contextmanager
def _norm_of_step(engine: Any, bound: float) -> Iterator[list[float]]:
    """Holds the norm of the whole gradient before clipping once ``engine``, which reduces it only then, has stepped."""
    import torch

    parameters, norms = list(engine.module.parameters()), list[float]()

    def clip() -> None:
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, bound)))

    def measure(*_: Any) -> None:
        if not norms:  # nothing was clipped
            norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])))

    # DeepSpeed calls it only where there is a bound; without one, the hook before the step measures
    engine.clip_fp32_gradients = clip
    hook = engine.optimizer.register_step_pre_hook(measure)
    try:
        yield norms
    finally:
        hook.remove()
        del engine.clip_fp32_gradients
