"""What each training system says and writes, one entry a dialect: the examples of its tests."""

from __future__ import annotations

from msgspec import Struct


class System(Struct, frozen=True, kw_only=True):
    """Examples of one system, as its own code words them (addresses: its dialect).

    Attributes:
        command: A command of a script that gives it away.
        lines: Lines of its console.
        at: Step and steps that these say.
        values: Metrics that come out of them, by our names.
        writes: Names of metrics in its own, W&B's or TensorBoard's file.
        actors: Class and name of Ray actors, and the role that each must be taken for; empty: none.
        titles: The same by titles of processes.
    """

    command: str = ""
    lines: tuple[str, ...]
    at: tuple[int | None, int | None]
    values: dict[str, float]
    writes: tuple[str, ...] = ()
    actors: dict[str, str] = {}
    titles: dict[str, str] = {}


SYSTEMS = {
    "verl": System(
        command="python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B",
        lines=(
            "\x1b[36m(TaskRunnerV1 pid=71)\x1b[0m Training Progress:   1%|1   | 6/624 [10:00<103:53:21, 600.3s/it]",
            "\x1b[36m(TaskRunnerV1 pid=71)\x1b[0m step:7 - actor/pg_loss:-0.25 - "
            "critic/rewards/mean:np.float64(0.5) - timing_s/step:12.5 - response_length/clip_ratio:0.0",
        ),
        at=(7, 624),
        values={"loss": -0.25, "reward": 0.5, "time/total": 12.5, "truncated_fraction": 0.0},
        writes=(
            "critic/rewards/mean", "perf/total_num_tokens", "timing_s/step", "timing_s/gen", "timing_s/update_actor",
            "response_length/mean", "actor/pg_loss", "actor/grad_norm", "fully_async/trainer/idle_ratio",
        ),
        actors={
            "WorkerDict w_0:0": "learner", "ActorRolloutRefWorker a_0:1": "learner", "DetachActorWorker ": "learner",
            "TrainingWorker c_0:0": "critic", "vLLMHttpServer vllm_server_0_0": "engine", "TaskRunnerV1 ": "",
            "SGLangHttpServer sglang_server_0_0": "engine", "CheckpointEngineWorker ": "engine",
            "AgentLoopWorker ": "", "RewardLoopWorker ": "reward",
        },
        titles={"ray::WorkerDict.actor_rollout_update_actor": "learner", "VLLM::Worker_TP1": "engine"},
    ),
    "slime": System(
        command="ray job submit -- python3 train.py --actor-num-gpus-per-node 4 --rollout-num-gpus 4",
        lines=(
            "(RolloutManager pid=9, ip=10.0.0.2) [2026-01-01 10:00:00] rollout_metrics.py:41 - rollout 3: "
            "{'rollout/raw_reward': 0.25, 'rollout/response_len/mean': 801.5}",
            "[2026-01-01 10:01:00] train_metric_utils.py:9 - perf 3: {'perf/step_time': 61.0, "
            "'perf/rollout_time': 40.0}",
            "(MegatronTrainRayActor pid=4) actor.py:7 - step 6: {'train/loss': 0.5, 'train/grad_norm': "
            "np.float32(1.5)}",
        ),
        at=(3, None),
        values={
            "reward": 0.25, "response_length": 801.5, "time/total": 61.0, "time/generate": 40.0, "loss": 0.5,
            "grad_norm": 1.5,
        },
        writes=(
            "rollout/raw_reward", "rollout/response_len/mean", "perf/rollout_time", "perf/actor_train_time",
            "perf/train_wait_time", "perf/actor_train_tok_per_s", "train/loss", "train/grad_norm",
        ),
        actors={
            "MegatronTrainRayActor ": "learner", "SGLangEngine ": "engine", "RolloutManager ": "", "InfoActor ": "",
            "TeacherLogpRayActor ": "teacher",
        },
        titles={"ray::MegatronTrainRayActor.train": "learner", "sglang::scheduler_TP0": "engine"},
    ),
    "prime-rl": System(
        command="uv run rl @ configs/rl.toml",
        lines=(
            "12:00:01 SUCCESS Step 4 | Time: 9.1s | Reward: 0.7500 | Seq. Length: 210",
            "12:00:02 SUCCESS Step 4 | Time: 9.0s | Loss: 0.0125 | Entropy: 0.5 | Mismatch KL: 0.0004 | Grad. "
            "Norm: 0.25 | LR: 1.00e-06 | Throughput: 12,345 tokens/s | MFU: 31.0% | Peak Mem.: 61.5 GiB",
        ),
        at=(4, None),
        values={
            "reward": 0.75, "loss": 0.0125, "entropy": 0.5, "mismatch_kl": 0.0004, "grad_norm": 0.25,
            "learning_rate": 1e-06, "learner_tokens_per_second_step": 12345.0, "learner_memory_gib": 61.5,
        },
        writes=(
            "train/agg/effective/sort/reward/mean", "perf/throughput", "time/forward_backward", "loss/mean",
            "train/agg/effective/num_output_tokens/mean", "time/wait_for_batch", "optim/grad_norm",
        ),
        titles={
            "PRIME-RL::Trainer": "learner", "PRIME-RL::Inference": "engine", "PRIME-RL::Launcher": "",
            "PRIME-RL::EnvServer": "reward",
        },
    ),
    "trl": System(
        command="accelerate launch -m trl.scripts.grpo --output_dir out",
        lines=(
            "Writing model shards: 100%|██████████| 1/1 [00:00<00:00, 66.2it/s]",
            "  2%|▏         | 2/100 [00:05<04:10,  2.5s/it]",
            "{'loss': '0.002', 'grad_norm': '1.5', 'num_tokens': '2050', 'reward': '0.75', 'step_time': '0.5'}",
        ),
        at=(2, 100),
        values={"loss": 0.002, "grad_norm": 1.5, "reward": 0.75, "time/total": 0.5},
        writes=("reward", "step_time", "completions/mean_length", "loss", "grad_norm", "num_tokens"),
        titles={
            "python grpo.py --output_dir out": "learner", "python -u /home/me/grpo.py": "learner",
            "python /env/bin/accelerate launch grpo.py": "", "python -m torch.distributed.run grpo.py": "",
            "python /env/bin/trl vllm-serve --model Qwen/Qwen3-": "engine", "VLLM::EngineCore": "engine",
        },
    ),
    "nemo-rl": System(
        command="uv run python examples/run_grpo_math.py --config grpo.yaml",
        lines=(
            "========================= Step 5/500 =========================",
            "▶ Training policy...",
            "  • Total step time: 33.50s",
            "  • policy_training: 10.25s (30.6%)",
            "  • generation: 20.00s (59.7%)",
        ),
        at=(5, 500),
        values={"time/total": 33.5, "time/train": 10.25, "time/generate": 20.0},
        writes=(
            "train/reward", "performance/tokens_per_sec", "timing/train/generation", "timing/train/policy_training",
            "mean_gen_tokens_per_sample", "loss", "grad_norm",
        ),
        actors={
            "DTensorPolicyWorkerV2 lm_policy-0-1": "learner", "MegatronPolicyWorker student-grp0-1": "learner",
            "VllmAsyncGenerationWorker vllm_policy-0-0": "engine", "SGLangGenerationWorker ": "engine",
            "DTensorPolicyWorker teacher-0-0": "teacher", "DTensorValueWorkerV2 lm_value-0-0": "critic",
            "DTensorPolicyWorker reward_model_policy-0-0": "reward", "ReplayBuffer ": "",
        },
    ),
    "skyrl": System(
        command="python -m skyrl_train.entrypoints.main_base generator.inference_engine.num_engines=4",
        lines=(
            "(skyrl_entrypoint pid=3) INFO Step 6:",
            "(skyrl_entrypoint pid=3) {'reward/avg_raw_reward': 0.5,",
            "(skyrl_entrypoint pid=3)  'timing/step': 8.25,",
            "(skyrl_entrypoint pid=3)  'policy/grad_norm': 0.125}",
        ),
        at=(6, None),
        values={"reward": 0.5, "time/total": 8.25, "grad_norm": 0.125},
        writes=(
            "reward/avg_raw_reward", "timing/generate", "timing/policy_train", "generate/avg_num_tokens",
            "policy/policy_loss", "trainer/tokens_per_second_per_gpu",
        ),
        actors={
            "FSDPPolicyWorkerBase ": "learner", "MegatronCriticWorkerBase ": "critic",
            "FSDPRefWorkerBase ": "reference", "VLLMServerActor ": "engine", "InfoActor ": "",
        },
        titles={"ray::FSDPPolicyWorkerBase.forward": "learner"},
    ),
    "openrlhf": System(
        command="python3 -m openrlhf.cli.train_ppo_ray --actor.num_gpus_per_node 8",
        lines=(
            "✨ Global step 8: {'policy_loss': -0.5, 'actor_grad_norm': 0.25, 'timing/step_total': 4.5}",
        ),
        at=(8, None),
        values={"loss": -0.5, "grad_norm": 0.25, "time/total": 4.5},
        writes=(
            "rollout/reward_mean", "rollout/response_length_mean", "timing/generation", "timing/ppo_train",
            "policy_loss",
        ),
        actors={
            "PolicyModelActor ": "learner", "CriticModelActor ": "critic", "ReferenceModelActor ": "reference",
            "RewardModelActor ": "reward", "RolloutRayActor ": "engine", "GenerateSamplesActor ": "",
        },
    ),
    "openrlhf-flat": System(
        command="python3 -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 8 --vllm_num_engines 4",
        lines=(
            "INFO:openrlhf: ✨ Global step 9: {'policy_loss': -0.5, 'reward': 0.25, 'response_length': 801.0}",
        ),
        at=(9, None),
        values={"loss": -0.5, "reward": 0.25},
        writes=("reward", "response_length", "policy_loss", "actor_grad_norm"),
        titles={"ray::PolicyModelActor.fit": "learner"},
    ),
    "areal": System(
        command="python3 -m areal.launcher.slurm examples/gsm8k.py --config grpo.yaml",
        lines=(
            "Epoch 1/2 Step 3/50 Train step 3/100 done.",
            "│ ppo_actor/task_reward/avg │ 5.0000e-01 │",
            "│ timeperf/rollout          │ 1.2500e+01 │",
        ),
        at=(3, 100),
        values={"reward": 0.5, "time/generate": 12.5},
        writes=("ppo_actor/task_reward/avg", "timeperf/rollout", "timeperf/train_step", "seq_len/avg"),
        titles={
            "python -u examples/gsm8k_rl.py --config": "learner", "sglang::scheduler_TP0": "engine",
            "python -m areal.launcher.sglang_server": "engine",
        },
    ),
    "open-instruct": System(
        command="python open_instruct/grpo_fast.py --vllm_num_engines 4",
        lines=(
            "training_step: 9 scores: 4.5 time/total: 30.0",
        ),
        at=(9, None),
        values={"reward": 4.5},
        writes=(
            "scores", "learner_tokens_per_second_step", "val/actor_tokens_per_second", "time/training",
            "loss/policy_avg", "val/sequence_lengths", "time/getting_response", "time/trainer_waiting_for_data",
        ),
        actors={
            "PolicyTrainerRayProcess ": "learner", "LLMRayActor ": "engine", "ActorManager ": "",
            "DataPreparationActor data_prep_singleton": "",
        },
    ),
    "generic": System(
        lines=(
            "Step 10/20: loss=0.5, reward=1.0",
        ),
        at=(10, 20),
        values={"loss": 0.5, "reward": 1.0},
    ),
}  # fmt: skip
