"""Runs of another system, by its own script: launched, watched, killed and resumed, on this machine and on Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from json_lines import records
from slurm_support import profile_file
from verbs import rltui

from free_ports import free_ports
from rltui.onnode import processes
from trainers.data.models import cache_folder
from trainers.data.tiny_qwen3 import TinySettings
from waiting import DEADLINE_S, eventually

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]
TALKERS = Path(__file__).parent / "talkers"
SCRIPT = f"""#!/bin/bash
#SBATCH --time=00:20:00
PYTHONPATH={TALKERS} {sys.executable} -m verl.trainer.main_ppo trainer.default_local_dir=$PWD/checkpoints \\
    trainer.resume_mode=disable trainer.total_training_steps=100000 "$@"
"""
OUT_OF_MEMORY = """Traceback (most recent call last):
  File "/opt/train/worker.py", line 812, in update_policy
    loss.backward()
  File "/opt/torch/_tensor.py", line 647, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.11 GiB of which
1.20 GiB is free. Process 1234 has 77.90 GiB memory in use.
"""
TRL = f"""#!{sys.executable}
import sys

sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests/bench")!r}]
from pathlib import Path

import peer_trl
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from trainers.data.models import cache_folder
from trainers.data.tiny_qwen3 import TinySettings

torch.set_num_threads(1)
steps = 100_000 if len(sys.argv) < 2 else int(sys.argv[1].split("=")[1])
settings = {{**peer_trl.SETTINGS, "save_strategy": "steps", "save_steps": 5}}
settings |= {{"disable_tqdm": False, "max_steps": steps, "output_dir": "out", "num_generations": 8, "logging_steps": 1}}
settings["report_to"] = [] if len(sys.argv) < 2 else ["wandb"]
model = str(TinySettings(3, 0).ensure(cache_folder() / "models", lambda *_: None))
data = Dataset.from_dict({{"prompt": peer_trl.texts(0, 4000)}})
trainer = GRPOTrainer(model, reward_funcs=peer_trl.reward, args=GRPOConfig(**settings), train_dataset=data)
# the one that the end of the attempt before interrupted has no state
complete = sorted(Path("out").glob("*/trainer_state.json"), key=lambda path: int(path.parent.name[11:]))
trainer.train(resume_from_checkpoint=str(complete[-1].parent) if complete else None)
"""
TORCHRUN = f"""#!/bin/bash
# names no rendezvous: it was written for one node
{sys.executable} -m torch.distributed.run --nproc_per_node 1 reduce.py "$@"
"""
REDUCE = """import os
import torch.distributed as dist
import torch

dist.init_process_group("gloo")
ranks = torch.tensor([dist.get_rank(), 10 ** int(os.environ["NODE_RANK"])])
dist.all_reduce(ranks)
if dist.get_rank() == 0:
    print(f"step 1/1 world: {dist.get_world_size()} ranks: {int(ranks[0])} nodes: {int(ranks[1])}", flush=True)
dist.destroy_process_group()
"""
SERVERS = f"""#!/bin/bash
export HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
{sys.executable} own_ray.py &
{sys.executable} -m vllm.entrypoints.openai.api_server --model $1 --served-model-name tiny --port $2 \\
    --dtype float32 --max-model-len 256 --enforce-eager --max-num-seqs 4
"""
OWN_RAY = """import time
import ray

ray.init(num_cpus=1, include_dashboard=True)

@ray.remote
class WorkerDict:
    def ready(self):
        return True

