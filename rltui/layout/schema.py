"""The layout schema: one YAML file says algorithm, models, hardware, roles and training settings.

The same structs are read by rltui (checks, placement, rendering) and by the trainers, so that a layout that
passes the check means the same thing on the cluster. They are frozen; overrides make new ones.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=1, le=10**9)]
CountOrZero = Annotated[int, Meta(ge=0, le=10**9)]
Slots = Annotated[int, Meta(ge=1, le=1024)]
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
PositiveFloat = Annotated[float, Meta(gt=0.0)]
NonNegativeFloat = Annotated[float, Meta(ge=0.0)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
Text = Annotated[str, Meta(max_length=500)]
ModelName = Annotated[str, Meta(min_length=1, max_length=500)]

Algorithm = Literal["grpo", "ppo", "opd"]
Precision = Literal["fp32", "bf16", "fp16"]

CPU = "cpu"
"""The value of ``hardware.gpu`` that makes every "GPU" of a layout a CPU slot: same placement, no card."""


class Hardware(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines a layout is meant for."""

    nodes: Annotated[int, Meta(ge=1, le=10_000, description="Number of nodes.")]
    gpus_per_node: Annotated[Slots, Meta(description="GPUs of each node, or CPU slots where gpu is 'cpu'.")]
    gpu: Annotated[str, Meta(description="GPU name, or 'cpu': each slot is then one CPU process.", min_length=1)] = CPU
    cpus_per_node: Annotated[
        CountOrZero, Meta(description="CPU cores that Ray may hand out on each node; 0: one per slot plus one.")
    ] = 0

    memory_gib_per_node: Annotated[
        NonNegativeFloat, Meta(description="Host memory of each node in GiB; 0: not known, so not checked.")
    ] = 0.0
    gpus_outside_ray: Annotated[
        int, Meta(ge=0, le=1024, description="GPUs of each node that a server outside Ray holds, such as a teacher's.")
    ] = 0

    @property
    def ray_gpus_per_node(self) -> int:
        """GPUs (or CPU slots) of each node that Ray may hand out."""
        return max(0, self.gpus_per_node - self.gpus_outside_ray)

    @property
    def on_cpu(self) -> bool:
        """Whether the slots of this layout are CPU processes."""
        return self.gpu == CPU

    @property
    def ray_cpus_per_node(self) -> int:
        """CPU cores that Ray is told each node has."""
        return self.cpus_per_node or self.gpus_per_node + 1


class Pool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named group of GPUs; the roles in one pool are colocated and share it in time."""

    gpus: Annotated[
        list[Slots], Meta(description="GPUs on each node, one entry a node.", min_length=1, max_length=10_000)
    ]

    @property
    def total(self) -> int:
        """GPUs of the pool in all."""
        return sum(self.gpus)


PoolName = Annotated[str, Meta(description="The pool it shares; empty: GPUs of its own.", max_length=64)]


class Learner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role that trains the policy with DeepSpeed."""

    model: Annotated[ModelName, Meta(description="Hugging Face name, local path, or 'builtin/tiny-qwen3'.")]
    gpus: Annotated[
        list[Slots],
        Meta(description="GPUs of each learner bundle; each bundle has its own node.", max_length=10_000),
    ] = field(default_factory=list)
    pool: PoolName = ""
    tensor_parallel: Annotated[Slots, Meta(description="GPUs that share one copy of each layer.")] = 1
    sequence_parallel: Annotated[Slots, Meta(description="GPUs that share one sequence (Ulysses); needs ZeRO-3.")] = 1
    zero_stage: Annotated[Literal[0, 1, 2, 3], Meta(description="DeepSpeed ZeRO stage.")] = 2
    hpz_partition: Annotated[
        CountOrZero, Meta(description="ZeRO++ secondary partition size; 0 or 1: off. Costs 2 B/parameter over it.")
    ] = 0
    offload: Annotated[
        Literal["none", "optimizer", "all"], Meta(description="What lives in host memory instead of on the card.")
    ] = "none"
    optimizer: Annotated[Literal["adamw", "adamw_8bit"], Meta(description="Optimizer.")] = "adamw"
    lora_rank: Annotated[CountOrZero, Meta(description="Rank of LoRA adapters; 0: all weights are trained.")] = 0
    precision: Annotated[Precision, Meta(description="Precision of weights and activations.")] = "bf16"
    micro_batch: Annotated[
        CountOrZero, Meta(description="Samples of a rank in one forward pass; 0: all samples of the rank at once.")
    ] = 0
    gradient_checkpointing: Annotated[bool, Meta(description="Recompute activations in the backward pass.")] = False
    chunked_logits: Annotated[bool, Meta(description="Never hold the logits of all tokens at once.")] = True
    gather_whole_model: Annotated[
        bool, Meta(description="At a weight sync, gather all parameters at once instead of layer by layer.")
    ] = False

    @property
    def num_learners(self) -> int:
        """GPUs of its own; 0 where it shares a pool."""
        return sum(self.gpus)


