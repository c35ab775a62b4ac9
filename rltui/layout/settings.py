"""The sections of a layout that say what is trained and how: batches, lengths, algorithm, data, job."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field, structs

from rltui.layout.grading import ADDED_REWARDS, REWARDS, Judging, Scoring
from rltui.layout.scalars import (
    Count,
    CountOrZero,
    Fraction,
    ImageName,
    Mount,
    Name,
    NonNegativeFloat,
    PositiveFloat,
    RuntimeOption,
    SbatchOption,
    Seconds,
    Text,
)
from rltui.layout.variants import one_of

TopP = Annotated[float, Meta(gt=0.0, le=1.0)]


class Train(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how fast to train."""

    steps: Annotated[CountOrZero, Meta(description="Training steps of the run.")]
    prompts_per_step: Annotated[Count, Meta(description="Distinct prompts of one step.")]
    samples_per_prompt: Annotated[Count, Meta(description="Samples drawn for each prompt (the group size).")]
    learning_rate: Annotated[PositiveFloat, Meta(description="Learning rate after warm-up.")]
    warmup_steps: Annotated[CountOrZero, Meta(description="Steps over which the learning rate rises.")] = 0
    schedule: Annotated[
        Literal["constant", "linear", "cosine"],
        Meta(description="How the learning rate falls from warm-up to the last step: not, or to learning_rate_floor."),
    ] = "constant"
    learning_rate_floor: Annotated[
        Fraction, Meta(description="What the schedule ends at, as a share of learning_rate.")
    ] = 0.0
    weight_decay: Annotated[NonNegativeFloat, Meta(description="AdamW weight decay.")] = 0.0
    adam_beta1: Annotated[float, Meta(ge=0.0, lt=1.0, description="AdamW's decay of the mean of gradients.")] = 0.9
    adam_beta2: Annotated[float, Meta(ge=0.0, lt=1.0, description="AdamW's decay of the mean of their squares.")] = (
        0.999
    )
    gradient_clip: Annotated[PositiveFloat, Meta(description="Largest gradient norm.")] = 1.0
    optimizer_steps: Annotated[Count, Meta(description="Optimizer steps made from the samples of one step.")] = 1
    epochs: Annotated[Count, Meta(description="Passes over the samples of one step.")] = 1
    async_steps: Annotated[CountOrZero, Meta(description="Steps that rollouts may run ahead; 0: synchronous.")] = 0
    inflight_updates: Annotated[
        bool, Meta(description="Where rollouts run ahead, engines take new weights in the midst of a sample.")
    ] = False
    temperature: Annotated[PositiveFloat, Meta(description="Sampling temperature.")] = 1.0
    top_p: Annotated[TopP, Meta(description="Draw only the likeliest tokens, up to this share; 1: all.")] = 1.0
    top_k: Annotated[CountOrZero, Meta(description="Draw only so many of the likeliest tokens; 0: all.")] = 0
    min_p: Annotated[
        Fraction, Meta(description="Draw only tokens that are at least this times as likely as the likeliest; 0: all.")
    ] = 0.0
    stop: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=500)]],
        Meta(description="Texts or special tokens that end an answer besides the model's end tokens; part of it."),
    ] = field(default_factory=list)
    seed: Annotated[CountOrZero, Meta(description="Seed of prompts, sampling and initial weights.")] = 0

    @property
    def truncates(self) -> bool:
        """Whether unlikely tokens are never drawn, so that samples are not quite those of the policy."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    @property
    def takes_weights_in_flight(self) -> bool:
        """Whether engines take new weights while they sample."""
        return self.inflight_updates and self.async_steps > 0

    @property
    def samples_per_step(self) -> int:
        """Samples that one step trains on."""
        return self.prompts_per_step * self.samples_per_prompt


class Lengths(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token limits."""

    prompt: Annotated[Count, Meta(description="Longest prompt, in tokens.")]
    response: Annotated[Count, Meta(description="Longest response, in tokens.")]
    pack: Annotated[
        CountOrZero, Meta(description="Tokens of a row that several samples share; 0: one sample a row.")
    ] = 0
    images: Annotated[
        CountOrZero, Meta(description="Most image tokens of a prompt, within its prompt tokens; 0: no images.")
    ] = 0


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further training set. What it does not say, such as ``chat`` or ``format``, is as ``data`` says."""

    name: Annotated[Name, Meta(description="What its metrics are called by: reward/NAME, solve_rate/NAME.")]
    train: Annotated[Text, Meta(description="As data.train.")]
    weight: Annotated[PositiveFloat, Meta(description="Prompts of it for one of data.train.")] = 1.0
    reward: Annotated[
        str,
        one_of(
            (*ADDED_REWARDS, "none"),
            "As data.reward, for the answers to its prompts.",
        ),
    ] = "exact"
    subset: Annotated[Text, Meta(description="As data.subset.")] = ""
    split: Annotated[Text, Meta(description="As data.split.")] = "train"
    prompt_key: Annotated[Text, Meta(description="As data.prompt_key.")] = ""
    answer_key: Annotated[Text, Meta(description="As data.answer_key.")] = ""
    image_key: Annotated[Text, Meta(description="As data.image_key.")] = ""
    tests_key: Annotated[Text, Meta(description="As data.tests_key.")] = ""
    options: Annotated[list[Text], Meta(description="As data.options.")] = field(default_factory=list)


class Data(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained on, and what is rewarded."""

    train: Annotated[
        Text,
        Meta(
            description="'builtin/sort-digits', 'reasoning-gym/NAME', a Hugging Face dataset, or a local file: JSONL, "
            "JSON or parquet."
        ),
    ]
    reward: Annotated[
        str,
        one_of(
            (*REWARDS, "none"),
            "exact compares texts, or has the task grade; math; code runs tests; coin is a control; http asks "
            "reward_url; judge asks roles.judge; reward_model has roles.reward_model score; none: the teacher's signal "
            "only; or a function of your own, as package.module:function.",
        ),
    ] = "exact"
    added_rewards: Annotated[
        dict[Annotated[str, one_of(ADDED_REWARDS, "")], float],
        Meta(description="Further rewards of every answer, and the factor with which each is added to reward."),
    ] = field(default_factory=dict)
    mixture: Annotated[
        list[Source],
        Meta(description="Further training sets, each with a weight (train has 1) and a reward.", max_length=100),
    ] = field(default_factory=list)
    curriculum_skip: Annotated[
        float,
        Meta(
            ge=0.0,
            lt=1.0,
            description="Chance to pass over a prompt of which all last answers passed, or none; 0: no curriculum.",
        ),
    ] = 0.0
    environment: Annotated[
        str,
        Meta(
            pattern=r"^(|builtin/[a-z-]+|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)\Z",
            max_length=200,
            description="What answers the model in several turns and rewards it: 'builtin/NAME', or a class or agent "
            "of your own as package.module:Name; empty: one turn, judged by reward.",
        ),
    ] = ""
    environment_kind: Annotated[
        Literal["steps", "agent"],
        Meta(description="steps: a class is told each answer; agent: a function asks the policy over HTTP."),
    ] = "steps"
    max_turns: Annotated[Count, Meta(description="Most answers of a sample in an environment.")] = 8
    max_episodes: Annotated[int, Meta(ge=1, le=4096, description="Agents that are at work at once.")] = 64
    reward_timeout_s: Annotated[PositiveFloat, Meta(description="Longest time for one answer, or of one request.")] = (
        10.0
    )
    reward_url: Annotated[Text, Meta(description="Where reward 'http' posts prompts, responses and answers.")] = ""
    reward_token_variable: Annotated[
        Name, Meta(description="Environment variable that holds the bearer token for reward_url.")
    ] = "RLTUI_REWARD_TOKEN"
    judge: Annotated[Judging, Meta(description="What reward 'judge' asks, and how it reads the verdict.")] = field(
        default_factory=Judging
    )
    scoring: Annotated[
        Scoring, Meta(description="What reward 'reward_model' reads, and what its scores are worth.")
    ] = field(default_factory=Scoring)
    format: Annotated[
        Literal["none", "boxed", "answer_tags", "think_answer", "code_block"],
        Meta(description="Form of an answer that earns format_weight of the reward."),
    ] = "none"
    format_weight: Annotated[Fraction, Meta(description="Share of the reward that goes to the form.")] = 0.1
    all_tests: Annotated[bool, Meta(description="Reward 'code': all tests or nothing, or the share passed.")] = False
    allow_open_sandbox: Annotated[
        bool, Meta(description="Run generated code even where the sandbox does not hold it; for trusted code only.")
    ] = False
    subset: Annotated[Text, Meta(description="Subset (configuration) of a Hugging Face dataset.")] = ""
    split: Annotated[Text, Meta(description="Split of a Hugging Face dataset.")] = "train"
    prompt_key: Annotated[Text, Meta(description="Key of the prompt or messages in a row; empty: the usual ones.")] = ""
    answer_key: Annotated[Text, Meta(description="Key of the right answer; empty: the usual ones.")] = ""
    image_key: Annotated[
        Text,
        Meta(description="Key of a row's image or images: paths, base64 or bytes; empty: the usual ones, or messages."),
    ] = ""
    tests_key: Annotated[Text, Meta(description="Key of the tests for reward 'code'; empty: the usual ones.")] = ""
    chat: Annotated[bool, Meta(description="Put prompts of plain text into the model's chat template.")] = False
    system: Annotated[str, Meta(description="What the system says first in a chat.", max_length=5000)] = ""
    options: Annotated[list[Text], Meta(description="Settings of a reasoning-gym task, such as 'max_digits=3'.")] = (
        field(default_factory=list)
    )
    digits: Annotated[int, Meta(description="Digits to sort in 'builtin/sort-digits'.", ge=2, le=8)] = 3
    eval: Annotated[Text, Meta(description="Evaluation set, in the forms of train; empty: none.")] = ""
    eval_every: Annotated[
        CountOrZero, Meta(description="Steps between evaluations, besides those at step 0 and at the end; 0: none.")
    ] = 0
    eval_split: Annotated[Text, Meta(description="Split of an evaluation set of the Hugging Face hub.")] = "test"
    eval_prompts: Annotated[
        CountOrZero, Meta(description="Prompts of an evaluation; 0: all rows, or 64 of a task without end.")
    ] = 0
    eval_samples: Annotated[Count, Meta(description="Answers to each prompt of an evaluation.")] = 1
    eval_temperature: Annotated[NonNegativeFloat, Meta(description="Temperature of evaluations; 0: greedy.")] = 0.0
    eval_top_p: Annotated[TopP, Meta(description="As train.top_p, for evaluations.")] = 1.0
    eval_top_k: Annotated[CountOrZero, Meta(description="As train.top_k, for evaluations.")] = 0
    eval_min_p: Annotated[Fraction, Meta(description="As train.min_p, for evaluations.")] = 0.0
    eval_pass: Annotated[
        PositiveFloat, Meta(description="An answer that earns at least this passes: in pass@k and in solve rates.")
    ] = 1.0


