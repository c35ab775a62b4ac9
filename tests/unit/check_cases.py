"""For each rule: a layout that it speaks about, and the nearest one about which it is silent.

A case is (code, base layout, overrides with which it fires, overrides with which it is silent).
"""

from __future__ import annotations

from pathlib import Path

from rltui.layout.presets import resolve

TINY = resolve("local/grpo-tiny").read_text()

GPU = """
layout: 1
name: gpu
algorithm: grpo
hardware: {nodes: 2, gpus_per_node: 4, gpu: H100-SXM-80GB}
roles:
  learner: {model: Qwen/Qwen3-8B, gpus: [2, 2], zero_stage: 3, micro_batch: 1, gradient_checkpointing: true}
  rollout: {engines: 4}
train: {steps: 100, prompts_per_step: 32, samples_per_prompt: 8, learning_rate: 1.0e-6}
lengths: {prompt: 1024, response: 4096}
data: {train: org/math, reward: math}
"""

PPO = """
layout: 1
name: ppo
algorithm: ppo
hardware: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-80GB}
pools:
  policy: {gpus: [2]}
  value: {gpus: [2]}
roles:
  learner: {model: Qwen/Qwen2.5-1.5B, pool: policy, zero_stage: 3, micro_batch: 1, gradient_checkpointing: true}
  rollout: {pool: policy, memory_utilization: 0.5, sleep_while_training: true}
  critic: {pool: value, micro_batch: 4, gradient_checkpointing: true}
train: {steps: 100, prompts_per_step: 32, samples_per_prompt: 1, learning_rate: 1.0e-6}
lengths: {prompt: 512, response: 512}
data: {train: org/math, reward: math}
"""

OPD = """
layout: 1
name: opd
algorithm: opd
hardware: {nodes: 1, gpus_per_node: 8, gpu: H100-SXM-80GB}
roles:
  learner: {model: Qwen/Qwen3-VL-4B-Thinking, gpus: [2], zero_stage: 3, micro_batch: 1, gradient_checkpointing: true}
  rollout: {engines: 2}
  teacher: {model: Qwen/Qwen3-VL-30B-A3B-Thinking, tensor_parallel: 4}
train: {steps: 100, prompts_per_step: 64, samples_per_prompt: 4, learning_rate: 1.0e-6}
lengths: {prompt: 2048, response: 4096, images: 1024}
data: {train: org/geometry, reward: none}
"""

BASES = {"tiny": TINY, "gpu": GPU, "ppo": PPO, "opd": OPD}

WIDE = ["hardware.nodes=3", "roles.rollout.engines=2", "roles.rollout.tensor_parallel=3"]
VLLM = "roles.rollout.engine=vllm"
REWARD = "roles.reward={workers: 4}"
EVALUATED = ["data.eval=org/test", "data.eval_every=10"]
GSPO = ["grpo.ratio=sequence", "grpo.clip_low=3e-4", "grpo.clip_high=4e-4", "grpo.aggregation=sequence"]
SCORED = ["roles.reward_model={model: Skywork/Qwen3-8B}", "roles.rollout.engines=3", "data.reward=reward_model"]
LANGUAGE_MODEL = Path(__file__).parents[1] / "fixtures" / "language-model"
JUDGE = ["roles.judge={model: Qwen/Qwen3-8B}", "roles.rollout.engines=3", "data.reward=judge"]
CORES = "hardware.cpus_per_node=32"
SHARED = ["roles.learner.gpus=[]", "roles.learner.pool=all", "roles.rollout.pool=all", "roles.rollout.engines=0",
          "pools={all: {gpus: [4, 4]}}", "roles.rollout.sleep_while_training=true",
          "roles.rollout.memory_utilization=0.5"]  # fmt: skip

APART = "hardware.more={rollouts: {roles: [rollout], nodes: 1, gpus_per_node: 4, gpu: L40S}}"
TWO = "hardware.more.critics"
CRITICS = f"{TWO}={{roles: [critic], nodes: 1, gpus_per_node: 2}}"

Case = tuple[str, str, list[str], list[str]]

