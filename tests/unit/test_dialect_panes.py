"""What is seen of each system: the table of docs/dialects.md, each cell made from what the system says or writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import Struct
from test_dialects import DIALECTS, SAID, follow, metrics

from rltui.onnode.metric_names import canonical_values
from rltui.watch.node_samples import HostSnapshot
from rltui.watch.owners import ROLE_NAMES, Owners, patterns_of, role_letter, title_letter
from rltui.watch.snapshots import ActorSnapshot

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"

PANES: dict[str, tuple[str, ...]] = {
    "reward": ("reward",),
    "tokens/s": ("learner_tokens_per_second_step", "actor_tokens_per_second"),
    "phases": ("time/generate", "time/train"),
    "lengths": ("response_length",),
    "loss": ("loss", "grad_norm"),
    "idle": ("time/learner_idle", "time/engine_idle", "learner_idle_fraction", "engine_idle_fraction"),
}
"""Pane → metrics by our names, of which one is enough."""

# What each system writes into its own, W&B's or TensorBoard's file, as its own code words it (addresses: its dialect).
WRITES: dict[str, list[str]] = {
    "verl": [
        "critic/rewards/mean", "perf/total_num_tokens", "timing_s/step", "timing_s/gen", "timing_s/update_actor",
        "response_length/mean", "actor/pg_loss", "actor/grad_norm", "fully_async/trainer/idle_ratio",
    ],
    "slime": [
        "rollout/raw_reward", "rollout/response_len/mean", "perf/rollout_time", "perf/actor_train_time",
        "perf/train_wait_time", "perf/actor_train_tok_per_s", "train/loss", "train/grad_norm",
    ],
    "prime-rl": [
        "train/agg/effective/sort/reward/mean", "perf/throughput", "time/forward_backward", "loss/mean",
        "train/agg/effective/num_output_tokens/mean", "time/wait_for_batch", "optim/grad_norm",
    ],
    "open-instruct": [
        "scores", "learner_tokens_per_second_step", "val/actor_tokens_per_second", "time/training", "loss/policy_avg",
        "val/sequence_lengths", "time/getting_response", "time/trainer_waiting_for_data",
    ],
    "trl": ["reward", "step_time", "completions/mean_length", "loss", "grad_norm", "num_tokens"],
    "nemo-rl": [
        "train/reward", "performance/tokens_per_sec", "timing/train/generation", "timing/train/policy_training",
        "mean_gen_tokens_per_sample", "loss", "grad_norm",
    ],
    "skyrl": [
        "reward/avg_raw_reward", "timing/generate", "timing/policy_train", "generate/avg_num_tokens",
        "policy/policy_loss", "trainer/tokens_per_second_per_gpu",
    ],
    "openrlhf": [
        "rollout/reward_mean", "rollout/response_length_mean", "timing/generation", "timing/ppo_train", "policy_loss",
    ],
    "openrlhf-flat": ["reward", "response_length", "policy_loss", "actor_grad_norm"],
    "areal": ["ppo_actor/task_reward/avg", "timeperf/rollout", "timeperf/train_step", "seq_len/avg"],
    "generic": [],
}  # fmt: skip

# What holds a card, by its Ray actor's class and name or by its title, and the role that it must be taken for.
CLASSES: dict[str, dict[str, str]] = {
    "verl": {
        "WorkerDict w_0:0": "learner", "ActorRolloutRefWorker a_0:1": "learner", "DetachActorWorker ": "learner",
        "TrainingWorker c_0:0": "critic", "vLLMHttpServer vllm_server_0_0": "engine", "TaskRunnerV1 ": "",
        "SGLangHttpServer sglang_server_0_0": "engine", "CheckpointEngineWorker ": "engine", "AgentLoopWorker ": "",
        "RewardLoopWorker ": "reward",
    },
    "slime": {
        "MegatronTrainRayActor ": "learner", "SGLangEngine ": "engine", "RolloutManager ": "", "InfoActor ": "",
        "TeacherLogpRayActor ": "teacher",
    },
    "open-instruct": {
        "PolicyTrainerRayProcess ": "learner", "LLMRayActor ": "engine", "ActorManager ": "",
        "DataPreparationActor data_prep_singleton": "",
    },
    "nemo-rl": {
        "DTensorPolicyWorkerV2 lm_policy-0-1": "learner", "MegatronPolicyWorker student-grp0-1": "learner",
        "VllmAsyncGenerationWorker vllm_policy-0-0": "engine", "SGLangGenerationWorker ": "engine",
        "DTensorPolicyWorker teacher-0-0": "teacher", "DTensorValueWorkerV2 lm_value-0-0": "critic",
        "DTensorPolicyWorker reward_model_policy-0-0": "reward", "ReplayBuffer ": "",
    },
    "skyrl": {
        "FSDPPolicyWorkerBase ": "learner", "MegatronCriticWorkerBase ": "critic", "FSDPRefWorkerBase ": "reference",
        "VLLMServerActor ": "engine", "InfoActor ": "",
    },
    "openrlhf": {
        "PolicyModelActor ": "learner", "CriticModelActor ": "critic", "ReferenceModelActor ": "reference",
        "RewardModelActor ": "reward", "RolloutRayActor ": "engine", "GenerateSamplesActor ": "",
    },
}  # fmt: skip
TITLES: dict[str, dict[str, str]] = {
    "verl": {"ray::WorkerDict.actor_rollout_update_actor": "learner", "VLLM::Worker_TP1": "engine"},
    "slime": {"ray::MegatronTrainRayActor.train": "learner", "sglang::scheduler_TP0": "engine"},
    "prime-rl": {
        "PRIME-RL::Trainer": "learner", "PRIME-RL::Inference": "engine", "PRIME-RL::Launcher": "",
        "PRIME-RL::EnvServer": "reward",
    },
    "trl": {
        "python grpo.py --output_dir out": "learner", "python -u /home/me/grpo.py": "learner",
        "python /env/bin/accelerate launch grpo.py": "", "python -m torch.distributed.run grpo.py": "",
        "python /env/bin/trl vllm-serve --model Qwen/Qwen3-": "engine", "VLLM::EngineCore": "engine",
    },
    "areal": {
        "python -u examples/gsm8k_rl.py --config": "learner", "sglang::scheduler_TP0": "engine",
        "python -m areal.launcher.sglang_server": "engine",
    },
    "skyrl": {"ray::FSDPPolicyWorkerBase.forward": "learner"},
}  # fmt: skip
TITLES["openrlhf-flat"] = {"ray::PolicyModelActor.fit": "learner"}
FULL, PARTLY, NONE = "●", "◐", "·"


class Seen(Struct, frozen=True):
    """The metrics of a system by our names: those that a file of it tells, and those that its console says."""

    written: frozenset[str]
    said: frozenset[str]

    def cell(self, wanted: tuple[str, ...]) -> str:
        """The mark of a pane that shows one of the metrics ``wanted``."""
        if self.written.intersection(wanted):
            return FULL
        return PARTLY if self.said.intersection(wanted) else NONE


def seen_of(name: str, tmp_path: Path) -> Seen:
    """What comes out of a system's file and console, through the readers that a node uses."""
    follower = follow(tmp_path, name, next((lines for system, lines, _, _ in SAID if system == name), []))
    told: Mapping[str, float] = {}
    for values in metrics(tmp_path).values():
        told = {**told, **values}
    prefix = DIALECTS[name].metrics.prefix
    written = follower._named({one.removeprefix(prefix): 1.0 for one in WRITES[name]})
    return Seen(frozenset(canonical_values(written)), frozenset(told))