FIRST_SOURCE = "train"
"""The name of ``data.train`` among several training sets."""


def sources(data: Data) -> list[tuple[str, float, Data]]:
    """Name, weight and settings of every training set, that of ``train`` first; in none of them there is a mixture."""
    plain = structs.replace(data, mixture=[])
    others = [(one.name, one.weight, _settings_of(one, plain)) for one in data.mixture]
    return [(FIRST_SOURCE, 1.0, plain), *others]


def rewards_of(data: Data) -> list[str]:
    """Every reward that answers to prompts of any training set get, once."""
    return list(dict.fromkeys((*(one.reward for _, _, one in sources(data)), *data.added_rewards)))


def _settings_of(source: Source, data: Data) -> Data:
    own = {name: value for name, value in structs.asdict(source).items() if name not in ("name", "weight")}
    return structs.replace(data, **own)


MIXTURE_BLOCK = 1000
"""Prompts among which every training set has its share exactly."""


def prompts_per_block(data: Data) -> list[int]:
    """Prompts of each training set among ``MIXTURE_BLOCK``, in the order of ``sources``: by largest remainder."""
    weights = [weight for _, weight, _ in sources(data)]
    exact = [MIXTURE_BLOCK * weight / sum(weights) for weight in weights]
    counts = [int(count) for count in exact]
    by_remainder = sorted(range(len(exact)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: MIXTURE_BLOCK - sum(counts)]:
        counts[place] += 1
    return counts


class Checkpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When checkpoints are written and how many are kept."""

    every: Annotated[CountOrZero, Meta(description="Steps between checkpoints; 0: only at the end.")] = 25
    keep: Annotated[Count, Meta(description="Newest complete checkpoints to keep.")] = 3
    export: Annotated[
        bool, Meta(description="When all steps are done, write the policy as a Hugging Face folder below export/.")
    ] = False
    push_to_hub: Annotated[
        str,
        Meta(
            pattern=r"^(|[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)\Z",
            max_length=200,
            description="ORGANISATION/NAME on the Hugging Face hub to which that folder is pushed; empty: not.",
        ),
    ] = ""
    push_public: Annotated[bool, Meta(description="Whether a repository that is made for it is public.")] = False


class Deadlines(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Most seconds that Ray and the roles are waited for; what takes longer counts as hung."""

    ray_s: Annotated[
        Seconds, Meta(description="Until Ray's head is up; its other nodes have five minutes at least.")
    ] = 120.0
    place_s: Annotated[
        Seconds, Meta(description="Until Ray has a place for all bundles; then, until processes run.")
    ] = 300.0
    load_s: Annotated[Seconds, Meta(description="Until all roles have loaded their model, or a checkpoint.")] = 1800.0
    generate_s: Annotated[
        Seconds, Meta(description="For one call of an engine: up to max_concurrency samples, whole groups.")
    ] = 3600.0
    train_s: Annotated[Seconds, Meta(description="For a step of the learners, and for scores that it needs.")] = 3600.0
    sync_s: Annotated[
        Seconds, Meta(description="For weights: until all have joined, and for each bucket; to sleep, and to wake.")
    ] = 300.0
    environment_s: Annotated[Seconds, Meta(description="For a reset or a step of an environment.")] = 30.0
    episode_s: Annotated[Seconds, Meta(description="For one sample of an agent.")] = 600.0
    save_s: Annotated[Seconds, Meta(description="Until a checkpoint is written.")] = 1800.0
    push_s: Annotated[Seconds, Meta(description="Until the model is on the hub; and in W&B.")] = 1800.0


class Tracking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where metrics go besides metrics.jsonl."""

    wandb: Annotated[Literal["online", "offline", "disabled"], Meta(description="W&B mode.")] = "offline"
    project: Annotated[Text, Meta(description="W&B project.", min_length=1)] = "rltui"
    entity: Annotated[Text, Meta(description="W&B entity; empty: the account's default.")] = ""
    samples: Annotated[bool, Meta(description="Send some of the answers as tables, at most every five minutes.")] = (
        False
    )
    artifact: Annotated[bool, Meta(description="When all steps are done, send the model as an artefact.")] = False


class Container(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The container that a job's processes run in: docs/clusters.md. What is empty comes from the cluster."""

    runtime: Annotated[
        Literal["", "none", "apptainer", "singularity", "pyxis", "docker", "podman"],
        Meta(description="What starts it; none: no container, whatever the cluster says."),
    ] = ""
    image: Annotated[
        ImageName, Meta(description="A path that the nodes see (.sif, .sqsh, a folder), or a name that can be fetched.")
    ] = ""
    mounts: Annotated[
        list[Mount],
        Meta(description="Besides the runs' folder, code, home, /tmp and /dev/shm, which are always mounted."),
    ] = field(default_factory=list)
    options: Annotated[list[RuntimeOption], Meta(description="Further words for the runtime, such as '--rocm'.")] = (
        field(default_factory=list)
    )
    outer_python: Annotated[
        str,
        Meta(
            description="Python of the node itself, 3.8 or newer, for what stays outside; empty: python3.",
            max_length=500,
        ),
    ] = ""


class Slurm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the Slurm job; clusters that are not Slurm ignore them. What is empty comes from the cluster."""

    partition: Text = ""
    account: Text = ""
    qos: Text = ""
    constraint: Annotated[Text, Meta(description="Node features, such as 'h100&ib'.")] = ""
    reservation: Annotated[Text, Meta(description="Nodes kept for you; `rltui nodes` lists what there is.")] = ""
    licenses: Annotated[Text, Meta(description="Licences that the job holds, such as 'data:2,tool@server'.")] = ""
    time: Annotated[str, Meta(description="Time limit, as HH:MM:SS or D-HH:MM:SS.", max_length=20)] = "24:00:00"
    exclude: Annotated[list[Name], Meta(description="Nodes to keep away from.")] = field(default_factory=list)
    exclusive: Annotated[
        bool | None,
        Meta(description="Whole nodes, shared with nobody; null: unless the layout leaves GPUs of its nodes unused."),
    ] = None
    mem_gib: Annotated[CountOrZero, Meta(description="Memory of each node, GiB; 0: all of a whole node.")] = 0
    requeue: Annotated[
        bool, Meta(description="Whether Slurm starts the job again after a node failure or preemption.")
    ] = True
    signal_lead_s: Annotated[
        int,
        Meta(description="Seconds before the time limit at which the trainer saves and ends.", ge=60, le=36_000),
    ] = 600
    options: Annotated[
        list[SbatchOption], Meta(description="Further options of sbatch, such as '--reservation=rl'.")
    ] = field(default_factory=list)
    container: Container = field(default_factory=Container)