PLACEMENT: list[Case] = [
    ("P101", "tiny", ["roles.rollout.engines=2"], ["roles.rollout.engines=1"]),
    ("P102", "tiny", ["roles.learner.gpus=[4]"], ["roles.learner.gpus=[2]"]),
    ("P103", "tiny", ["roles.learner.gpus=[1,1]"], ["roles.learner.gpus=[1,1]", "hardware.nodes=2"]),
    ("P104", "tiny", ["roles.rollout.tensor_parallel=4", VLLM], [VLLM]),
    ("P105", "tiny", [*WIDE, "roles.learner.gpus=[1,1,1]"], [*WIDE, "roles.learner.gpus=[1]"]),
    ("P106", "tiny", ["hardware.gpus_per_node=5"], []),
    ("P107", "tiny", ["hardware.cpus_per_node=2"], ["hardware.cpus_per_node=3"]),
    ("P108", "ppo", ["roles.critic.pool=valve"], []),
    ("P109", "ppo", ["roles.learner.gpus=[2]"], []),
    ("P110", "gpu", ["roles.learner.gpus=[]"], []),
    ("P111", "gpu", ["roles.rollout.engines=0"], SHARED),
    ("P112", "ppo", ["roles.critic.pool=policy"], []),
    ("P113", "ppo", ["pools.value.gpus=[1, 1]"], ["pools.value.gpus=[1, 1]", "hardware.nodes=2"]),
    ("P114", "ppo", ["pools.value.gpus=[5]"], ["pools.value.gpus=[2]"]),
    ("P115", "ppo", ["roles.rollout.tensor_parallel=4"], ["roles.rollout.tensor_parallel=2"]),
    ("P116", "ppo", ["roles.rollout.engines=3"], ["roles.rollout.engines=2"]),
    ("P117", "ppo", ["roles.rollout.engines=1"], ["roles.rollout.engines=1", "roles.rollout.tensor_parallel=2"]),
    ("P118", "gpu", ["roles.learner.gpus=[3, 1]", "roles.learner.tensor_parallel=2"],
     ["roles.learner.tensor_parallel=2"]),
    ("P121", "gpu", ["roles.learner.gpus=[1, 1]", "roles.rollout.engines=2", "roles.rollout.tensor_parallel=2"],
     ["roles.learner.gpus=[2, 2]", "roles.rollout.engines=2", "roles.rollout.tensor_parallel=2"]),
    ("P122", "opd", ["roles.teacher.tensor_parallel=16"], []),
    ("P101", "gpu", [*SCORED, "roles.reward_model.engines=2"], SCORED),
    ("P122", "gpu", [*JUDGE, "roles.judge.tensor_parallel=8"], JUDGE),
    ("P123", "gpu", ["hardware.gpus_outside_ray=4"], ["hardware.gpus_outside_ray=1"]),
    ("P124", "opd", ["hardware.gpus_outside_ray=1"], []),
    ("P125", "gpu", [REWARD], [REWARD, CORES]),
    ("P125", "gpu", ["roles.reward={workers: 1, cpus_per_worker: 2}"], ["roles.reward={workers: 2}"]),
    ("P130", "gpu", [*SHARED, "train.async_steps=1"], SHARED),
    ("P131", "gpu", [*SHARED, "roles.rollout.sleep_while_training=false"],
     [*SHARED, "roles.rollout.sleep_while_training=false", "roles.rollout.engine=hf"]),
    ("P132", "gpu", ["roles.rollout.sleep_while_training=true"], []),
    ("P133", "ppo", ["pools={policy: {gpus: [2]}, value: {gpus: [1]}}"], []),
    ("P101", "gpu", [APART, "roles.rollout.engines=5"], [APART]),
    ("P103", "gpu", [APART, "roles.learner.gpus=[1, 1, 1]"], [APART, "roles.learner.gpus=[1, 1]"]),
    ("P104", "gpu", [APART, "hardware.gpus_per_node=8", "roles.rollout.tensor_parallel=8"],
     [APART, "hardware.gpus_per_node=2", "roles.rollout.tensor_parallel=4", "roles.rollout.engines=1"]),
    ("P113", "ppo", ["pools.value.gpus=[1, 1]", CRITICS], ["pools.value.gpus=[1, 1]", CRITICS, f"{TWO}.nodes=2"]),
    ("P134", "gpu", [APART, "hardware.more.rollouts.roles=[rollouts]"], [APART]),
    ("P134", "gpu", [APART, "hardware.more.rollouts.roles=[]"], [APART]),
    ("P134", "gpu", [APART, "hardware.more.rollouts.roles=[rollout, teacher]"], [APART]),
    ("P134", "gpu", [APART, "hardware.more.rollouts.roles=[rollout, rollout]"], [APART]),
    ("P134", "gpu", [APART, "hardware.more.again={roles: [rollout], nodes: 1, gpus_per_node: 4}"], [APART]),
    ("P134", "gpu", [*SHARED, APART], [APART]),
    ("P135", "gpu", [APART, "hardware.more.rollouts.gpu=cpu"], [APART]),
]  # fmt: skip

