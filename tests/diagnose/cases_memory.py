"""Memory: GPU memory by place, the KV cache, host memory."""

from __future__ import annotations

from case import Case

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB "
    "of which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.08 GiB memory in use. Of the "
    "allocated memory 76.40 GiB is allocated by PyTorch, and 310.00 MiB is reserved by PyTorch but unallocated."
)


def traceback(*frames: str) -> str:
    """Return a traceback with ``frames`` (path:function:code), outermost first, that ends in running out of memory."""
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        path, function, code = frame.split(":", 2)
        lines += [f'  File "/opt/venv/lib/python3.11/site-packages/{path}", line 7, in {function}', f"    {code}"]
    return "\n".join([*lines, OOM])


CASES = {
    "cuda_oom_fwd_bwd": Case(
        has=(
            traceback(
                "torch/nn/modules/module.py:_call_impl:return forward_call(*args)", "m.py:forward:x = self.up(x)"
            ),
            traceback("torch/_tensor.py:backward:torch.autograd.backward(", "torch/autograd/graph.py:_run:engine()"),
            traceback(
                "deepspeed/runtime/engine.py:backward:self.optimizer.backward(loss)",
                "deepspeed/runtime/zero/stage_1_and_2.py:backward:buf_0 = torch.empty(int(self.reduce_bucket_size))",
            ),
            "ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.actor_rollout_update_actor() (pid=7, "
            "ip=10.0.0.4)",
            "RuntimeError: CUDA error: out of memory",
        ),
        looks_like=(
            "Set PYTORCH_CUDA_ALLOC_CONF to avoid CUDA out of memory errors on long sequences.",
            "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |",
            "CUDA graphs take extra memory per GPU. If you are running out of memory, lower gpu_memory_utilization.",
            "WARNING: CUDA out of memory in this batch, skipping batch 17",
            "    except torch.cuda.OutOfMemoryError:  # CUDA out of memory",
        ),
    ),
    "cuda_oom_optimizer": Case(
        has=(
            traceback(
                "torch/optim/adamw.py:step:adamw(", "torch/optim/adamw.py:_multi_tensor_adamw:torch._foreach_sqrt("
            ),
            traceback(
                "accelerate/optimizer.py:step:self.optimizer.step(closure)", "apex/optimizers/x.py:step:state = {}"
            ),
            f"│ ❱ 290 │   │   │   retval = optimizer.step(*args, **kwargs) │\n│   291 │   │   return retval │\n{OOM}",
        ),
        looks_like=(traceback("m.py:forward:return self.mlp(x)"), "optimizer.step took 1.2 s, 3.4 GiB allocated"),
    ),
    "cuda_oom_zero3_gather": Case(
        has=(
            traceback("deepspeed/runtime/zero/partitioned_param_coordinator.py:fetch_sub_module:self.__all_gather("),
            traceback("torch/distributed/fsdp/_runtime_utils.py:_unshard:handle.unshard()"),
        ),
        looks_like=(traceback("torch/optim/adam.py:step:adam("), "ZeRO-3 fetch_sub_module prefetched 12 parameters"),
    ),
    "cuda_oom_logits": Case(
        has=(
            traceback(
                "verl/workers/actor/dp_actor.py:compute_log_prob:out = f()", "u.py:entropy_from_logits:pd = softmax(l)"
            ),
            traceback("trl/trainer/utils.py:selective_log_softmax:logps = F.log_softmax(logits, dim=-1)"),
            traceback("torch/nn/functional.py:cross_entropy:return torch._C._nn.cross_entropy_loss("),
        ),
        looks_like=(
            traceback(
                "models/qwen.py:attention_forward:w = softmax(scores)", "torch/nn/functional.py:softmax:x.softmax(d)"
            ),
            "compute_log_prob: 12.1 s, 3.1 GiB of logits",
        ),
    ),
    "cuda_oom_gpu_shared": Case(
        has=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of "
            "79.10 "
            "GiB of which 20.00 MiB is free. Process 31 has 60.10 GiB memory in use. Process 32 has 14.00 GiB memory "
            "in "
            "use. Of the allocated memory 4.20 GiB is allocated by PyTorch, and 80.00 MiB is reserved by PyTorch but "
            "unallocated.",
            "CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 22.07 GiB of which 41.00 "
            "MiB "
            "is free. Process 1 has 7.10 GiB memory in use. Process 2 has 7.20 GiB memory in use. Process 3 has 7.50 "
            "GiB "
            "memory in use.",
        ),
        looks_like=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of "
            "79.11 "
            "GiB of which 8.85 GiB is free. Process 23444 has 70.20 GiB memory in use. Of the allocated memory 60.00 "
            "GiB "
            "is allocated by PyTorch, and 9.00 GiB is reserved by PyTorch but unallocated.",
        ),
    ),
    "oom_weight_sync": Case(
        has=(
            traceback("vllm/device_allocator/cumem.py:wake_up:create_and_map(handle)"),
            "RuntimeError: CUDA Error: out of memory at /build/csrc/cumem_allocator.cpp:62",
            "POST /resume_memory_occupation 500: resume_memory_occupation failed with CUDA error: out of memory",
            traceback("verl/workers/sharding_manager/fsdp_vllm.py:__enter__:self.update_params(params)"),
            "[torch_memory_saver.cpp] cudaError error: 2 (out of memory)  file=csrc/core.cpp func=resume line=172",
            traceback("slime/backends/megatron_utils/update_weight_utils.py:gather_param:dist.all_gather("),
        ),
        looks_like=(
            "[torch_memory_saver.cpp] cuMemCreate CUDA_ERROR_OUT_OF_MEMORY (may not be an issue e.g. torch allocator "
            "will free cache and retry)",
            "INFO 10-25 13:08:43 [gpu_worker.py:121] Sleep mode freed 41.20 GiB memory, 2.10 GiB memory is still in "
            "use.",
            traceback("m.py:forward:x = self.up(x)"),
            traceback("optim.py:update_weight_decay:p.mul_(", "torch/optim/adamw.py:step:adamw("),
            "wake_up took 0.7 s\n" + traceback("m.py:backward:loss.backward()"),
        ),
    ),
    "engine_load_oom": Case(
        has=(
            traceback(
                "vllm/v1/worker/gpu_worker.py:load_model:self.model_runner.load_model()", "vllm/m.py:w:torch.empty("
            ),
            "(RayWorkerWrapper pid=301) ERROR 04-18 01:30:29 [worker_base.py:620] torch.OutOfMemoryError: CUDA out of "
            "memory. Tried to allocate 896.00 MiB. GPU 4 has a total capacity of 79.25 GiB.",
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try "
            "lowering `max_num_seqs`.",
            f"{OOM}\nRuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
        ),
        looks_like=(
            traceback("torch/optim/adamw.py:step:adamw("),
            "INFO [gpu_model_runner.py:26] Model loading took 14.2 GiB and 3.2 seconds",
        ),
    ),
    "engine_kv_no_blocks": Case(
        has=(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine.",
            "INFO 04-27 10:13:05 llm_engine.py:275] # GPU blocks: 0, # CPU blocks: 256",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "max_total_tokens=4096 is larger than the profiled value -311. Use the profiled value instead.",
            "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
        ),
        looks_like=(
            "max_total_tokens=4096 is larger than the profiled value 3110. Use the profiled value instead.",
            "INFO 04-27 10:13:05 llm_engine.py:275] # GPU blocks: 1952, # CPU blocks: 2048",
        ),
    ),
    "engine_kv_max_len": Case(
        has=(
            "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be "
            "stored in "
            "KV cache (3664). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.",
            "ValueError: To serve at least one request with the model's max seq len (8192), (1.0 GiB KV cache is "
            "needed, "
            "which is larger than the available KV cache memory (0.4 GiB). Based on the available memory, the "
            "estimated "
            "maximum model length is 3008.",
        ),
        looks_like=("Maximum concurrency for 20000 tokens per request: 1.56x",),
    ),
    "engine_free_mem_lt_util": Case(
        has=(
            "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
            "ValueError: Free memory on device (7.34/139.72 GiB) on startup is less than desired GPU memory "
            "utilization "
            "(0.9, 125.75 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
            "ValueError: Free memory on device cuda:1 (70.0/79.1 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 71.2 GiB).",
        ),
        looks_like=("INFO: free memory on device 70.0/79.1 GiB, utilization 0.6",),
    ),
    "host_oom_slurm": Case(
        has=(
            "slurmstepd: error: Detected 3 oom_kill events in StepId=71.0. Some of the step tasks have been OOM "
            "Killed.",
            "srun: error: node07: task 4: Out Of Memory",
            "run.sh: line 12: 23156 Killed                  python -m verl.trainer.main_ppo data.x=1",
            "Out of memory: Killed process 4711 (python3) total-vm:812345kB, anon-rss:712345kB",
            "4242|train|OUT_OF_MEMORY|0:125|node07",
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you "
            "tried to "
            "allocate 51200000000 bytes. Error code 12 (Cannot allocate memory)",
        ),
        looks_like=(
            "slurmstepd: error: Detected 0 oom-kill events in StepId=71.0",
            "The actor is dead because its worker process has died. There are some potential root causes. (1) The "
            "process "
            "is killed by SIGKILL by OOM killer due to high memory usage.",
            "RuntimeError: CUDA error: out of memory",
        ),
    ),
    "ray_oom_kill": Case(
        has=(
            "(raylet) node_manager.cc:3277: 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers "
            "crashed due to other reasons at node (ID: 82, IP: 10.0.0.7) over the last time period.",
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
            "Memory on the node was 54.86GB / 57.60GB (0.952354), which exceeds the memory usage threshold of 0.95.",
        ),
        looks_like=(
            "(raylet) node_manager.cc:3277: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers "
            "crashed due to other reasons at node (ID: 82, IP: 10.0.0.7) over the last time period.",
            "To adjust the kill threshold, set the environment variable `RAY_memory_usage_threshold` when starting "
            "Ray.",
            "W 3546 3546] (raylet) memory_monitor_utils.cc:437: Got negative used memory for cgroup -1, setting it to "
            "zero",
            "W 12 12] (raylet) memory_monitor.cc:81: Unable to capture node memory. Monitor will not be able to detect "
            "memory usage above threshold.",
        ),
    ),
    "dataloader_killed": Case(
        has=(
            "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error.",
            "RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly",
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
            "(shm).",
            "tmpfs                 24G   23G  1.1G  96% /dev/shm",
        ),
        looks_like=(
            "RuntimeError: DataLoader worker (pid 13) is killed by signal: Segmentation fault. ",
            "DataLoader worker (pid 13) started with 4 threads",
            "tmpfs   24G   2G  22G  9% /dev/shm",
        ),
    ),
    "ray_shm_too_small": Case(
        has=(
            "ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store because it is full.",
            "ValueError: The configured object store size (30.0 GB) exceeds /dev/shm size (8.0 GB).",
            "plasma/store.cc:120: plasma store failed to allocate memory: no space left in /dev/shm",
            "(raylet) shared_memory.cc: mmap failed with No space left on device for the plasma arena\n"
            "Fatal Python error: Bus error",
        ),
        looks_like=(
            "object store memory 8.0 GB, /dev/shm size 64.0 GB",
            "WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has only 67108864 bytes "
            "available. This will harm performance!",
        ),
    ),
}