class Rollout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The role that generates samples."""

    engines: Annotated[int, Meta(ge=0, le=100_000, description="Number of engines; 0: as many as its pool holds.")] = 0
    pool: PoolName = ""
    engine: Annotated[Literal["vllm", "hf"], Meta(description="vLLM, or transformers where vLLM cannot run.")] = "vllm"
    tensor_parallel: Annotated[Slots, Meta(description="GPUs of one engine.")] = 1
    memory_utilization: Annotated[Fraction, Meta(description="Share of the card that the engine may take.")] = 0.9
    sleep_while_training: Annotated[
        bool, Meta(description="Free weights and KV cache while the learner trains on the same GPUs.")
    ] = False
    enforce_eager: Annotated[bool, Meta(description="No CUDA graphs: slower decoding, less memory.")] = False
    precision: Annotated[Precision, Meta(description="Precision the engine computes in.")] = "bf16"
    max_concurrency: Annotated[CountOrZero, Meta(description="Sequences in flight per engine; 0: vLLM's own.")] = 0


class Reference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen copy of the policy that the KL penalty compares with."""

    model: Annotated[str, Meta(description="Model; empty: the learner's.", max_length=500)] = ""
    pool: PoolName = ""
    precision: Precision = "bf16"


class Critic(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value model of PPO."""

    model: Annotated[str, Meta(description="Model; empty: the learner's.", max_length=500)] = ""
    pool: PoolName = ""
    zero_stage: Literal[0, 1, 2, 3] = 3
    offload: Literal["none", "optimizer", "all"] = "none"
    precision: Precision = "bf16"
    micro_batch: CountOrZero = 0
    gradient_checkpointing: bool = False
    learning_rate: PositiveFloat = 1e-5


class Teacher(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that on-policy distillation learns from; it scores the student's tokens."""

    model: ModelName
    engines: Annotated[int, Meta(ge=1, le=1000, description="Replicas.")] = 1
    pool: PoolName = ""
    tensor_parallel: Slots = 1
    memory_utilization: Fraction = 0.9
    precision: Precision = "bf16"


class Reward(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Processes that compute rewards on CPUs."""

    workers: Annotated[CountOrZero, Meta(description="Processes; 0: in the trainer itself.")] = 0
    cpus_per_worker: Annotated[Count, Meta(description="CPU cores of each.")] = 1
    timeout_s: Annotated[PositiveFloat, Meta(description="Longest time for one sample.")] = 10.0


class Roles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who runs on the GPUs."""

    learner: Learner
    rollout: Rollout
    reference: Reference | None = None
    critic: Critic | None = None
    teacher: Teacher | None = None
    reward: Reward | None = None


class Train(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how fast to train."""

    steps: Annotated[CountOrZero, Meta(description="Training steps of the run.")]
    prompts_per_step: Annotated[Count, Meta(description="Distinct prompts of one step.")]
    samples_per_prompt: Annotated[Count, Meta(description="Samples drawn for each prompt (the group size).")]
    learning_rate: Annotated[PositiveFloat, Meta(description="Learning rate after warm-up.")]
    warmup_steps: Annotated[CountOrZero, Meta(description="Steps over which the learning rate rises.")] = 0
    weight_decay: Annotated[NonNegativeFloat, Meta(description="AdamW weight decay.")] = 0.0
    gradient_clip: Annotated[PositiveFloat, Meta(description="Largest gradient norm.")] = 1.0
    optimizer_steps: Annotated[Count, Meta(description="Optimizer steps made from the samples of one step.")] = 1
    epochs: Annotated[Count, Meta(description="Passes over the samples of one step.")] = 1
    async_steps: Annotated[CountOrZero, Meta(description="Steps that rollouts may run ahead; 0: synchronous.")] = 0
    temperature: Annotated[PositiveFloat, Meta(description="Sampling temperature.")] = 1.0
    seed: Annotated[CountOrZero, Meta(description="Seed of prompts, sampling and initial weights.")] = 0

    @property
    def samples_per_step(self) -> int:
        """Samples that one step trains on."""
        return self.prompts_per_step * self.samples_per_prompt


class Lengths(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token limits."""

    prompt: Annotated[Count, Meta(description="Longest prompt, in tokens.")]
    response: Annotated[Count, Meta(description="Longest response, in tokens.")]
    pack: Annotated[CountOrZero, Meta(description="Tokens of a packed row; 0: one sample a row.")] = 0
    images: Annotated[CountOrZero, Meta(description="Image tokens of a prompt, within its prompt tokens.")] = 0


class Grpo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of group relative policy optimisation (Shao et al. 2024)."""

    advantage: Annotated[
        Literal["standard", "centered"], Meta(description="Divide group advantages by their deviation, or not.")
    ] = "standard"
    aggregation: Annotated[
        Literal["token", "sequence"], Meta(description="Mean over all tokens, or over samples of their token means.")
    ] = "token"
    clip_low: Annotated[Fraction, Meta(description="The ratio is clipped below 1 - clip_low.")] = 0.2
    clip_high: Annotated[PositiveFloat, Meta(description="The ratio is clipped above 1 + clip_high.")] = 0.272
    importance_cap: Annotated[
        PositiveFloat, Meta(description="Cap of the truncated importance weight trainer/engine.")
    ] = 2.0
    kl_coefficient: Annotated[NonNegativeFloat, Meta(description="Weight of the KL penalty (beta); 0: none.")] = 0.0
    filter_zero_std: Annotated[bool, Meta(description="Leave out groups whose samples all earn the same.")] = True


class Ppo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of proximal policy optimisation with a critic (Schulman et al. 2017)."""

    clip: Annotated[Fraction, Meta(description="The ratio is clipped to 1 ± clip.")] = 0.2
    value_clip: Annotated[NonNegativeFloat, Meta(description="Values move at most this far; 0: freely.")] = 0.5
    gamma: Annotated[Fraction, Meta(description="Discount.")] = 1.0
    gae_lambda: Annotated[Fraction, Meta(description="Lambda of generalised advantage estimation.")] = 0.95
    kl: Annotated[Literal["none", "reward", "loss"], Meta(description="Where the KL penalty goes.")] = "none"
    kl_coefficient: NonNegativeFloat = 0.0
    critic_warmup_steps: Annotated[CountOrZero, Meta(description="Steps that train the critic only.")] = 0


class Opd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of on-policy distillation (Agarwal et al. 2024; Qwen3 report 2025)."""

    estimator: Annotated[
        Literal["sampled_token", "top_k"], Meta(description="Reverse KL from the sampled token, or over k tokens.")
    ] = "sampled_token"
    top_k: Annotated[Count, Meta(description="Tokens of the top-k estimator.")] = 64
    kl_coefficient: NonNegativeFloat = 1.0


class Data(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained on, and what is rewarded."""

    train: Annotated[Text, Meta(description="'builtin/sort-digits', a Hugging Face dataset, or a local JSONL file.")]
    reward: Annotated[
        Literal["exact", "coin", "math", "code", "none"],
        Meta(description="'exact' and 'coin' (a control) are for builtin tasks; 'none': the teacher's signal only."),
    ] = "exact"
    digits: Annotated[int, Meta(description="Digits to sort in 'builtin/sort-digits'.", ge=2, le=8)] = 3
    eval: Annotated[Text, Meta(description="Evaluation set; empty: none.")] = ""
    eval_every: Annotated[CountOrZero, Meta(description="Steps between evaluations; 0: none.")] = 0


class Checkpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When checkpoints are written and how many are kept."""

    every: Annotated[CountOrZero, Meta(description="Steps between checkpoints; 0: only at the end.")] = 25
    keep: Annotated[Count, Meta(description="Newest complete checkpoints to keep.")] = 3


class Tracking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where metrics go besides metrics.jsonl."""

    wandb: Annotated[Literal["online", "offline", "disabled"], Meta(description="W&B mode.")] = "offline"
    project: Annotated[Text, Meta(description="W&B project.", min_length=1)] = "rltui"
    entity: Annotated[Text, Meta(description="W&B entity; empty: the account's default.")] = ""


class Slurm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the Slurm job; clusters that are not Slurm ignore them."""

    partition: Text = ""
    account: Text = ""
    qos: Text = ""
    time: Annotated[str, Meta(description="Time limit, as HH:MM:SS or D-HH:MM:SS.", max_length=20)] = "24:00:00"
    exclude: list[Name] = field(default_factory=list)


class Layout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layout, as loaded: every default filled in, every value typed."""

    layout: Annotated[Literal[1], Meta(description="Version of this schema.")]
    name: Annotated[Name, Meta(description="Letters, digits, dot, dash and underscore, at most 64.")]
    summary: Annotated[Text, Meta(description="One line for the list of layouts.")] = ""
    algorithm: Algorithm
    hardware: Hardware
    pools: Annotated[dict[Name, Pool], Meta(description="Named groups of GPUs that roles share.")] = field(
        default_factory=dict
    )
    roles: Roles
    train: Train
    lengths: Lengths
    grpo: Grpo = field(default_factory=Grpo)
    ppo: Ppo = field(default_factory=Ppo)
    opd: Opd = field(default_factory=Opd)
    data: Data
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    tracking: Tracking = field(default_factory=Tracking)
    slurm: Slurm = field(default_factory=Slurm)

    def slots_of(self, role: str) -> int:
        """GPUs (or CPU slots) that ``role`` works on, its own or its pool's; 0 where the layout has no such role."""
        found = getattr(self.roles, role)
        if found is None:
            return 0
        if found.pool:
            return self.pools[found.pool].total if found.pool in self.pools else 0
        if role == "learner":
            return sum(found.gpus)
        return found.engines * found.tensor_parallel if role in ("rollout", "teacher") else 0

    @property
    def num_engines(self) -> int:
        """Rollout engines, counted out of their pool where the layout does not say."""
        rollout = self.roles.rollout
        return rollout.engines or self.slots_of("rollout") // rollout.tensor_parallel

    @property
    def num_ranks(self) -> int:
        """Data-parallel ranks of the learner."""
        learner = self.roles.learner
        return self.slots_of("learner") // (learner.tensor_parallel * learner.sequence_parallel)