BATCH: list[Case] = [
    ("B201", "tiny", ["train.steps=0"], ["train.steps=1"]),
    ("B202", "tiny", ["train.prompts_per_step=3", "train.samples_per_prompt=3"], ["train.prompts_per_step=4"]),
    ("B203", "tiny", ["roles.learner.micro_batch=48"], ["roles.learner.micro_batch=64"]),
    ("B203", "tiny", ["train.prompts_per_step=48", "train.optimizer_steps=4", "roles.learner.micro_batch=32"],
     ["train.prompts_per_step=48", "train.optimizer_steps=4", "roles.learner.micro_batch=128"]),
    ("B203", "tiny", ["roles.learner.micro_batch=48"], ["roles.learner.micro_batch=48", "lengths.pack=16"]),
    ("B204", "tiny", ["train.samples_per_prompt=1"], ["train.samples_per_prompt=2"]),
    ("B205", "gpu", ["checkpoint.every=100"], ["checkpoint.every=99"]),
    ("B205", "gpu", ["train.steps=2", "checkpoint.every=0"], ["train.steps=1", "checkpoint.every=0"]),
    ("B206", "gpu", ["train.prompts_per_step=2"], ["train.prompts_per_step=4"]),
    ("B207", "gpu", ["train.warmup_steps=100"], ["train.warmup_steps=99"]),
    ("B208", "gpu", ["data.eval=org/test", "data.eval_every=101"], ["data.eval=org/test", "data.eval_every=100"]),
    ("B208", "gpu", ["data.eval=org/test"], []),
    ("B209", "gpu", ["data.eval_every=10"], ["data.eval_every=10", "data.eval=org/test"]),
    ("B210", "gpu", ["lengths.pack=5119"], ["lengths.pack=5120"]),
    ("B211", "gpu", ["train.optimizer_steps=3"], ["train.optimizer_steps=4"]),
    ("B212", "gpu", ["train.prompts_per_step=1", "train.samples_per_prompt=2"],
     ["train.prompts_per_step=1", "train.samples_per_prompt=4"]),
    ("B213", "gpu", ["roles.rollout.max_concurrency=63"], ["roles.rollout.max_concurrency=64"]),
    ("B214", "gpu", ["train.prompts_per_step=30"], ["train.prompts_per_step=28"]),
    ("B215", "gpu", ["train.learning_rate=1e-4"], ["train.learning_rate=1e-4", "roles.learner.lora_rank=16"]),
    ("B216", "gpu", ["train.async_steps=9"], ["train.async_steps=8"]),
    ("B248", "opd", ["opd.on_policy_fraction=0.5"], ["opd.on_policy_fraction=0.5", "opd.estimator=top_k"]),
    ("B248", "opd", ["opd.on_policy_fraction=0.5", "opd.estimator=top_k", "train.async_steps=1"], []),
    ("B217", "gpu", ["checkpoint.keep=1"], ["checkpoint.keep=2"]),
    ("B220", "gpu", ["grpo.kl_coefficient=0.05"], ["grpo.kl_coefficient=0.05", "roles.reference={}"]),
    ("B221", "gpu", ["roles.reference={}"], ["roles.reference={}", "grpo.kl_coefficient=0.05"]),
    ("B222", "ppo", ["roles.critic=null"], []),
    ("B223", "opd", ["roles.teacher=null"], ["roles.teacher=null", "hardware.gpus_outside_ray=4"]),
    ("B224", "gpu", ["roles.critic={}"], []),
    ("B224", "gpu", [*JUDGE, "data.reward=math"], [*JUDGE, "data.reward=my_rewards:grade"]),
    ("B224", "gpu", [*SCORED, "data.reward=math"],
     [*SCORED, "data.reward=math", "data.added_rewards={reward_model: 1}"]),
    ("B255", "gpu", ["data.reward=judge"], JUDGE),
    ("B255", "gpu", ["data.added_rewards={reward_model: 0.5}"], SCORED),
    ("B256", "gpu", [*JUDGE, "data.judge.verdict=choice"],
     [*JUDGE, "data.judge.verdict=choice", "data.judge.choices={GOOD: 1, BAD: 0}"]),
    ("B256", "gpu", [*JUDGE, "data.judge.pattern='(['"], [*JUDGE, "data.judge.pattern='([0-9])'"]),
    ("B256", "gpu", [*JUDGE, "data.judge.pattern=Score"], [*JUDGE, "data.judge.pattern=(5)"]),
    ("B256", "gpu", [*JUDGE, "data.judge.highest=0"], [*JUDGE, "data.judge.highest=-1"]),
    ("B256", "gpu", [*JUDGE, "data.judge.prompt='Is {question} hard?'"],
     [*JUDGE, "data.judge.prompt='{question}'", "data.judge.verdict=likelihood", "data.judge.continuation='{answer}'"]),
    ("B225", "gpu", ["ppo={}"], ["grpo={}"]),
    ("B226", "ppo", ["ppo.kl_coefficient=0.1"], ["ppo.kl_coefficient=0.1", "ppo.kl=loss"]),
    ("B227", "ppo", ["ppo.critic_warmup_steps=100"], ["ppo.critic_warmup_steps=99"]),
    ("B228", "gpu", ["data.reward=none"], []),
    ("B230", "gpu", ["roles.learner.hpz_partition=8"], ["roles.learner.hpz_partition=2"]),
    ("B231", "opd", ["roles.teacher=null", "hardware.gpus_outside_ray=4", "train.temperature=0.7"],
     ["train.temperature=0.7"]),
    ("B232", "gpu", ["grpo.clip_high=0.1"], ["grpo.clip_high=0.2"]),
    ("B233", "gpu", ["grpo.kl=reward"], ["grpo.kl=reward", "grpo.kl_coefficient=0.1", "roles.reference={}"]),
    ("B234", "gpu", ["grpo.ratio=sequence"], GSPO),
    ("B235", "gpu", ["grpo.dual_clip=1.0"], ["grpo.dual_clip=3.0"]),
    ("B236", "gpu", ["grpo.ratio=cispo", "grpo.dual_clip=3.0"], ["grpo.ratio=cispo"]),
    ("B237", "gpu", GSPO[:-1], GSPO),
    ("B238", "gpu", ["grpo.importance=mask", "grpo.importance_low=1.5"], ["grpo.importance=mask"]),
    ("B239", "gpu", ["grpo.active_sampling_limit=3", "grpo.filter_zero_std=false"],
     ["grpo.active_sampling_limit=3"]),
    ("B240", "gpu", ["grpo.overlong_penalty_tokens=4096"], ["grpo.overlong_penalty_tokens=4095"]),
    ("B241", "gpu", ["grpo.overlong_penalty_tokens=512", "grpo.mask_truncated=true"],
     ["grpo.overlong_penalty_tokens=512"]),
    ("B244", "gpu", ["train.inflight_updates=true"], ["train.inflight_updates=true", "train.async_steps=1"]),
    ("B246", "gpu", ["roles.learner.zero_stage=2", "roles.learner.offload=all"],
     ["roles.learner.zero_stage=3", "roles.learner.offload=all"]),
    ("B246", "tiny", ["roles.learner.zero_stage=0", "roles.learner.offload=optimizer"],
     ["roles.learner.zero_stage=0", "roles.learner.offload=optimizer", "roles.learner.precision=bf16"]),
    ("B247", "gpu", ["roles.learner.lora_rank=16", "train.learning_rate=1e-6"],
     ["roles.learner.lora_rank=16", "train.learning_rate=2e-5"]),
    ("B243", "gpu", ["train.async_steps=1", "grpo.importance=off"], ["train.async_steps=1"]),
    ("B236", "gpu", ["grpo.ratio=sapo", "grpo.aggregation=sequence", "grpo.clip_low=0.1"],
     ["grpo.ratio=sapo", "grpo.aggregation=sequence"]),
    ("B236", "gpu", ["grpo.ratio_settings={scale: 2}"], ["grpo.ratio=mine:ratio", "grpo.ratio_settings={scale: 2}"]),
    ("B249", "gpu", ["grpo.advantage=reinforce_plus_plus"],
     ["grpo.advantage=reinforce_plus_plus", "grpo.filter_zero_std=false"]),
    ("B250", "gpu", ["grpo.advantage=gdpo"], ["grpo.advantage=gdpo", "data.format=boxed"]),
    ("B251", "gpu", ["grpo.ratio=kl_cov"], ["grpo.ratio=kl_cov", "train.optimizer_steps=2"]),
    ("B252", "gpu", ["grpo.entropy_coefficient=0.2"], ["grpo.entropy_coefficient=0.1"]),
    ("B252", "ppo", ["ppo.entropy_coefficient=0.2"], ["ppo.entropy_coefficient=0.01", "grpo.entropy_coefficient=0.2"]),
    ("B253", "gpu", ["train.top_k=1"], ["train.top_k=2"]),
    ("B253", "gpu", ["train.min_p=1.0"], ["train.min_p=0.05"]),
    ("B257", "gpu", ["roles.rollout.kv_cache_dtype=fp8", "grpo.importance=off"], ["roles.rollout.kv_cache_dtype=fp8"]),
    ("B254", "gpu", ["train.top_p=0.95", "grpo.importance=sequence_product"], ["train.top_p=0.95"]),
    ("B254", "gpu", ["train.top_p=0.95", "grpo.importance=sequence_mask"], ["train.top_p=0.95"]),
    ("B254", "gpu", ["train.min_p=0.05", "grpo.importance=off"], ["grpo.importance=off"]),
    ("B242", "gpu", ["grpo.aggregation=dr_grpo"], ["grpo.aggregation=dr_grpo", "grpo.advantage=centered"]),
]  # fmt: skip