worker = WorkerDict.options(name="worker_0").remote()
ray.get(worker.ready.remote())
print("step 1/9 reward: 0.5", flush=True)
time.sleep(3600)
"""
PROFILE = profile_file()
pytestmark = [pytest.mark.trainers]


class User:
    """Runs rltui in a folder of its own, as one who has a script there."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.script = folder / "run_verl.sh"
        self.script.write_text(SCRIPT)
        own = {"RLTUI_RUN_ROOT": "runs", "RLTUI_STATE_DIR": "state", "RLTUI_CONFIG_DIR": "config"}
        paths = {name: str(folder / value) for name, value in own.items()}
        self.environment = {**os.environ, **paths, "PYTHONPATH": str(ROOT), **environment}

    def rltui(self, *words: str, expect: int = 0) -> str:
        done = rltui(words, self.folder, self.environment, codes=(expect,))
        return done.stdout + done.stderr

    def runs(self, *where: str) -> list[dict[str, Any]]:
        return list(json.loads(self.rltui("ps", *where, "--json").partition("\n{")[0])["runs"])

    def only_run(self, *where: str) -> dict[str, Any]:
        (run,) = self.runs(*where)
        return run

    def step(self, home: Path) -> int:
        """The last step of the runs in ``home``: read from their files, as a verb costs more than a step."""
        stages = [json.loads(path.read_text()) for path in home.glob("runs/*/attempts/*/stage.json")]
        return max((stage.get("step") or 0 for stage in stages), default=0)

    def diagnoses(self, run_id: str, *where: str) -> list[dict[str, Any]]:
        """What ``why`` says, whatever its exit code."""
        done = rltui(("why", run_id, *where, "--json"), self.folder, self.environment)
        return list(json.loads(done.stdout)["diagnoses"])


def end_attempts(folder: Path) -> None:
    """End what the user of ``folder`` left running."""
    for path in (folder / "runs").glob("*/attempts/*/job.json"):
        processes.end_all(json.loads(path.read_text())["uuid"], grace_s=0.5, exclude=())


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    yield User(tmp_path)
    end_attempts(tmp_path)