def row_of(name: str, tmp_path: Path) -> str:
    """A row of the table."""
    seen, dialect = seen_of(name, tmp_path), DIALECTS[name]
    cells = [seen.cell(wanted) for wanted in PANES.values()]
    cells.append(FULL if CLASSES.get(name) or TITLES.get(name) else NONE)
    cells.append(FULL if dialect.needs_ray else NONE)
    keeps, resume = bool(dialect.checkpoints.places), dialect.resume
    cells.append(FULL if keeps else NONE)
    cells.append(FULL if keeps and resume.possible else PARTLY if keeps or resume.words else NONE)
    return f"| {name} | {' | '.join(cells)} |"


def test_the_table_of_the_page_is_what_comes_out(tmp_path: Path) -> None:
    rows = []
    for name in sorted(DIALECTS):
        folder = tmp_path / name
        folder.mkdir()
        rows.append(row_of(name, folder))
    head = f"| | {' | '.join(PANES)} | roles of cards | actors | checkpoints | resume |"
    table = "\n".join([head, "|---" * (len(PANES) + 5) + "|", *rows])
    assert table in PAGE.read_text(), f"put this table into {PAGE.name}:\n{table}"


@pytest.mark.parametrize("name", CLASSES)
def test_actors_have_the_roles_that_their_system_gives_them(name: str) -> None:
    patterns = patterns_of(name)
    found = {words: ROLE_NAMES.get(role_letter(words, patterns), "") for words in CLASSES[name]}
    assert found == CLASSES[name]
    class_name, _, own_name = next(iter(CLASSES[name])).partition(" ")
    actor = ActorSnapshot(actor_id="a", class_name=class_name, name=own_name, state="ALIVE", node="n1", pid=7)
    owner = Owners([actor], patterns).of(HostSnapshot(host="n1"), [7])
    assert ROLE_NAMES[owner.letter] == next(iter(CLASSES[name].values()))


@pytest.mark.parametrize("name", TITLES)
def test_processes_have_the_roles_that_their_titles_give_them(name: str) -> None:
    patterns = patterns_of(name)
    assert {title: ROLE_NAMES.get(title_letter(title, patterns), "") for title in TITLES[name]} == TITLES[name]


def test_what_no_dialect_speaks_of_is_named_by_the_bundled_trainers_words() -> None:
    assert patterns_of("grpo") is patterns_of("no such system")
    assert title_letter("python learner.py") == ""
    assert title_letter("sglang::scheduler_TP0") == "E"
    assert (title_letter("VLLM::judge 0::EngineCore"), title_letter("ray::Judge.stream")) == ("J", "J")