FP8, FP8_CACHE = "roles.rollout.quantization=fp8_per_block", "roles.rollout.kv_cache_dtype=fp8"

ENGINE: list[Case] = [
    ("E301", "tiny", ["roles.rollout.tensor_parallel=2"], ["roles.rollout.tensor_parallel=2", VLLM]),
    ("E302", "gpu", ["roles.rollout.memory_utilization=0.97"], ["roles.rollout.memory_utilization=0.95"]),
    ("E303", "tiny", ["roles.rollout.precision=bf16"],
     ["roles.rollout.precision=bf16", "roles.learner.precision=bf16"]),
    ("E304", "gpu", ["roles.rollout.memory_utilization=0.55"], ["roles.rollout.memory_utilization=0.7"]),
    ("E305", "gpu", [*SHARED, "roles.rollout.memory_utilization=0.8"], SHARED),
    ("E306", "gpu", ["roles.rollout.enforce_eager=true"], []),
    ("E307", "gpu", ["roles.rollout.precision=fp32"], []),
    ("E308", "gpu", ["roles.rollout.engine=hf", FP8_CACHE], ["roles.rollout.engine=hf"]),
    ("E308", "gpu", [FP8, "roles.rollout.precision=fp32"], [FP8]),
    ("E308", "gpu", [FP8_CACHE, "hardware.gpu=A100-SXM-80GB"], [FP8, "hardware.gpu=A100-SXM-80GB"]),
    ("E308", "gpu", [FP8, "hardware.gpu=V100-SXM-32GB"], [FP8, FP8_CACHE, "hardware.gpu=L40S-48GB"]),
    ("E318", "gpu", [FP8, "hardware.gpu=A100-SXM-80GB"], [FP8]),
    ("E309", "opd", ["roles.teacher.memory_utilization=0.6"], []),
    ("E309", "gpu", [*JUDGE, "roles.judge.memory_utilization=0.6"],
     [*JUDGE, "roles.judge.memory_utilization=0.6", "roles.judge.engine=hf"]),
    ("E310", "opd", ["roles.teacher.tensor_parallel=3"], []),
    ("E311", "gpu", ["hardware.gpus_per_node=8", "roles.learner.model=Qwen/Qwen2.5-7B", "roles.rollout.engines=1",
                     "roles.learner.gpus=[1]", "roles.rollout.tensor_parallel=7"],
     ["roles.learner.model=Qwen/Qwen2.5-7B", "roles.rollout.tensor_parallel=2", "roles.rollout.engines=2"]),
    ("E310", "gpu", ["roles.learner.model=Qwen/Qwen2.5-7B", "roles.learner.gpus=[3]",
                     "roles.learner.sequence_parallel=3"],
     ["roles.learner.model=Qwen/Qwen2.5-7B", "roles.learner.gpus=[4]", "roles.learner.sequence_parallel=4"]),
    ("E310", "gpu", ["roles.learner.model=Qwen/Qwen2.5-7B", "roles.learner.sequence_parallel=8"],
     ["roles.learner.model=Qwen/Qwen2.5-7B", "roles.learner.sequence_parallel=8", "system=megatron"]),
    ("E312", "gpu", ["roles.learner.model=Qwen/Qwen2.5-1.5B", "roles.rollout.tensor_parallel=4",
                     "roles.rollout.engines=1", "hardware={nodes: 2, gpus_per_node: 8, gpu: another card}"],
     ["roles.learner.model=Qwen/Qwen3-235B-A22B", "roles.rollout.tensor_parallel=8", "roles.rollout.engines=1",
      "hardware={nodes: 2, gpus_per_node: 8, gpu: H200-SXM-141GB}"]),
    ("E312", "opd", ["hardware.nodes=2", "roles.teacher.tensor_parallel=8"], ["hardware.nodes=2"]),
    ("E313", "gpu", ["lengths.response=39937"], ["lengths.response=39936"]),
    ("E314", "opd", ["roles.teacher.model=Qwen/Qwen3-30B-A3B", "lengths.response=38912"],
     ["roles.teacher.model=Qwen/Qwen3-30B-A3B", "lengths.response=38911"]),
    ("E315", "gpu", [*JUDGE, "roles.judge.context=40961"], [*JUDGE, "roles.judge.context=40960"]),
    ("E315", "gpu", [*SCORED, "roles.reward_model.context=40961"], [*SCORED, "roles.reward_model.context=40960"]),
    ("E316", "gpu", [*SCORED, "roles.reward_model.context=5119"], [*SCORED, "roles.reward_model.context=5120"]),
    ("E316", "gpu", [*JUDGE, "roles.judge.context=5631"], [*JUDGE, "roles.judge.context=5632"]),
    ("E317", "gpu", [*SCORED, f"roles.reward_model.model={LANGUAGE_MODEL}"], SCORED),
    ("E390", "gpu", ["roles.learner.tensor_parallel=2"], []),
]  # fmt: skip

