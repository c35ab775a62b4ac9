"""Speaks as verl's trainer does: its command line, progress lines, metrics file and checkpoints. It trains nothing.

Names are verl's own (verl-project/verl at 1dda039b9): verl/utils/tracking.py for the file, aggregate_logger.py for the
line, the trainer for ``latest_checkpointed_iteration.txt``, which is written last.
"""

import json
import os
import sys
from pathlib import Path
from uuid import uuid4

from talk import pause

words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
folder = Path(words["trainer.default_local_dir"])
newest = folder / "latest_checkpointed_iteration.txt"
mode, first = words.get("trainer.resume_mode"), 1
if mode == "auto" and newest.exists():
    first = int(newest.read_text()) + 1  # as verl does: a torn file ends it here
elif mode == "resume_path":
    first = int(words["trainer.resume_from_path"].rpartition("global_step_")[2]) + 1

if os.environ.get("RAY_ADDRESS"):
    import ray

    ray.init(logging_level="ERROR")
    print("ray has", len(ray.nodes()), "nodes", flush=True)
    bundles = [{"CPU": 3}] * int(words.get("trainer.n_gpus_per_node", 1))  # three workers may share a GPU
    groups = [ray.util.placement_group(bundles, strategy="STRICT_PACK") for _ in ray.nodes()]
    ray.get([group.ready() for group in groups], timeout=60)
    actor = ray.remote(lambda: f"{os.getcwd()} {os.environ.get('MY_CACHE')}")
    at = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    for group in groups:
        seen = actor.options(num_cpus=1, scheduling_strategy=at(group)).remote()
        print("a worker is in", ray.get(seen, timeout=60), flush=True)
    ray.shutdown()

metrics = Path(os.environ["VERL_FILE_LOGGER_PATH"])
metrics.write_text("")
for step in range(first, int(words["trainer.total_training_steps"]) + 1):
    data = {"critic/rewards/mean": step / 1000, "timing_s/step": 0.25, "actor/pg_loss": -0.5}
    pairs = " - ".join(f"{name}:{value}" for name, value in data.items())
    with metrics.open("a") as stream:
        stream.write(json.dumps({"step": step, "data": data}) + "\n")
    print(f"\x1b[36m(TaskRunnerV1 pid={os.getpid()})\x1b[0m step:{step} - {pairs}", flush=True)
    if step % 5 == 0:
        (folder / f"global_step_{step}/actor").mkdir(parents=True, exist_ok=True)
        written = newest.with_suffix(f".{uuid4().hex}")  # runs of one folder are beside each other, on other nodes too
        written.write_text(str(step))
        written.replace(newest)  # a torn one is a fault that tests plant; a kill is not to leave one by chance
    pause(float(words.get("talker.step_s", "0.1")))
    if (last_words := folder / "last-words").exists():  # a fault that a test plants
        print(last_words.read_text(), flush=True)
        last_words.unlink()
        sys.exit(1)
