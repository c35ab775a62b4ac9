"""Fails in many ways, each named on the command line, and prints what the libraries say; run by test_diagnose_live."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path


def plain_disk_full() -> None:
    with Path("/dev/full").open("w") as full:
        full.write("x" * 100_000)


def open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(60):
            stack.enter_context(Path("/dev/null").open())


def socket_path() -> None:
    socket.socket(socket.AF_UNIX).bind("/tmp/" + "x" * 120)


def no_module() -> None:
    import no_such_module_at_all  # type: ignore[import-not-found]  # noqa: F401


def _with_address_space(mib: int, do: Callable[[], object]) -> None:
    """Run ``do`` with that much more memory than there is in use: what a limit of the site does."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (mib << 20), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        do()


def threads() -> None:
    before = threading.stack_size(256 << 20)
    with contextlib.ExitStack() as stack:
        stack.callback(threading.stack_size, before)
        _with_address_space(64, lambda: threading.Thread(target=print).start())


def memory_limit() -> None:
    _with_address_space(64, lambda: bytearray(1 << 30))


def port() -> None:
    import torch.distributed as dist

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        dist.TCPStore("127.0.0.1", taken.getsockname()[1], 1, True)


def _group(rank: int, size: int, number: int) -> None:
    import datetime

    import torch.distributed as dist

    method = f"tcp://127.0.0.1:{number}"
    dist.init_process_group("gloo", method, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=2))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def store() -> None:
    _group(0, 2, _free_port())


def _meet_or_leave(rank: int, number: int) -> None:
    import torch
    import torch.distributed as dist

    _group(rank, 2, number)
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    os._exit(0)


def peer() -> None:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    number = _free_port()
    ranks = [context.Process(target=_meet_or_leave, args=(rank, number)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(30)


def nan_backward() -> None:
    import torch

    with torch.autograd.set_detect_anomaly(True):
        zero = torch.zeros(1, requires_grad=True)
        (torch.sqrt(zero) * 0).backward()


def nan_sampling() -> None:
    import torch

    torch.multinomial(torch.tensor([float("nan"), 1.0]), 1)


def loader() -> None:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Deadly(Dataset[int]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            os.kill(os.getpid(), signal.SIGBUS if index == 4 else 0)
            return index

    assert torch
    try:
        for _ in DataLoader(Deadly(), num_workers=1):
            pass
    finally:  # torch raises from its handler, too: wherever this process is when the signal comes
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def cut_checkpoint() -> None:
    import torch

    with tempfile.NamedTemporaryFile() as file:
        torch.save({"a": torch.ones(1000)}, file.name)
        os.truncate(file.name, 2000)
        torch.load(file.name)


def other_sizes() -> None:
    import torch

    torch.nn.Linear(2, 2).load_state_dict(torch.nn.Linear(3, 2).state_dict())


def bad_safetensors() -> None:
    from safetensors.torch import load_file

    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\xff" * 100)
        file.flush()
        load_file(file.name)


def save_to_full_disk() -> None:
    import torch

    torch.save({"a": torch.ones(1_000_000)}, "/dev/full")


def host_memory() -> None:
    import torch

    torch.empty(1 << 50, dtype=torch.uint8)


def hub_offline() -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download("nobody/no-such-model", "config.json")


def no_template() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")))
    tokenizer.apply_chat_template([{"role": "user", "content": "a"}])


def wandb_no_key() -> None:
    import wandb

    wandb.init(project="x")


def batch() -> None:
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    from deepspeed.runtime.config import DeepSpeedConfig

    sizes = {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
    DeepSpeedConfig(sizes)


def _ray() -> None:
    import ray

    if not ray.is_initialized():
        os.environ.update(RAY_USAGE_STATS_ENABLED="0")
        folder = tempfile.mkdtemp(prefix="rt", dir="/tmp")  # short: Ray's sockets end at 107 bytes
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(ray.shutdown)
        ray.init(num_cpus=1, num_gpus=0, include_dashboard=False, _temp_dir=folder)


def actor() -> None:
    import ray

    _ray()

    @ray.remote
    class Mortal:
        def die(self) -> None:
            os._exit(3)

    ray.get(Mortal.remote().die.remote(), timeout=30)


def group() -> None:
    import ray
    from ray.util.placement_group import placement_group

    _ray()
    ray.get(placement_group([{"GPU": 1}] * 2, strategy="STRICT_SPREAD").ready(), timeout=3)


def _child(code: str, until: str, **environ: str) -> None:
    """Run Python in a child, and print what it says up to the line with ``until``; then it has said it all."""
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    for line in child.stdout:
        print(line, end="", flush=True)
        if until in line:
            break
    child.kill()
    child.wait()


def unreachable_gcs() -> None:
    _child("import ray; ray.init(address='127.0.0.1:1')", "GCS", RAY_gcs_rpc_server_connect_timeout_s="1")


def other_version() -> None:
    import ray

    _ray()
    address = ray.get_runtime_context().gcs_address
    _child(f"import ray; ray.__version__ = '1.2.3'; ray.init(address='{address}')", "This process on")


def ray_port() -> None:
    import ray

    _ray()
    host, number = ray.get_runtime_context().gcs_address.rsplit(":", 1)
    code = f"import sys; sys.argv = ['ray', 'start', '--head', '--node-ip-address={host}', '--port={number}']"
    _child(f"{code}; from ray.scripts.scripts import main; main()", "already running")


def _tiny_model() -> str:
    folder = Path(tempfile.mkdtemp())
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    more = {"head_dim": 16, "num_hidden_layers": 2, "vocab_size": 256, "max_position_embeddings": 512}
    kind = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32", "rms_norm_eps": 1e-6}
    folder.joinpath("config.json").write_text(json.dumps({**kind, **sizes, **more}))
    return str(folder)


def heads() -> None:
    from vllm.engine.arg_utils import EngineArgs

    EngineArgs(model=_tiny_model(), skip_tokenizer_init=True, tensor_parallel_size=3).create_engine_config()


def context() -> None:
    from vllm.engine.arg_utils import EngineArgs

    EngineArgs(model=_tiny_model(), skip_tokenizer_init=True, max_model_len=4096).create_engine_config()


def no_cache() -> None:
    from vllm.v1.core import kv_cache_utils

    kv_cache_utils._check_enough_kv_cache_memory(0, int, 4096, int)


def small_cache() -> None:
    from vllm.v1.core import kv_cache_utils

    kv_cache_utils._check_enough_kv_cache_memory(1 << 30, lambda: 1 << 31, 4096, lambda _: 2048)


def main() -> None:
    """Provoke each failure named, and go on."""
    for name in sys.argv[1:]:
        sys.stdout.write(f"====={name}\n")  # at once: print writes the end of a line by itself, and Ray prints between
        sys.stdout.flush()
        try:
            globals()[name]()
        except (Exception, SystemExit):  # noqa: BLE001 (whatever it is, its words are what the test is about)
            traceback.print_exc()
        sys.stderr.flush()


if __name__ == "__main__":
    main()