HOST: list[Case] = [
    ("H401", "gpu", ["hardware.gpu=Tesla V100-SXM2-32GB"],
     ["hardware.gpu=Tesla V100-SXM2-32GB", "roles.learner.precision=fp16", "roles.rollout.precision=fp16"]),
    ("H402", "tiny", ["roles.learner.precision=fp16"], ["roles.learner.precision=bf16"]),
    ("H403", "gpu", ["hardware.gpu=GH200"], ["hardware.gpu=GH200-96GB"]),
    ("H404", "gpu", ["roles.learner.precision=fp16"], ["roles.learner.precision=fp16", "hardware.gpu=RTX2080Ti"]),
    ("H405", "gpu", ["roles.learner.offload=optimizer"],
     ["roles.learner.offload=optimizer", "hardware.memory_gib_per_node=500"]),
    ("H407", "tiny", ["roles.learner.offload=optimizer"], []),
    ("H407", "tiny", ["algorithm=ppo", "roles.critic={offload: optimizer}"], ["algorithm=ppo", "roles.critic={}"]),
    ("H409", "gpu", ["roles.learner.offload=optimizer", "roles.learner.zero_stage=2"],
     ["roles.learner.offload=optimizer", "roles.learner.zero_stage=2", "roles.learner.micro_batch=16"]),
    ("H409", "ppo", ["roles.critic.offload=optimizer", "roles.critic.zero_stage=2", "roles.critic.micro_batch=1"],
     ["roles.critic.offload=optimizer", "roles.critic.zero_stage=1", "roles.critic.micro_batch=1"]),
    ("H408", "gpu", ["hardware.cpus_per_node=7"], ["hardware.cpus_per_node=8"]),
]  # fmt: skip

