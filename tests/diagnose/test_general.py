"""What kind of error an exception is that no wording knows, and how sure that is."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.index import CAUSES
from rltui.diagnose.sources import text_source
from rltui.diagnose.verdicts import SURE_ENOUGH


@pytest.mark.parametrize(
    ("path", "code", "exception", "cause"),
    [
        ("peft/tuners/lora.py", "raise ValueError(", "ValueError: Target modules ['q'] not found in the base model.",
         "settings_rejected"),
        ("swift/plugin/loss.py", "return LOSS_MAPPING[loss_type]['loss_func']", "KeyError: 'grpo'",
         "settings_rejected"),
        ("w/collate.py", 'ids = feature["ids_j"]', "KeyError: 'ids_j'", "data_unfit"),
        ("trl/extras/rows.py", "assert x.shape == y.shape", "AssertionError", "tensors_unfit"),
        ("w/state.py", "raise", "ValueError: env:// rendezvous: environment variable RANK expected, but not set",
         "rank_numbers"),
        ("w/groups.py", "raise", "RuntimeError: The new group's rank should be within the world_size", "rank_numbers"),
        ("w/main.py", 'int(os.environ["LOCAL_RANK"])', "KeyError: 'LOCAL_RANK'", "rank_numbers"),
        ("w/lora.py", "raise", "ValueError: LoRA rank in the engine must be less than 512", "program_failed"),
        ("w/norm.py", "raise", "ValueError: q01 is needed, please update the dataset by its script", "data_unfit"),
        ("w/policy.py", "raise", "RuntimeError: ('Policy %d missing / %d unexpected keys', 10, 0)", "ckpt_broken"),
        ("serving/inference_client.py", "raise", "httpx.ConnectError: All connection attempts failed",
         "engine_unreachable"),
        ("w/bnb.py", "raise", "RuntimeError: No GPU found. A GPU is needed for quantization.", "no_gpu_visible"),
        ("w/cards.py", "raise", "MisconfigurationException: You requested GPUs: [0]", "no_gpu_visible"),
        ("vllm/executor/ray_utils.py", "raise", "RuntimeError: driver node id 8 is not included in a placement group 8",
         "ray_pg_infeasible"),
        ("nemo_rl/grpo.py", "assert", "AssertionError: Not enough alive Ray nodes for all roles: need 8",
         "ray_pg_infeasible"),
        ("datasets/data_files.py", "raise", "EmptyDatasetError: The directory at /d doesn't contain any data files",
         "path_missing"),
        ("w/images.py", "img = Image.open(f)", "PIL.UnidentifiedImageError: cannot identify image file 'a.jpg'",
         "data_unfit"),
        ("w/attention.py", "out = attend(q)", "RuntimeError: the kernel only supports fp16 and bf16", "tensors_unfit"),
        ("bridge/auto.py", "raise ValueError(", "ValueError: Unregistered model type: new_moe", "env_import_broken"),
        ("core/parallel_state.py", "raise RuntimeError(", "RuntimeError: world_size (1) is not divisible by 2",
         "engine_tp_heads"),
        ("hub/file.py", "raise", "SSLError: HTTPSConnectionPool(host='huggingface.co'): Max retries exceeded",
         "hf_offline_miss"),
        ("vllm/attention/abstract.py", "raise NotImplementedError", "NotImplementedError", "engine_unfit_model"),
        ("w/train.py", "raise ValueError(", "ValueError: FP16 (`--fp16`) can only be used on CUDA devices.",
         "no_gpu_visible"),
        ("w/prepare.py", "raise TemplateError(", "jinja2.exceptions.TemplateError: roles must alternate", "data_unfit"),
        ("w/score.py", "score(**row)", "TypeError: accuracy_reward() missing 1 required positional argument: 'gold'",
         "data_unfit"),
        ("w/optimizer.py", "step()", "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached",
         "kernel_compile"),
        ("w/model.py", "loss.backward()", "RuntimeError: element 0 of tensors does not require grad_fn",
         "program_failed"),
        ("w/pool.py", "raise", "RuntimeError: slots run out of memory. Please set --max-running-requests",
         "program_failed"),
        ("w/reward_fn.py", "text = prompt + answer", "TypeError: can only concatenate list", "program_failed"),
        ("vllm/models/linear.py", "assert", "AssertionError: Attempted to load weight (torch.Size([4])) into parameter "
         "(torch.Size([6]))", "engine_unfit_model"),
        ("vllm/models/linear.py", "assert", "AssertionError: Attempted to load weight (torch.Size([0])) into parameter "
         "(torch.Size([6]))", "tensors_unfit"),
        ("trl/grpo_config.py", "raise ValueError(", "ValueError: 'batch_size' and 'n_steps' can not be both configured",
         "settings_rejected"),
        ("vllm/lora/layers.py", "torch.zeros(", "TypeError: zeros(): argument 'dtype' must be torch.dtype, not str",
         "program_failed"),
        ("w/resume.py", "raise", "RuntimeError: The state of _OptimStateKey(names=('a.weight',)) is empty.",
         "ckpt_broken"),
        ("swift/vllm_client.py", "raise", "RuntimeError: [Exception('Server 1 failed: 500, Internal Server Error')]",
         "engine_unreachable"),
        ("datasets/formatting/formatting.py", "raise", "IndexError: Invalid key: 25 is out of bounds for size 0",
         "data_unfit"),
        ("w/tuner.py", "run_sft(args)", "RuntimeError: Cannot find valid samples, check the format.", "data_unfit"),
        ("swift/base.py", "raise", "ValueError: remaining_argv: ['--vllm_server_host', '10.0.0.1']",
         "settings_rejected"),
        ("pandas/core/cast.py", "result[:] = values", "TypeError: can't convert cuda:0 device type tensor to numpy.",
         "tensors_unfit"),
        ("numpy/core.py", "ids += answer", "ValueError: operands could not be broadcast together with shapes (8,) (3,)",
         "tensors_unfit"),
        ("torch/functional.py", "torch.embedding(", "RuntimeError: The tensor has elements, but its data is not "
         "allocated yet.", "tensors_unfit"),
        ("w/trainer.py", "self._build()", "ValueError: Unknown lr scheduler: linear", "settings_rejected"),
        ("w/trainer.py", "self._build()", "ValueError: Unknown state of the queue after an answer", "program_failed"),
        ("w/deepspeed.py", "raise", "ValueError: Correct the config values that mismatch those of fp16",
         "settings_rejected"),
        ("w/evaluate.py", "raise", "ValueError: No files found with the given pattern.", "path_missing"),
        ("w/evaluate.py", "raise", "ValueError: No answer found in the box", "program_failed"),
        ("vllm/models/moe.py", "param = params[name]", "KeyError: 'layers.0.mlp.experts.w2_weight'",
         "engine_unfit_model"),
        ("torch/_dynamo/utils.py", "raise", "torch._dynamo.exc.TorchRuntimeError: Failed running call_function linear",
         "kernel_compile"),
        ("h5py/h5f.pyx", "raise", "BlockingIOError: [Errno 11] unable to lock file", "program_failed"),
        ("vllm/configs/ovis.py", "raise", "ValueError: 'aimv2' is already used by a Transformers config, pick another.",
         "env_import_broken"),
    ],
)  # fmt: skip
def test_its_kind_gives_the_cause_where_no_wording_does(path: str, code: str, exception: str, cause: str) -> None:
    log = f'  File "/opt/{path}", line 7, in call\n    {code}\n{exception}'
    assert [one.id for one in diagnose([text_source("log", log)])] == [cause]


IN_POOL = '  File "/w/pool.py", line 7, in take\n'


@pytest.mark.parametrize(
    ("said", "is_sure"),
    [
        (f"{IN_POOL}    raise RuntimeError(words)\nRuntimeError: slots are gone", False),
        (f"{IN_POOL}    slot = slots.pop()\nRuntimeError: slots are gone", True),
        ("RuntimeError: slots are gone", False),
        ("TypeError: slots are gone", True),
        ("ray.exceptions.RayTaskError(LookupError): ray::TaskRunner.run() (pid=7)", False),
        ("RuntimeError: Caught RuntimeError in DataLoader worker process 0.", False),
        ("torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1691, invalid usage", False),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", False),
        ("requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('closed'))", False),
    ],
)
def test_a_class_alone_and_words_that_lead_elsewhere_are_only_a_guess(said: str, is_sure: bool) -> None:
    first = diagnose([text_source("log", said)])[0]
    assert (first.id, first.confidence >= SURE_ENOUGH) == ("program_failed", is_sure)


def test_a_guess_at_its_kind_still_explains_what_followed() -> None:
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total"
    lost = "[rank3]:[E1] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE)"
    found = diagnose([text_source("log", f"{log}\n{lost} ran for 600011 milliseconds before timing out.")])
    assert [(one.id, one.secondary) for one in found] == [("cuda_oom_fwd_bwd", False), ("nccl_timeout", True)]
    assert found[0].confidence < SURE_ENOUGH
    stepped = diagnose([text_source("log", f"step 12 loss 0.31\n{log}")])
    assert stepped[0].confidence >= SURE_ENOUGH


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        ('File "/e/lib/site-packages/dags/nodes.py", line 9, in <module>', "env_import_broken"),
        ('File "train.py", line 9, in <module>\n    main()\n  File "train.py", line 3, in main', "program_failed"),
        ('File "train.py", line 9, in <module>', "program_failed"),
        (
            'File "/e/lib/python3.11/multiprocessing/process.py", line 3, in _bootstrap\n'
            '    self.run()\n  File "/w/rows.py", line 3, in take',
            "program_failed",
        ),
        ('File "<frozen importlib._bootstrap>", line 7, in _load', "env_import_broken"),
    ],
)
def test_a_missing_key_is_the_environments_only_where_a_package_is_imported(where: str, cause: str) -> None:
    log = f"Traceback (most recent call last):\n  {where}\nKeyError: 'answer'"
    assert [one.id for one in diagnose([text_source("log", log)])] == [cause]


def test_what_an_accelerator_state_lacks_is_the_checkpoints() -> None:
    log = '  File "/opt/accelerate/accelerator.py", line 7, in load_state\n    step = found["step"]\nKeyError: \'step\''
    assert [one.id for one in diagnose([text_source("log", log)])] == ["ckpt_broken"]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("TimeoutError: Timed out waiting for placement groups to be ready.", "ray_pg_infeasible"),
        ("ERROR:megatron:Invalid access pattern: 24 ShardedObject are missing. Existing shards: []", "ckpt_broken"),
        ("RuntimeError: normal expects all elements of std >= 0.0", "nan_or_loss_scale"),
    ],
)
def test_the_last_line_alone_is_known(said: str, cause: str) -> None:
    assert [one.id for one in diagnose([text_source("log", said)])] == [cause]


@pytest.mark.parametrize(
    ("function", "said", "cause"),
    [
        ("setup", "Dynamic batching is currently not supported with DPO.", "settings_rejected"),
        ("_validate_moe", "Native MoE is not supported with ZeRO Stage 3.", "settings_rejected"),
        ("__init__", "fp16 weights and bf16 weights are mutually exclusive.", "settings_rejected"),
        ("step", "Dynamic batching is currently not supported with DPO.", "program_failed"),
        ("setup", "the queue was empty", "program_failed"),
    ],
)
def test_a_combination_is_refused_while_things_are_set_up(function: str, said: str, cause: str) -> None:
    log = f'  File "/w/nemo/dpo.py", line 7, in {function}\n    assert not wanted\nAssertionError: {said}'
    assert [one.id for one in diagnose([text_source("log", log)])] == [cause]


@pytest.mark.parametrize(("function", "cause"), [("__init__", "settings_rejected"), ("fill_replay", "program_failed")])
def test_settings_are_refused_before_the_work_begins(function: str, cause: str) -> None:
    log = f'  File "/opt/megatron/actor.py", line 7, in {function}\nValueError: routed_experts is required'
    assert [one.id for one in diagnose([text_source("log", log)])] == [cause]


def test_what_one_rank_raised_comes_before_what_the_others_saw_of_it() -> None:
    raised = "[rank0]: OSError: The safetensors archive passed at /m/model.safetensors does not contain the metadata."
    lost = "[rank3]: RuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:28048"
    found = diagnose([text_source("log", f"{lost}\n{raised}")])
    assert [(one.id, one.secondary) for one in found] == [("ckpt_broken", False), ("gloo_timeout", True)]


def test_an_exception_is_not_caught_because_another_process_ignores_something() -> None:
    log = "[rank0]: LookupError: strange\n(Worker pid=7) this may lead to layers that are ignored"
    assert [one.id for one in diagnose([text_source("log", log)])] == ["program_failed"]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("OSError: You are trying to use a gated repo of the hub.", "hf_gated_auth"),
        ("HTTPError: 502 Server Error: Bad Gateway for url: https://huggingface.co/api/models/a", "hf_rate_limit"),
        ("HTTPError: 418 odd: https://huggingface.co/api/models/a", "program_failed"),
        ("RuntimeError: code runner at n3 did not answer", "sandbox_down"),
        ("SandboxStartError: image is odd", "sandbox_down"),
        ("RuntimeError: code of the tokenizer is odd", "program_failed"),
        ("RuntimeError: rollout server is not ready after 600 s", "engine_unreachable"),
        (
            "OSError: Server error '503 Service Unavailable' for url 'http://10.0.0.1:4674/generate'",
            "engine_unreachable",
        ),
        ("RuntimeError: the rollout server gave an odd answer", "program_failed"),
        ("RuntimeError: File out/step_7.pt cannot be opened.", "disk_full"),
        ("odd.CheckpointingException: shard 7 is odd", "ckpt_broken"),
        ("RuntimeError: failed to create runtime env of the job", "ray_runtime_env"),
        ("ray.exceptions.OwnerDiedError: object 00ff was lost", "ray_actor_died"),
        ("ValueError: required number of gpus is 16 but only 8 are there", "ray_pg_infeasible"),
        ("RuntimeError: this kernel only supports Ampere GPUs or newer", "gpu_arch_unsupported"),
        ("RuntimeError: this kernel needs sm90", "gpu_arch_unsupported"),
        ("RuntimeError: this kernel needs a bias", "program_failed"),
        ("RuntimeError: two processes were given the same rank", "rank_numbers"),
        ("RuntimeError: Rank 1 has different values for step: 3. Other ranks: 4", "nccl_desync"),
        ("RuntimeError: LoRA of rank 64 is odd", "program_failed"),
        ("ValueError: attention backend FLASHX is not valid for head_size 100", "engine_unfit_model"),
        ("Exception: loss scale is at its minimum", "nan_or_loss_scale"),
        ("datasets.exceptions.DatasetGenerationCastError: An error occurred", "data_unfit"),
        ("AssertionError: assert param.size() == loaded.size()", "tensors_unfit"),
        ("ValueError: Invalid backend: None, expected sglang or vllm", "settings_rejected"),
        ("ValueError: outputs_of/answers.json cannot be odd", "program_failed"),
        ("RuntimeError: Apex is required to use megatron.", "env_import_broken"),
    ],
)
def test_the_kinds_are_known_by_their_last_line(said: str, cause: str) -> None:
    assert [one.id for one in diagnose([text_source("log", said)])] == [cause]


@pytest.mark.parametrize(
    ("level", "causes"), [("INFO", ["program_failed"]), ("WARNING", [])], ids=["passed on", "caught"]
)
def test_frames_that_are_called_information_are_passed_on(level: str, causes: list[str]) -> None:
    """Python's own logging has its level once, before the whole traceback."""
    lines = ("Traceback (most recent call last):", *IN_POOL.splitlines(), "    slots.pop()", "LookupError: strange")
    log = "\n".join(
        f"2026-01-05 10:00:0{second},000 - launcher - {level} - {line}" for second, line in enumerate(lines)
    )
    assert [one.id for one in diagnose([text_source("log", log)])] == causes