def test_a_script_on_this_machine_is_watched_killed_and_goes_on_by_its_own_words(user: User) -> None:
    user.rltui("launch", "--script", "run_verl.sh", "--gpus-per-node", "0")
    eventually(lambda: user.step(user.folder), "a step")
    run = user.only_run()
    assert (run["algorithm"], run["state"]) == ("verl", "running")
    assert (Path(run["path"]) / "attempts/01/script.sh").read_bytes() == user.script.read_bytes()
    eventually(lambda: (user.folder / "checkpoints/global_step_10").exists(), "the second checkpoint")
    shown = json.loads(user.rltui("show", run["run_id"], "--json"))["run"]
    assert shown["metrics"]["latest"]["time/total"] == 0.25
    assert shown["metrics"]["latest"]["reward"] == shown["metrics"]["steps"][-1] / 1000  # lossless: from its own file

    uuid = json.loads((Path(run["path"]) / "attempts/01/job.json").read_text())["uuid"]
    assert "cancelled" in user.rltui("cancel", run["run_id"], "--yes")
    eventually(lambda: not processes.by_attempt(uuid), "the end of all processes")
    saved = int((user.folder / "checkpoints/latest_checkpointed_iteration.txt").read_text())

    preview = user.rltui("resubmit", run["run_id"], "--dry-run")
    assert f"goes on from step {saved} by trainer.resume_mode=auto" in preview
    user.rltui("resubmit", run["run_id"], f"trainer.total_training_steps={saved + 3}", "--wait")
    again = user.only_run()
    assert (again["attempt"], again["state"], again["stage"]["step"]) == (2, "finished", saved + 3)
    second = (Path(run["path"]) / "attempts/02/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in second] == [saved + 1, saved + 2, saved + 3]

    further = f"trainer.total_training_steps={saved + 9}"
    preview = user.rltui("resubmit", run["run_id"], further, "--dry-run")
    assert [line.strip() for line in preview.splitlines() if line.strip().startswith(("+", "-"))] == [f"+ {further}"]


def test_words_that_would_not_reach_the_training_are_refused(user: User) -> None:
    user.script.write_text(SCRIPT.replace(' "$@"', ""))
    (user.folder / "out-of-memory").write_text(OUT_OF_MEMORY)
    user.rltui("launch", "run_verl.sh", "--gpus-per-node", "0", "--wait", expect=1)
    said = user.rltui("resubmit", "run_verl", "data.seed=2", expect=2)
    assert "does not hand its arguments on" in said
    assert "does not hand its arguments on" in user.rltui("fix", "run_verl", "--dry-run", expect=1)
    assert user.only_run()["attempt"] == 1


def test_a_script_that_fails_is_a_failed_run_with_its_exit_code(user: User) -> None:
    user.script.write_text("#!/bin/sh\necho before\nexit 7\n")
    user.rltui("launch", "run_verl.sh", "--gpus-per-node", "0", "--wait", expect=1)
    run = user.only_run()
    assert (run["state"], run["end"]["exit_code"], run["algorithm"]) == ("failed", 7, "generic")
    assert "before" in user.rltui("logs", "run_verl")


def test_the_runs_of_a_sweep_are_one_line_of_the_list(user: User) -> None:
    user.script.write_text('#!/bin/sh\necho "$@"\n')
    words = ("--gpus-per-node", "0", "--sweep", "lr=1,2,3", "--yes")
    user.rltui("launch", "run_verl.sh", "--dialect", "trl", *words)

    def ended() -> list[dict[str, Any]]:
        runs = json.loads(user.rltui("ps", "--json", "--unfold").partition("\n{")[0])["runs"]
        return runs if {run["state"] for run in runs} == {"finished"} else []

    runs = eventually(ended, "the end of all three")
    assert len({run["sweep"] for run in runs}) == 1
    assert {run["algorithm"] for run in runs} == {"trl"}, "which its words do not tell"
    assert sorted(run["name"] for run in runs) == ["run_verl-lr-1", "run_verl-lr-2", "run_verl-lr-3"]
    assert "run_verl ×3" in (told := user.rltui("ps"))
    assert "(3 done)" in told
    assert runs[0]["run_id"] not in told
    assert runs[0]["run_id"] in user.rltui("ps", "--unfold")


@pytest.mark.slow
def test_trl_itself_trains_is_killed_and_goes_on(user: User) -> None:
    pytest.importorskip("trl")
    (user.folder / "train.py").write_text(TRL)
    user.rltui("launch", "--script", "train.py", "--gpus-per-node", "0")
    eventually(lambda: (user.folder / "out/checkpoint-10/trainer_state.json").exists(), "the tenth step")

    def told() -> tuple[object, ...]:
        """What the run is, once its output has been read that far."""
        run = user.only_run()
        return run["algorithm"], run["state"], run["stage"]["steps"]

    eventually(lambda: told() == ("trl", "running", 100_000), "how many steps there are", saw=told)
    run = user.only_run()
    user.rltui("cancel", run["run_id"], "--yes")
    first = records((Path(run["path"]) / "attempts/01/metrics.jsonl").read_text())
    assert {line["step"] for line in first} >= set(range(1, 11))
    shown = json.loads(user.rltui("show", run["run_id"], "--json"))["run"]
    assert shown["metrics"]["latest"].keys() >= {"reward", "loss", "time/total"}, "all that its console says"
    last = max(int(path.parent.name[11:]) for path in user.folder.glob("out/*/trainer_state.json"))
    user.rltui("resubmit", run["run_id"], f"steps={last + 3}", "--wait")
    second = (Path(run["path"]) / "attempts/02/metrics.jsonl").read_text().splitlines()
    rewards = {line["step"]: line["reward"] for line in map(json.loads, second) if "reward" in line}
    state = json.loads((user.folder / f"out/checkpoint-{last + 3}/trainer_state.json").read_text())
    own = {entry["step"]: entry["reward"] for entry in state["log_history"] if "reward" in entry}
    # its console rounds: what W&B's file has is written again, in full
    assert rewards == {step: own[step] for step in range(last + 1, last + 4)}
    shown = json.loads(user.rltui("show", run["run_id"], "--json"))["run"]
    assert {"reward", "time/total", "response_length", "entropy"} <= shown["metrics"]["latest"].keys()


@pytest.mark.slow
def test_engines_and_actors_of_a_script_s_own_servers_are_shown(user: User) -> None:
    pytest.importorskip("vllm")
    model = TinySettings(3, 0).ensure(cache_folder() / "models", lambda *_: None)
    [port] = free_ports(1)
    (user.folder / "own_ray.py").write_text(OWN_RAY)
    user.script.write_text(SERVERS)
    user.rltui("launch", "--script", "run_verl.sh", "--gpus-per-node", "0", "--", str(model), str(port))
    run_id = user.only_run()["run_id"]

    def engine() -> dict[str, Any] | None:
        hosts = json.loads(user.rltui("queues", run_id, "--json"))["engines"].values()
        return next((dict(one) for host in hosts for one in host), None)

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def is_up() -> bool:
        with contextlib.suppress(OSError):
            opener.open(f"http://127.0.0.1:{port}/health", timeout=DEADLINE_S).close()
            return True
        assert not list(user.folder.glob("runs/*/attempts/01/end.json"))
        return False

    eventually(is_up, "vLLM's server")
    told = eventually(engine, "an engine's word")
    assert (told["name"], told["running"], told["waiting"]) == (str(port), 0, 0)
    body = json.dumps({"model": "tiny", "prompt": "1+1=", "max_tokens": 200, "ignore_eos": True, "n": 8}).encode()
    url, kind = f"http://127.0.0.1:{port}/v1/completions", {"Content-Type": "application/json"}

    def busy() -> bool:
        opener.open(urllib.request.Request(url, body, kind), timeout=DEADLINE_S).close()
        return ((engine() or {}).get("tokens_per_second") or 0) > 0

    eventually(busy, "tokens of it")

    def actors() -> list[tuple[str, str, str]]:
        told = json.loads(user.rltui("actors", run_id, "--json"))["actors"]
        return [(one["class_name"], one["name"], one["state"]) for one in told]

    eventually(lambda: actors() == [("WorkerDict", "worker_0", "ALIVE")], "the actor of its Ray", saw=actors)


@pytest.mark.slow
def test_torchrun_meets_on_two_nodes_though_its_script_names_no_place(slurm_cluster: Lab, tmp_path: Path) -> None:
    user = User(tmp_path, RLTUI_SSH_CONFIG=str(slurm_cluster.ssh_settings().config))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/clusters.yaml").write_text(PROFILE)
    user.script.write_text(TORCHRUN)
    folder = slurm_cluster.exec("login", ["pwd"]).stdout.strip()
    slurm_cluster.exec("login", ["tee", f"{folder}/reduce.py"], input=REDUCE)
    words = ("--nodes", "2", "--gpus-per-node", "1", "--folder", folder, "--cluster", "lab")
    assert "started on each node" in user.rltui("launch", "run_verl.sh", *words, "--wait")
    run = user.only_run("--cluster", "lab")
    assert (run["state"], run["stage"]["step"], run["algorithm"]) == ("finished", 1, "generic")
    shown = json.loads(user.rltui("show", run["run_id"], "--cluster", "lab", "--json"))["run"]["metrics"]["latest"]
    assert (shown["world"], shown["ranks"], shown["nodes"]) == (2, 1, 11)
    hosts = json.loads(user.rltui("gpus", run["run_id"], "--cluster", "lab", "--json"))["hosts"]
    assert sorted(host["host"] for host in hosts) == ["node1", "node2"]

    slurm_cluster.exec(
        "login", ["tee", f"{folder}/reduce.py"], input="import os\nassert os.environ['NODE_RANK'] == '0'\n" + REDUCE
    )
    user.rltui("resubmit", run["run_id"], "--cluster", "lab", "--yes", "--wait", expect=1)
    again = user.only_run("--cluster", "lab")
    assert (again["attempt"], again["state"]) == (2, "failed")  # the other node does not wait for the one that is gone


@pytest.mark.slow
def test_a_script_on_two_nodes_gets_a_ray_cluster_and_leaves_nothing(slurm_cluster: Lab, tmp_path: Path) -> None:
    user = User(tmp_path, RLTUI_SSH_CONFIG=str(slurm_cluster.ssh_settings().config))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/clusters.yaml").write_text(PROFILE)
    where = ("--cluster", "lab")
    folder = slurm_cluster.exec("login", ["pwd"]).stdout.strip()
    assert "its roles need 8 GPUs, and 2 are asked for" in user.rltui(
        "launch", "run_verl.sh", "--nodes", "2", "--gpus-per-node", "1", *where, expect=1
    )
    submit = f"{sys.executable} -m ray.scripts.scripts job submit -- echo a job"
    before = f'export MY_CACHE="$HOME/my cache" NOW=$(date)\n{submit}\n'
    script = SCRIPT.replace('"$@"', 'trainer.nnodes=2 trainer.n_gpus_per_node=1 "$@"')
    user.script.write_text(script.replace("PYTHONPATH", f"{before}PYTHONPATH", 1))
    many = ("launch", "run_verl.sh", "--nodes", "9", "--gpus-per-node", "1", *where)
    assert "Not launched: " in user.rltui(*many, expect=1)  # it would wait for ever
    assert "error: 9 nodes with 1 GPU each are asked for" in user.rltui(*many, "--dry-run", expect=1)
    user.rltui(*many, "--dry-run", "--unchecked")
    told = user.rltui("launch", "run_verl.sh", *many[2:], "--", "slurm.partition=gpus", expect=1)
    assert "partitions: " in told
    assert not json.loads(user.rltui("ps", *where, "--json"))["runs"]
    words = ("--nodes", "2", "--gpus-per-node", "1", "--folder", folder, *where)
    user.rltui("launch", "--script", "run_verl.sh", *words)
    eventually(lambda: user.step(Path(slurm_cluster.folder, "home/alice")), "a step")
    run = user.only_run(*where)
    assert (run["state"], run["job"]["nodes"]) == ("running", ["node1", "node2"])
    log = user.rltui("logs", run["run_id"], *where, "-n", "500")
    assert "ray has 2 nodes" in log
    assert log.count(f"a worker is in {folder} {folder}/my cache") == 2  # as if the script had started Ray there
    assert "what only the script's shell can tell: NOW;" in user.rltui("events", run["run_id"], *where)
    assert "\na job\n" in re.sub(r"(?m)^.*\| ", "", log)
    mark = f"{folder}/checkpoints/latest_checkpointed_iteration.txt"
    eventually(lambda: slurm_cluster.exec("login", ["cat", mark]).stdout.strip(), "a checkpoint")

    user.rltui("cancel", run["run_id"], *where, "--yes")
    saved = int(slurm_cluster.exec("login", ["cat", mark]).stdout)
    end = ("trainer.total_training_steps=" + str(saved + 2), "--exclude", "node1", "--wait")
    assert f"goes on from step {saved}" in user.rltui("resubmit", run["run_id"], *where, *end)
    again = user.only_run(*where)
    assert (again["attempt"], again["state"], again["stage"]["step"]) == (2, "finished", saved + 2)
    record = slurm_cluster.exec("login", ["cat", f"{run['path']}/attempts/02/slurm.json"]).stdout
    assert json.loads(record)["nodes"] == ["node2", "node3"]

    (size,) = json.loads(user.rltui("du", *where, "--json").partition("\n{")[0])["runs"]
    assert size["total_gib"] > 0
    assert f"{run['run_id']}: removed" in user.rltui("rm", "--where", "state:finished name:run_verl", *where, "--yes")
    left = slurm_cluster.exec("login", ["ls", "-A", run["path"].rpartition("/")[0]]).stdout.split()
    assert not [name for name in left if run["run_id"] in name or "removed" in name]
    assert slurm_cluster.exec("login", ["cat", mark]).stdout.strip(), "what the script saves elsewhere stays"