DATA: list[Case] = [
    ("D501", "tiny", ["data.train=builtin/sort-letters"], []),
    ("D501", "tiny", ["data.eval=builtin/sort-letters"], ["data.eval=builtin/sort-digits"]),
    ("D502", "tiny", ["data.digits=4"], ["data.digits=4", "lengths.prompt=5", "lengths.response=5"]),
    ("D503", "tiny", ["roles.learner.model=builtin/tiny-qwen"], ["roles.learner.model=Qwen/Qwen3-0.6B"]),
    ("D504", "tiny", ["data.reward=coin"], ["data.reward=exact"]),
    ("D505", "opd", ["roles.teacher.model=meta-llama/Llama-3.1-70B"], []),
    ("D506", "gpu", ["roles.learner.model=allenai/OLMo-32B"], ["roles.learner.model=allenai/OLMo-2-0325-32B"]),
    ("D507", "gpu", ["lengths.images=512"], []),
    ("D508", "gpu", ["roles.learner.model=$MODEL"], ["roles.learner.model=/models/Qwen3-8B"]),
    ("D509", "gpu", ["roles.learner.model=/tmp/model"], ["roles.learner.model=/projects/model"]),
    ("D510", "gpu", ["data.reward=code"], ["data.reward=code", REWARD, CORES]),
    ("D508", "gpu", ["data.train=org/TODO_name"], ["data.train=org/AutoDock"]),
    ("D508", "gpu", ["roles.learner.model=/path/to"], ["roles.learner.model=/my-path/tokenized/to-do"]),
    ("D511", "gpu", [REWARD, CORES], [REWARD, CORES, "roles.reward.timeout_s=9"]),
    ("D511", "gpu", [REWARD, CORES, "data.reward=code", "data.reward_timeout_s=9"],
     [REWARD, CORES, "data.reward_timeout_s=9"]),
    ("D511", "gpu", [REWARD, CORES], [REWARD, CORES, "data.environment=my.games:Chess"]),
    ("D511", "gpu", [REWARD, CORES], [REWARD, CORES, "data.reward=http"]),
    ("D512", "gpu", ["data.eval=org/math", "data.eval_split=train"], ["data.eval=org/math"]),
    ("D512", "gpu", ["data.train=a.jsonl", "data.eval=a.jsonl"], ["data.train=a.jsonl", "data.eval=b.jsonl"]),
    ("D512", "gpu", ["data.eval=org/b", "data.eval_split=train", "data.mixture=[{name: b, train: org/b}]"],
     ["data.eval=org/b", "data.eval_split=train", "data.mixture=[{name: b, train: org/b, subset: other}]"]),
    ("D513", "opd", ["lengths.images=2048"], []),
    ("D514", "gpu", ["data.reward=exact"], ["data.reward=exact", "data.train=rows.jsonl"]),
    ("D514", "tiny", ["data.eval=org/math"], ["data.eval=builtin/sort-digits"]),
    ("D514", "tiny", ["data.reward=math"], ["data.reward=my_rewards:grade"]),
    ("D516", "gpu", ["data.train=gsm8k"], ["data.train=rows.jsonl"]),
    ("D517", "gpu", [REWARD, CORES, "data.reward=http"], [REWARD, CORES]),
    ("D518", "gpu", [*EVALUATED, "data.eval_samples=4"],
     [*EVALUATED, "data.eval_samples=4", "data.eval_temperature=1"]),
    ("D526", "gpu", [*EVALUATED, "data.eval_top_p=0.9"],
     [*EVALUATED, "data.eval_top_p=0.9", "data.eval_temperature=1.0"]),
    ("D527", "tiny", ["data.curriculum_skip=0.5"], ["data.curriculum_skip=0.5", "data.train=rows.jsonl"]),
    ("D527", "opd", ["data.curriculum_skip=0.5"], ["data.curriculum_skip=0.5", "data.reward=math"]),
    ("D519", "gpu", [*EVALUATED, "data.eval_temperature=0.001"], [*EVALUATED, "data.eval_temperature=0.01"]),
    ("D522", "tiny", ["data.environment=builtin/guess", "data.max_turns=1"],
     ["data.environment=builtin/guess-order", "data.max_turns=1"]),
    ("D523", "tiny", ["data.environment=my.games:Chess", "data.max_turns=2"],
     ["data.environment=my.games:Chess", "data.max_turns=2", "lengths.response=5"]),
    ("D529", "tiny", ["data.environment=builtin/guess-order-agent", "data.max_turns=1"],
     ["data.environment=builtin/guess-order-agent", "data.environment_kind=agent", "data.max_turns=1"]),
    ("D529", "tiny", ["data.environment=builtin/calculator", "data.environment_kind=agent", "data.max_turns=1"],
     ["data.environment=my.agents:solve", "data.environment_kind=agent", "data.max_turns=1"]),
    ("D525", "gpu", ["data.mixture=[{name: train, train: b.jsonl}]"], ["data.mixture=[{name: b, train: b.jsonl}]"]),
    ("D525", "gpu", ["data.mixture=[{name: b, train: b.jsonl}, {name: b, train: c.jsonl}]"], []),
    ("D525", "gpu", ["data.mixture=[{name: b, train: b.jsonl, weight: 1e-4}]"],
     ["data.mixture=[{name: b, train: b.jsonl, weight: 1e-3}]"]),
    ("D525", "gpu", ["data.environment=my.games:Chess", "data.mixture=[{name: b, train: b.jsonl, reward: math}]"],
     ["data.environment=my.games:Chess", "data.mixture=[{name: b, train: b.jsonl}]"]),
    ("D501", "tiny", ["data.mixture=[{name: b, train: builtin/sort-letters}]"], []),
    ("D528", "gpu", ["roles.rollout.router_replay=true"],
     ["roles.rollout.router_replay=true", "roles.learner.model=Qwen/Qwen3-30B-A3B"]),
    ("D508", "gpu", ["data.mixture=[{name: b, train: path/to/rows.jsonl}]"], []),
    ("D510", "gpu", ["data.mixture=[{name: b, train: b.jsonl, reward: code}]"],
     ["data.mixture=[{name: b, train: b.jsonl, reward: code}]", REWARD, CORES]),
    ("D512", "gpu", ["data.mixture=[{name: b, train: a.jsonl}]", "data.eval=a.jsonl"], []),
    ("D514", "gpu", ["data.mixture=[{name: b, train: ORG/rows}]"],
     ["data.mixture=[{name: b, train: ORG/rows, reward: math}]"]),
    ("D516", "gpu", ["data.mixture=[{name: b, train: gsm8k, reward: math}]"], []),
    ("D524", "gpu", ["data.environment=my.games:Chess"], ["data.environment=my.games:Chess", "data.reward=none"]),
    ("D524", "gpu", ["data.environment=my.games:Chess", "data.reward=none", "data.format=boxed"],
     ["data.environment=my.games:Chess", "data.reward=exact"]),
    ("D515", "gpu", ["roles.reference={model: Qwen/Qwen3-4B}", "grpo.kl_coefficient=0.1"],
     ["roles.reference={model: Qwen/Qwen3-8B}", "grpo.kl_coefficient=0.1"]),
]  # fmt: skip