def caused_in(path: str, function: str, said: str) -> str:
    """Return the first cause of a log that ends in ``said``, raised in this function."""
    log = f'Traceback (most recent call last):\n  File "/w/{path}", line 7, in {function}\n    raise odd(\n{said}'
    return diagnose([text_source("log", log)])[0].id


@pytest.mark.parametrize(
    ("function", "said", "cause"),
    [
        # a name with its value, the values that there are, and what was left open
        ("build_sampler", "ValueError: sampler='odd' requires path_of_sampler to be set", "settings_rejected"),
        ("take", "RuntimeError: use reduce_early=True or drop it", "settings_rejected"),
        ("take", "ValueError: for this add --keep-all, or unset --keep-some", "settings_rejected"),
        ("reduce", "ValueError: odd reduction. Choose from 'mean', 'sum'", "settings_rejected"),
        ("get_pool", "KeyError: 'Unknown pool: odd'", "settings_rejected"),
        ("get_pool", "ValueError: pool 'odd' is not registered", "settings_rejected"),
        ("setup", "ValueError: No scorers configured", "settings_rejected"),
        ("__init__", "ValueError: Provide exactly one of: name, base_url.", "settings_rejected"),
        # a number out of its bounds, an environment variable, an argument that argparse asked the program about
        ("get_schedule", "ValueError: warmup must be larger than 0. Got -3", "settings_rejected"),
        ("_validate", "AssertionError: Degree should be >= 1", "settings_rejected"),
        ("start", "RuntimeError: ODD_IMAGE_NAME is not set. Export it first.", "settings_rejected"),
        ("take", "argparse.ArgumentTypeError: must be > 0", "settings_rejected"),
        ("init_model", "ValueError: Context parallelism is not supported with images.", "settings_rejected"),
        ("get_schedule", "ValueError: tokens must be larger than 0. Got -3", "program_failed"),
        ("take", "ValueError: warmup must be larger than 0. Got -3", "program_failed"),
        ("start", "RuntimeError: ODD_SERVICE_KEY is not set. Export it first.", "program_failed"),
        # whatever is said by what is made of settings
        ("__init__", "AssertionError: the window reaches past both ends", "settings_rejected"),
        ("__init__", "AssertionError: self.left=3, self.right=4", "program_failed"),
        ("__init__", "NotImplementedError: every subclass says it", "program_failed"),
        ("__init__", "ValueError: both tensors hold nothing", "program_failed"),
        # and not at work, of what it works on, or in the wrong order
        ("early_forward", "ValueError: Provide exactly one of: name, base_url.", "program_failed"),
        ("take", "RuntimeError: use reduce_early=True for such tensors", "program_failed"),
        ("setup", "RuntimeError: start() must be called, please set the queue", "program_failed"),
        ("setup", "ValueError: Optional kwarg `odd_dim` needs to be specified", "program_failed"),
    ],
)
def test_a_setting_is_refused_by_how_it_is_named(function: str, said: str, cause: str) -> None:
    assert caused_in("odd/trainer.py", function, said) == cause


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("ImportError: odd needs to be installed for tables", "env_import_broken"),
        ("RuntimeError: `helm version` failed: is helm properly installed?", "env_import_broken"),
        ("RuntimeError: the hook is at last installed", "program_failed"),
        ("odd.RouterUnreachableError: no answer", "engine_unreachable"),
        ("odd.NodeUnreachableError: no answer", "program_failed"),
        ("ValueError: offloading only supports AdamW and Lion", "program_failed"),
        ("RuntimeError: FlashAttention only supports Ada GPUs or newer.", "gpu_arch_unsupported"),
        ("RuntimeError: leaf modules need torch >= 2.4", "env_import_broken"),
        ("RuntimeError: Hybrid packing requires oddlib 1.4.2 or newer", "env_import_broken"),
        ("OSError: Even spreading is only supported for `torch>=2.5`.", "env_import_broken"),
        ("ValueError: on the fly packing requires H100 GPUs", "gpu_arch_unsupported"),
        ("ValueError: the mask has to be contiguous", "tensors_unfit"),
        ("AssertionError: logits must be 2D", "tensors_unfit"),
        ("AssertionError: hashes do not match across DP replicas", "nccl_desync"),
        ("AssertionError: rank must be non-negative where a store is given", "rank_numbers"),
        ("RuntimeError: torch.distributed is not initialized", "rank_numbers"),
        ("AssertionError: data_parallel_size='6' != self.world_size='4'", "engine_tp_heads"),
        ("ValueError: could not find a weight file at /srv/models/odd", "path_missing"),
        ("CheckpointError: torch.utils.checkpoint: Recomputed values differ", "program_failed"),
        ("ValueError: Optional scale of the fallback is 7", "program_failed"),
    ],
)
def test_what_any_library_may_raise_is_of_a_kind(said: str, cause: str) -> None:
    assert caused_in("odd/trainer.py", "take", said) == cause


