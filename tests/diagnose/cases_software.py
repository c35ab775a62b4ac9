"""Engines' settings, models, tracking, environments, trainers."""

from __future__ import annotations

from case import Case

STEP = "(TaskRunner pid=7) step:{step} - actor/entropy_loss:0.2 - actor/pg_loss:0.006 - actor/grad_norm:{norm}"

CASES = {
    "engine_tp_heads": Case(
        has=(
            "ValueError: Weight input_size_per_partition = 3696 is not divisible by min_thread_k = 128. Consider "
            "reducing tensor_parallel_size.",
            "ValueError: gate's output_size = 1376 is not divisible by weight quantization block_n = 128.",
            "ValueError: Total number of attention heads (52) must be divisible by tensor parallel size (8).",
            "ValueError: The number of GPUs per node is not divisible by the number of tensor parallelism.",
        ),
        looks_like=("32 attention heads, tensor parallel size 8",),
    ),
    "engine_unfit_model": Case(
        has=(
            "ValueError: LoRA rank 64 is greater than max_lora_rank 16.",
            "ValueError: base_model.model.lm_head.weight is unsupported LoRA weight",
        ),
        looks_like=("INFO: LoRA rank 16, max_lora_rank 16, head size 128", "KeyError: 'layers.0.mlp.weight'"),
    ),
    "tensors_unfit": Case(
        has=(
            "RuntimeError: The size of tensor a (5) must match the size of tensor b (4) at non-singleton dimension 0",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4 and 5x2)",
        ),
        looks_like=("a test: The size of tensor a (3) must match the size of tensor b (4), as expected",),
    ),
    "engine_max_model_len": Case(
        has=(
            "AssertionError: model context length should be greater than total sequence length",
            "ValueError: User-specified max_model_len (4096) is greater than the derived max_model_len "
            "(max_position_embeddings=2048.0 or model_max_length=None in model's config.json).",
        ),
        looks_like=("INFO: derived max_model_len 32768, using max_model_len 4096",),
    ),
    "engine_prompt_too_long": Case(
        has=(
            "ValueError: Prompt length of 2048 is longer than the maximum model length of 2048.",
            "ValueError: This model's maximum context length is 8192 tokens. However, you requested 8203 tokens "
            "(7691 in the messages, 512 in the completion).",
            "ValueError: The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
        ),
        looks_like=("Longest prompt 1800 tokens, maximum model length 2048",),
    ),
    "engine_core_died": Case(
        has=(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "ERROR 06-13 02:36:52 async_llm_engine.py:52] Engine background task failed",
            "CRITICAL 12-01 13:05:02 launcher.py:99] MQLLMEngine is already dead, terminating server process",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above).",
            "ERROR [core_client.py:605] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"
            "srun: error: n1: task 0: Exited with exit code 1",
        ),
        looks_like=(
            "Processed prompts: 100%|##########| 64/64 [00:20<00:00]\n"
            "ERROR [core_client.py:605] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
        ),
    ),
    "chat_template_missing": Case(
        has=(
            "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no template "
            "argument was passed!",
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat "
            "template.",
        ),
        looks_like=("INFO: using the chat template of the tokenizer",),
    ),
    "sandbox_down": Case(
        has=(
            "ClientConnectorError: Cannot connect to host reward-server:8000 ssl:default [Connect call failed]",
            "Sandbox API call failed. Last error: HTTPConnectionPool(host='127.0.0.1', port=8080): Read timed out.",
            "requests.exceptions.ConnectionError: Max retries exceeded with url: /run_code (Connection refused)",
            "scoring gave up: HTTPConnectionPool(host='10.2.0.5', port=7001): Max retries exceeded with url: "
            "/v2/get_reward?n=4 (Caused by ConnectTimeoutError('timed out'))",
        ),
        looks_like=(
            "Checking if environment supports sandboxing... ok",
            "sandbox: connection refused, retrying in 2 s",
            "HTTPConnectionPool(host='10.2.0.5', port=7001): Max retries exceeded with url: /metrics/rewarded_users",
        ),
    ),
    "hf_gated_auth": Case(
        has=(
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-66f4b037)",
            "OSError: You are trying to access a gated repo. Make sure to have access to it.",
        ),
        looks_like=("wandb: ERROR 401 Client Error: user is not logged in", "Access to model x was granted"),
    ),
    "hf_offline_miss": Case(
        has=(
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and "
            "outgoing "
            "traffic has been disabled.",
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the "
            "cached files.",
        ),
        looks_like=(
            "Downloading https://huggingface.co/x/resolve/main/config.json",
            "HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. Retrying in 1s [Retry 1/5].",
        ),
    ),
    "hf_rate_limit": Case(
        has=(
            "HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/datasets/glue",
            "HfHubHTTPError: 504 Server Error: Gateway Time-out for url: https://hub/x",
            "504 Server Error: Gateway Time-out for url: https://huggingface.co/api/models?limit=5000",
        ),
        looks_like=(
            "HTTP Error 429 thrown while requesting GET https://huggingface.co/api/x\n"
            "Rate limited. Waiting 207.0s before retry [Retry 1/5].",
        ),
    ),
    "wandb_auth": Case(
        has=(
            "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
            "wandb: ERROR Error while calling W&B API: permission denied (<Response [401]>)",
            "PermissionError: [Errno 13] Permission denied: '/home/me/.config/wandb'",
        ),
        looks_like=(
            "wandb: W&B API key is configured. Use `wandb login --relogin` to force relogin",
            "wandb: Currently logged in as: me",
        ),
    ),
    "wandb_network": Case(
        has=(
            "wandb: Network error (ReadTimeout), entering retry loop.",
            "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
        ),
        looks_like=(
            "wandb: Network error (ReadTimeout), entering retry loop.\nwandb: Network error resolved after 0:00:12.",
            "wandb: WARNING Using a boolean value for 'reinit' is deprecated.",
        ),
    ),
    "abi_mismatch": Case(
        has=(
            "CUDAMismatchException: Installed CUDA 12.1 does not match the version torch was compiled with 11.8",
            "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE",
            "RuntimeError: operator torchvision::nms does not exist",
        ),
        looks_like=("ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister", "symbols loaded"),
    ),
    "no_gpu_visible": Case(
        has=(
            "ValueError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2.",
            "RuntimeError: Distributed package doesn't have NCCL built in",
            "RuntimeError: No HIP GPUs are available",
            "ValueError: Attempting to start raylet with 1 GPU, but CUDA_VISIBLE_DEVICES contains [].",
            "AssertionError: Torch not compiled with CUDA enabled",
            'RuntimeError: INTERNAL ASSERT FAILED at "CUDAContext.cpp":49. device=\x01, num_gpus=\x01',
            "RuntimeError: No CUDA GPUs are available",
            "RuntimeError: CUDA error: invalid device ordinal",
            "torch.AcceleratorError: CUDA error: no CUDA-capable device is detected",
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        ),
        looks_like=(
            "WARNING: No CUDA GPUs are available, falling back to the CPU",
            "(raylet) CUDA_VISIBLE_DEVICES contains [0, 1]",
        ),
    ),
    "env_import_broken": Case(
        has=(
            "CUDA SETUP: CUDA detection failed! Possible reasons:\n1. CUDA driver not installed",
            "bash: orted: command not found",
            "ERROR: Cannot install vllm==0.8.5 and torch==2.8.0 because these package versions "
            "have conflicting dependencies.",
            "FileNotFoundError: [Errno 2] No such file or directory: 'ldconfig'",
            "/usr/bin/env: ‘python’: No such file or directory",
            "/usr/bin/ld: cannot find -lcuda: No such file or directory",
            "slurmstepd: error: execve(): torchrun: No such file or directory",
            "ValueError: The checkpoint has model type `new5` but Transformers does not recognize this architecture.",
            "ValueError: Model architectures ['NewForCausalLM'] are not supported for now.",
            "Value error, Model architectures ['NewForCausalLM'] failed to be inspected.",
            "RuntimeError: Failed to import models.new because of the following error: No module named 'x.ops'",
            "    config_class = CONFIG_MAPPING[config_dict[\"model_type\"]]\nKeyError: 'new_moe'",
            "TypeError: LLM.__init__() got an unexpected keyword argument 'enable_sleep_mode'",
            "AttributeError: module 'torch.library' has no attribute 'wrap_triton'",
            "ModuleNotFoundError: No module named 'pandas'",
            "ray.exceptions.RaySystemError: System error: No module named 'verl'",
            "ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by x.so)",
            "/var/spool/slurm_script: line 12: conda: command not found",
            "CUDA SETUP: Solution 2: If no library was found you need to install CUDA.\nCUDA SETUP: Setup Failed!",
        ),
        looks_like=(
            "FileNotFoundError: [Errno 2] No such file or directory: 'results.txt'",
            "UserWarning: Failed to initialize NumPy: No module named 'numpy'",
            "INFO: No module named 'flash_attn', falling back to sdpa",
        ),
    ),
    "setup_line_failed": Case(
        has=(
            'Lmod has detected the following error:  The following module(s) are unknown: "cuda/99"',
            'These module(s) or extension(s) exist but cannot be loaded as requested: "nccl/2.20"',
            "ERROR: Unable to locate a modulefile for 'cuda/99'",
            "/var/spool/slurmd/job00012/slurm_script: line 61: module: command not found",
            "EnvironmentNameNotFound: Could not find conda environment: rl",
            "EnvironmentLocationNotFound: Not a conda environment: /opt/envs/rl",
            "CondaError: Run 'conda init' before 'conda activate'",
            "/var/spool/slurmd/job00012/slurm_script: line 61: /opt/rl/bin/activate: No such file or directory",
            "slurm_script: line 61: conda: command not found\n"
            "rltui: the set-up in the job script ended with code 127; see slurm-12.out",
            "reason: the set-up in the job script ended with code 1; see slurm-12.out",
        ),
        looks_like=(
            "bash: module: command not found? skipping",
            'The following module(s) were reloaded: "cuda/12"',
            "conda activate rl",
        ),
    ),
    "profile_unusable": Case(
        has=(
            "rltui: the python of the cluster's profile was not found on node1",
            "rltui: the python outside the container was not found on node1",
            "reason: env_file /home/alice/.secrets can be read by others; run: chmod 600 /home/alice/.secrets",
            "reason: env_file /home/alice/.secrets cannot be read: No such file or directory",
        ),
        looks_like=("env_file: /home/alice/.secrets", "the config was not found on node1; the defaults are used"),
    ),
    "ds_batch_assert": Case(
        has=(
            "    assert args.batch_size % len(devices) == 0\nAssertionError",
            "AssertionError: batch-size 64 not multiple of GPU count 3",
            "AssertionError: number of items:[2] < k_partitions:[4]",
            "AssertionError: key task_suite_name length 10 is not equal to batch size 11",
            "AssertionError: len(batch_lst) (14) != chunks (15)",
            "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
            "gradient_acc_step * world_size 7 != 2 * 2 * 1",
            "AssertionError: Micro batch size per gpu: 0 has to be greater than 0",
        ),
        looks_like=(
            "    assert len(names) > 1\nAssertionError",
            "    assert args.batch_size % 8 == 0\nValueError: x",
            "train_batch_size 128 = micro_batch_per_gpu 2 * gradient_acc_step 8 * world_size 8",
        ),
    ),
    "nan_or_loss_scale": Case(
        has=(
            "ValueError: Expected parameter logits of distribution Categorical() to satisfy the constraint "
            "IndependentConstraint(Real(), 1), but found invalid values: tensor([[nan]])",
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
            "\n".join(STEP.format(step=step, norm="nan") for step in (2, 3, 4)),
            STEP.format(step=2, norm="nan"),
            "{'loss': nan, 'learning_rate': 1e-06, 'epoch': 0.2}",
            " iteration 5 | loss scale: 1.0 | grad norm: nan |\n iteration 6 | loss scale: 1.0 | grad norm: nan |\n"
            " iteration 7 | loss scale: 1.0 | grad norm: nan |",
            "step 12: the loss is nan; lower train.learning_rate, or train in bf16 instead of fp16",
        ),
        looks_like=(
            STEP.format(step=1, norm="nan") + "\n" + STEP.format(step=2, norm="0.4"),
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4294967296, reducing to 2147483648",
            "total_grad_norm: N/A total_loss: 1.39",
        ),
    ),
    "path_missing": Case(
        has=(
            "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/Qwen3-8B'.",
            "OSError: /models/Qwen3-8B does not appear to have a file named config.json.",
            "OSError: Error no file named model.safetensors, or pytorch_model.bin, found in directory /ckpt/step-20.",
            "/env/bin/python: can't open file '/w/train.py': [Errno 2] No such file or directory",
            "FileNotFoundError: Unable to find '/data/gsm8k/train.parquet'",
            "rltui: the script cannot be started: [Errno 2] No such file or directory: '/home/user/code'",
            "slurmstepd: error: couldn't chdir to `/w/run': No such file or directory: going to /tmp instead",
            "ValueError: Invalid repository ID or local directory specified: '/models/Qwen3'.",
            "OSError: Can't load the configuration of '/models/Qwen3'. If you were trying to load it from "
            "'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
            "OSError: Can't load config for '../data/style_tokenizer'. Make sure that:",
        ),
        looks_like=(
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
            "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/lock'",
            "rltui: the script cannot be started: [Errno 28] No space left on device: 'out.log'",
        ),
    ),
    "ckpt_broken": Case(
        has=(
            "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
            "size mismatch for lm_head.weight: copying a param with shape torch.Size([2, 2]) from checkpoint",
        ),
        looks_like=("Saved checkpoint step-50, size 14 GiB", "RuntimeError: DataLoader worker (pid 3) is killed"),
    ),
    "own_variant": Case(
        has=(
            "trainers.variants.VariantError: grpo.advantage my:flat returned a tensor of shape [3], and [3, 4] is due",
            "RoleError: learner 1 (pid 17 on n2) failed: VariantError: grpo.ratio a.b:c returned numbers "
            "that are not finite",
        ),
        looks_like=("grpo.ratio a.b:c is used", "VariantError: unknown variant"),
    ),
    "settings_rejected": Case(
        has=(
            "Error locating target 'src.lscd.Compare', see chained exception above.\nfull_key: task.model",
            "omegaconf.errors.ConfigAttributeError: Key 'actor' is not in struct\n    full_key: actor",
            "Could not override 'actor_rollout_ref.rollout.nam'.\nTo append to your config use +actor_rollout_ref",
            "LexerNoViableAltException: data.files=[a,\nhydra.errors.OverrideParseException: mismatched input '<EOF>'",
            "grpo.py: error: unrecognized arguments: --num_generation 8",
            "train.py: error: argument --zero_stage: invalid int value: 'three'",
            "grpo.py: error: the following arguments are required: --model_name_or_path",
            "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--use_vlm']",
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for OrchestratorConfig\nbatch_size",
            "tomllib.TOMLDecodeError: Expected '=' after a key in a key/value pair (at line 3, column 7)",
        ),
        looks_like=(
            "INFO overriding 'batch_size' of the config with 8",
            "UserWarning: argument --max_steps is deprecated",
        ),
    ),
    "process_crashed": Case(
        has=(
            "*** SIGSEGV received at time=1741149596 on cpu 63 ***",
            "Fatal Python error: Segmentation fault",
            "E1119 08:26:02 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -11) local_rank: 0 "
            "(pid: 7) of binary: /env/bin/python",
            "srun: error: n1: task 3: Segmentation fault (core dumped)",
            "run.sh: line 9: 4711 Illegal instruction     (core dumped) python train.py",
            "double free or corruption (!prev)",
            "malloc(): unsorted double linked list corrupted",
            "RuntimeError: DataLoader worker (pid 13) is killed by signal: Aborted.",
            "[n1:4711] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
            "[Mon Jun 23 19:39:31] python3[78]: segfault at 60 ip 00007f24b8cf2616 sp 00007ffc error 4 in libc10.so",
        ),
        looks_like=(
            "some causes: (2) ray stop was called, or (3) the worker crashed due to SIGSEGV or another error",
            "Training completed after 100 steps\n*** SIGSEGV received at time=1741149596 on cpu 63 ***",
        ),
    ),
    "engine_unreachable": Case(
        has=(
            "httpx.HTTPStatusError: Server error '503 Service Unavailable' for url 'http://10.0.0.1:3938/generate'",
            "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: http://n1:8000/health_generate",
            "[11:02:33] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
            "(RolloutManager pid=9) Health check failed for rollout engine 0. Killing actor.",
            "TimeoutError: Inference server is not ready after 600 (>600) seconds. Aborting...",
            '  File "/env/trl/extras/vllm_client.py", line 331, in update_named_param\n'
            "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed'))",
            "ConnectionError: The vLLM server can't be reached at http://n1:8000 after 240 seconds.",
            "RuntimeError: server launch failed",
            "RuntimeError: Failed after 3 retries each. Payload: {'input_ids': [1]}. Endpoint: /generate",
        ),
        looks_like=(
            "16:41:43 WARNING Inference server was not reached after 10 seconds on http://localhost:8000",
            "wandb: Network error (ConnectionError), RemoteDisconnected('Remote end closed'), entering retry loop",
            "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://hub/api/models/q/w",
        ),
    ),
    "data_unfit": Case(
        has=(
            '  File "/w/verl/workers/reward_manager/naive.py", line 203, in __call__\n'
            '    ground_truth = item.non_tensor_batch["reward_model"]["ground_truth"]\n'
            "KeyError: 'reward_model'",
            "  File \"/w/verl/utils/dataset.py\", line 227, in _build_messages\nKeyError: 'problem'",
            "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
            "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.",
        ),
        looks_like=(
            "KeyError: 'reward_model'",
            "  File \"/w/verl/workers/actor/dp_actor.py\", line 9, in update\nKeyError: 'old_log_probs'",
        ),
    ),
    # what follows tells whether an exception ended the program: test_first_exception has those that did
    "program_failed": Case(
        has=(),
        looks_like=(
            "ZeroDivisionError: division by zero (skipped)",
            "Exception ignored in: <function Pool.__del__ at 0x7f>\nTraceback (most recent call last):\n"
            '  File "/usr/lib/pool.py", line 9, in __del__\nZeroDivisionError: division by zero',
        ),
    ),
    "kernel_compile": Case(
        has=(
            "torch._inductor.exc.InductorError: AttributeError: 'NoneType' object has no attribute 'store_cubin'",
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nRuntimeError: no kernel",
            "Internal Triton PTX codegen error:\nptxas fatal   : Ptx assembly aborted due to errors",
        ),
        looks_like=(
            "W0306 14:40:15 torch/_inductor/select_algorithm.py:1517] [2/0] out of resource: shared memory, "
            "Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
        ),
    ),
    "access_denied": Case(
        has=(
            "[rank1]: PermissionError: [Errno 13] Keine Berechtigung: '/.cache'",
            "PermissionError: [Errno 1] Operation not permitted: '/w/run'",
        ),
        looks_like=("wandb: WARNING PermissionError: [Errno 13] Permission denied: '/home/me/.config/wandb'",),
    ),
    "rank_numbers": Case(
        has=(
            "node-0:70:70 [0] init.cc:981 NCCL WARN Invalid rank requested : 1/1",
            "n-1:69:70 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in",
        ),
        looks_like=("rank 1 of 8 has joined",),
    ),
}