SETTINGS: list[Case] = [
    ("S601", "tiny", ["slurm.time=one day"], ["slurm.time=1-00:00:00"]),
    ("S601", "tiny", ["slurm.time=24:00:00:00"], ["slurm.time=1440:00"]),
    ("S602", "gpu", ["slurm.time=24:00"], ["slurm.time=24:00:00"]),
    ("S603", "gpu", ["slurm.time=00:29:00"], ["slurm.time=00:30:00"]),
    ("S604", "gpu", ["slurm.exclude=[nid1, nid2, nid1]"], ["slurm.exclude=[nid1, nid2]"]),
    ("S605", "gpu", ["slurm.account=$ACCOUNT"], ["slurm.account=abc_123"]),
    ("S606", "gpu", ["slurm.time=8-00:00:00"], ["slurm.time=7-00:00:00"]),
    ("S606", "gpu", ["slurm.time='0'"], []),
    ("S607", "gpu", ["slurm.options=['--gres=gpu:8', '--reservation=rl']"], ["slurm.options=['--reservation=rl']"]),
    ("S608", "gpu", ["slurm.mem_gib=65", "hardware.memory_gib_per_node=64"], ["slurm.mem_gib=65"]),
    ("S608", "gpu", ["slurm.mem_gib=65", "hardware.memory_gib_per_node=64"], ["hardware.memory_gib_per_node=64"]),
    (
        "S608",
        "gpu",
        [APART, "hardware.more.rollouts.mem_gib=65", "hardware.more.rollouts.memory_gib_per_node=64"],
        [APART, "hardware.memory_gib_per_node=64"],
    ),
    ("S609", "gpu", [APART, "selftest={}"], ["selftest={}"]),
    ("T701", "tiny", ["tracking.wandb=online"], ["tracking.wandb=disabled"]),
    ("T702", "gpu", ["tracking.project=team/rl"], ["tracking.project=team-rl"]),
    ("T703", "gpu", ["tracking.wandb=disabled"], []),
    ("T704", "gpu", ["tracking.wandb=disabled", "tracking.samples=true"], ["tracking.samples=true"]),
    ("T704", "gpu", ["tracking.wandb=disabled", "tracking.artifact=true"], ["tracking.artifact=true"]),
    ("X801", "tiny", ["tracking.entity=hf_" + "a" * 30], ["tracking.entity=hf_team"]),
    (
        "X801",
        "tiny",
        ["tracking.entity=" + "0a" * 20],
        ["roles.learner.model=/hub/models--a--b/snapshots/" + "0a" * 20],
    ),
    ("X802", "gpu", ["roles.learner.model=/home/ann/models/Qwen3-8B"], ["roles.learner.model=/projects/Qwen3-8B"]),
]

