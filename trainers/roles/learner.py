"""The learner: one DeepSpeed rank, as a Ray actor class.

All heavy imports are inside the methods, so that the process is up, and its place verified, before it loads anything.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.roles.tally import StepReport, Tally
from trainers.roles.zero import deepspeed_config, forbid_compiling, full_parameters, full_shape

if TYPE_CHECKING:
    import torch

    from rltui.layout.schema import Layout
    from trainers.data.batch import RowTensors, Shard
    from trainers.weights import ParameterMeta, WeightGroup, WeightSender

TORCH_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
TAG = "deepspeed"
GIB = 2**30


class Learner:
    """One data-parallel rank of the policy.

    Args:
        layout: The layout.
        rank: Data-parallel rank.
        model_path: Folder of the model.
    """

    def __init__(self, layout: Layout, rank: int, model_path: str) -> None:
        self._layout, self._rank, self._model_path = layout, rank, model_path
        self._world = layout.roles.learner.num_learners
        self._engine: Any = None
        self._sender: WeightSender | None = None

    def free_port(self) -> int:
        """A TCP port that is free on this node."""
        from trainers.weights import free_port

        return free_port()

    def load(self, host: str, port: int) -> float:
        """Join the other ranks at ``host:port``, load the model and hand it to DeepSpeed; returns the seconds taken."""
        began = time.monotonic()
        self._set_environment(host, port)
        import deepspeed
        import torch

        forbid_compiling()
        torch.manual_seed(self._layout.train.seed + self._rank)
        if not torch.cuda.is_available():
            torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        deepspeed.init_distributed(dist_backend="nccl" if torch.cuda.is_available() else "gloo", verbose=False)
        self._initialize(deepspeed, torch)
        return time.monotonic() - began

    def _set_environment(self, host: str, port: int) -> None:
        # Ray shows each actor its own card only, so the local rank is 0 everywhere.
        values = {"MASTER_ADDR": host, "MASTER_PORT": port, "RANK": self._rank, "WORLD_SIZE": self._world}
        os.environ.update({name: str(value) for name, value in values.items()}, LOCAL_RANK="0", LOCAL_SIZE="1")
        if host == "127.0.0.1":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

    def _initialize(self, deepspeed: Any, torch: Any) -> None:
        role, train = self._layout.roles.learner, self._layout.train
        model = self._load_model(torch)
        optimizer = torch.optim.AdamW(model.parameters(), lr=train.learning_rate, weight_decay=train.weight_decay)
        warmup = max(1, train.warmup_steps)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
        self._engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, lr_scheduler=scheduler, config=self._config(model.config)
        )
        # Dropout would make the trainer's log-probs random; recomputing activations works in training mode only.
        self._engine.module.train(role.gradient_checkpointing)

    def _config(self, model_config: Any) -> dict[str, Any]:
        return deepspeed_config(self._layout.roles.learner, self._layout.train, model_config.hidden_size)

    def _load_model(self, torch: Any) -> Any:
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.integrations import HfDeepSpeedConfig
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # the stage file shows progress; a bar in a log file is a long line of noise

        role = self._layout.roles.learner
        if role.zero_stage == 3:
            # While this object lives, from_pretrained builds the model in shards: it never stands whole on a rank.
            self._sharded_loading = HfDeepSpeedConfig(self._config(AutoConfig.from_pretrained(self._model_path)))
        dtype = getattr(torch, TORCH_DTYPES[role.precision])
        model = AutoModelForCausalLM.from_pretrained(self._model_path, dtype=dtype)
        if role.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        return model

    def train(self, shard: Shard) -> StepReport:
        """Make one optimizer step on this rank's rows; all ranks must be called with shards of the same size.

        Rows without signal are only measured. Without any rows to train on, no step is made.
        """
        import torch

        began = time.monotonic()
        tally = Tally()
        learning_rate = self._engine.get_lr()[0]
        size = self._layout.roles.learner.micro_batch
        with torch.no_grad():
            for part in shard.measured.micro_batches(size):
                rows = part.tensors(self._engine.device)
                tally.measure(rows, *self._log_probs(rows))
        for part in shard.trained.micro_batches(size):
            self._accumulate(part.tensors(self._engine.device), shard.denominator, tally)
        if len(shard.trained):
            self._engine.step()
        return tally.report(
            grad_norm=float(self._engine.get_global_grad_norm() or 0.0) if len(shard.trained) else 0.0,
            learning_rate=learning_rate,
            seconds=time.monotonic() - began,
            memory_gib=self.memory_gib(),
        )

    def _accumulate(self, rows: RowTensors, denominator: float, tally: Tally) -> None:
        """Add the gradient of one micro-batch."""
        from trainers.losses import policy_loss

        settings = self._layout.grpo
        log_probs, entropies = self._log_probs(rows)
        result = policy_loss(
            log_probs,
            log_probs.detach(),  # one optimizer step a batch: the policy at the step's start is this one
            rows.engine_log_probs,
            rows.advantages,
            rows.response_mask,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            importance_cap=settings.importance_cap,
            aggregation=settings.aggregation,
            denominator=denominator,
        )
        # DeepSpeed averages gradients over ranks, and the denominator is already that of the whole batch.
        self._engine.backward(result.loss * self._world)
        tally.measure(rows, log_probs.detach(), entropies)
        tally.train(rows, result)

    def _log_probs(self, rows: RowTensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies [B, R] of the response columns of ``rows``."""
        from trainers.losses import token_log_probs

        columns = rows.response_mask.shape[1]
        attention_mask = rows.attention_mask[:, :-1].long()
        logits = self._engine(
            input_ids=rows.token_ids[:, :-1],  # the last token predicts nothing
            attention_mask=attention_mask,
            position_ids=(attention_mask.cumsum(dim=1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=columns,
        ).logits
        return token_log_probs(logits, rows.token_ids[:, -columns:], self._layout.train.temperature)

    def manifest(self) -> list[ParameterMeta]:
        """What engines must know of the weights before they come: names, the engine's dtype, full shapes."""
        from trainers.weights import ParameterMeta

        dtype = TORCH_DTYPES[self._layout.roles.rollout.precision]
        named = self._engine.module.named_parameters()
        return [ParameterMeta(name, dtype, full_shape(parameter)) for name, parameter in named]

    def join_weight_group(self, group: WeightGroup, timeout_s: float) -> None:
        """Open the sending end of the weight transfer; for rank 0 only."""
        from trainers.weights import WeightSender

        self._sender = WeightSender(group, timeout_s)

    def send_weights(self, version: int) -> None:
        """Send all parameters to the engines; ranks other than 0 only take part in the gathers of ZeRO-3."""
        import torch

        dtype = getattr(torch, TORCH_DTYPES[self._layout.roles.rollout.precision])
        parameters = full_parameters(self._engine.module)
        if self._sender is not None:
            self._sender.send(((name, tensor.to(dtype)) for name, tensor in parameters), version)
            return
        if self._layout.roles.learner.zero_stage == 3:
            for _ in parameters:
                pass

    def save(self, folder: str) -> None:
        """Write this rank's part of a checkpoint into ``folder``: weights, optimizer, schedule, random state."""
        import torch

        self._engine.save_checkpoint(folder, tag=TAG, save_latest=False)
        torch.save({"torch": torch.get_rng_state()}, self._random_state_file(folder))

    def restore(self, folder: str) -> None:
        """Go back to the checkpoint in ``folder``.

        Raises:
            RuntimeError: DeepSpeed finds no checkpoint there that fits this model and number of ranks.
        """
        import torch

        loaded, _ = self._engine.load_checkpoint(folder, tag=TAG)
        if loaded is None:
            raise RuntimeError(f"DeepSpeed could not load the checkpoint in {folder}")
        torch.set_rng_state(torch.load(self._random_state_file(folder))["torch"])

    def _random_state_file(self, folder: str) -> Path:
        return Path(folder) / f"random-state-{self._rank:04d}.pt"

    def checkpoint_bytes(self) -> int:
        """About the bytes of a checkpoint, all ranks together.

        AdamW's two moments and the fp32 weights take 12 bytes a parameter; weights of 16 bits are stored besides.
        """
        parameters = sum(int(getattr(p, "ds_numel", p.numel())) for p in self._engine.module.parameters())
        return parameters * (16 if self._layout.roles.learner.precision == "fp32" else 14)

    def memory_gib(self) -> float:
        """Peak of memory allocated on the card, or resident memory of the process where there is no card."""
        import torch

        if torch.cuda.is_available():
            return float(torch.cuda.max_memory_allocated()) / GIB
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / GIB