@pytest.mark.parametrize(
    ("cause", "said", "named"),
    [
        ("settings_rejected", "ValueError: sampler='odd' requires sampler_path to be set.", "sampler_path"),
        ("settings_rejected", "ValueError: set --keep-all for this", "--keep-all"),
        ("settings_rejected", "ValueError: odd reduction. Choose from 'mean', 'sum'", ""),
        ("path_missing", "ValueError: File not found: /srv/data/rows.bin.", "/srv/data/rows.bin"),
        ("path_missing", "NotADirectoryError: [Errno 20] Not a directory: './out/a=1/x'", "./out/a=1/x"),
        ("access_denied", "ValueError: permission denied on ~/cache/odd", "~/cache/odd"),
    ],
)
def test_what_is_refused_is_named(cause: str, said: str, named: str) -> None:
    log = f'Traceback (most recent call last):\n  File "/w/a.py", line 7, in get_args\n    raise odd(\n{said}'
    first = diagnose([text_source("log", log)])[0]
    assert (first.id, first.summary) == (cause, f"{CAUSES[cause].title}{f': {named}' if named else ''}.")
    assert not named or "<path>" not in "".join(first.remedies[0].commands)


def test_an_exception_that_is_quoted_further_in_is_read() -> None:
    assert [one.id for one in diagnose([text_source("log", "it died of\n\n    TypeError: odd\n")])] == [
        "program_failed"
    ]