MEMORY: list[Case] = [
    ("M301", "gpu", ["roles.learner.micro_batch=64"], ["roles.learner.micro_batch=4"]),
    ("M301", "gpu", [*SHARED, "roles.rollout.sleep_while_training=false", "roles.rollout.memory_utilization=0.8"],
     [*SHARED, "roles.rollout.memory_utilization=0.8"]),
    ("M302", "gpu", ["roles.learner.micro_batch=12"], ["roles.learner.micro_batch=8"]),
    ("M303", "gpu", ["roles.learner.model=Qwen/Qwen3-32B", "roles.rollout.memory_utilization=0.75"],
     ["roles.learner.model=Qwen/Qwen3-32B"]),
    ("M303", "opd", ["roles.teacher={model: Qwen/Qwen3-32B, memory_utilization: 0.6}"],
     ["roles.teacher={model: Qwen/Qwen3-32B}"]),
    ("M304", "gpu", ["lengths.response=400000"], ["lengths.response=300000"]),
    ("M305", "gpu", ["train.prompts_per_step=64"], ["train.prompts_per_step=32"]),
    ("M306", "gpu", [*SHARED, "roles.rollout.memory_utilization=0.85"], SHARED),
    ("M307", "gpu", ["roles.learner.gather_whole_model=true"], []),
    ("M308", "gpu", ["hardware.memory_gib_per_node=8"], ["hardware.memory_gib_per_node=16"]),
    ("M308", "gpu", ["roles.learner.offload=all", "hardware.memory_gib_per_node=64"],
     ["roles.learner.offload=all", "hardware.memory_gib_per_node=256"]),
    ("M308", "gpu", ["slurm.mem_gib=8"], ["slurm.mem_gib=16"]),
    ("M308", "gpu", ["slurm.mem_gib=8", "hardware.memory_gib_per_node=512"],
     ["slurm.mem_gib=16", "hardware.memory_gib_per_node=512"]),
    ("M309", "gpu", ["roles.learner.model=/models/ours-v3"], ["roles.learner.model=/models/Qwen3-8B"]),
    ("M309", "opd", ["roles.teacher.model=org/unheard-of"], []),
]  # fmt: skip

CASES: list[Case] = [*PLACEMENT, *BATCH, *ENGINE, *HOST, *DATA, *SETTINGS, *MEMORY]
