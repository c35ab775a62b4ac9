"""Scripts of other systems: what a launch takes from them, and how a change or a resume is worded."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from rltui.cluster.profile import Profile
from rltui.errors import UsageError
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.onnode.script_resume import Checkpoint, here
from rltui.runs.directory import Attempt
from rltui.runs.script import preview_script
from rltui.runs.script_job import ScriptJob, is_script, script_job
from rltui.service.context import Context
from rltui.service.script_changes import changed_script, excluding, newest_checkpoint, resumed
from rltui.service.scripts import Prepared, prepare
from rltui.service.wishes import Wishes

ROOT = Path(__file__).parents[2]
SLURM = Profile(name="lab", host="lab", scheduler="slurm", gpu="H100-SXM-80GB", gpus_per_node=8)
VERL = """#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
#SBATCH --time=4:00:00
#SBATCH --partition=big
python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8 trainer.default_local_dir=/data/ckpt "$@"
"""


def prepared(
    folder: Path, text: str = VERL, profile: Profile = SLURM, name: str = "run.sh", **wishes: object
) -> Prepared:
    path = folder / name
    path.write_text(text)
    return prepare(str(path), Wishes(**wishes), profile)  # type: ignore[arg-type]


def test_sbatch_lines_hold_where_nobody_says_otherwise(tmp_path: Path) -> None:
    job = prepared(tmp_path).job
    assert (job.dialect.name, job.hardware.nodes, job.hardware.gpus_per_node) == ("verl", 2, 8)
    assert (job.slurm.time, job.slurm.partition, job.checkpoints) == ("4:00:00", "big", "/data/ckpt")
    script = preview_script(job, SLURM)
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --gres=gpu:8\n" in script
    assert "#SBATCH --partition=big\n" in script
    assert job.name == "run"
    assert prepared(tmp_path, VERL.replace("--nodes=2", "--nodes=2 -J 'my verl'")).job.name == "my-verl"
    other = prepared(tmp_path, nodes=4, settings=("slurm.time=1:00:00",)).job
    assert (other.hardware.nodes, other.slurm.time) == (4, "1:00:00")


def test_other_sbatch_lines_stand_in_the_job_or_are_named(tmp_path: Path) -> None:
    lines = ("-N 1 --gpus-per-node=4 -c16 --ntasks-per-node=4", "-p big --reservation=rl --mail-user=a@b.org",
             "--mem=400G --exclude=n[1-2] -C 'h100&ib' --no-requeue  # not twice",
             "--export=HF_TOKEN=hf_secret -D /data/me",
             "--signal=B:USR1@300 --array=1-4 --nice=-5 --container-image=$HOME/x.sqsh")  # fmt: skip
    text = "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines) + "python -m verl.trainer.main_ppo\n"
    ready = prepared(tmp_path, text, settings=("slurm.partition=small",))
    job, notes = ready.job, "\n".join(ready.notes)
    assert (job.hardware.gpus_per_node, job.hardware.cpus_per_node, job.folder) == (4, 64, "/data/me")
    script = preview_script(job, SLURM)
    for option in ("cpus-per-task=64", "mem=400G", "exclude=n1,n2", "constraint=h100&ib", "no-requeue", "nice=-5",
                   "reservation=rl", "mail-user=a@b.org", "partition=small"):  # fmt: skip
        assert f"#SBATCH --{option}\n" in script
    assert "array" not in script
    assert "secret" not in script + notes
    assert "your words stand over its #SBATCH lines: partition" in notes
    assert "--signal is left out: before the time limit it gets SIGTERM" in notes
    left = re.findall(r"#SBATCH --([a-z-]+) is left out", notes)
    assert sorted(left) == ["array", "container-image", "export", "signal"]


@pytest.mark.parametrize(
    ("lines", "cpus", "memory_gib"),
    [
        ("--gpus-per-node=4 --cpus-per-gpu=12 --mem-per-gpu=100G", 48, 400),
        ("--gpus-per-node=2 --ntasks=2 --nodes=2 --cpus-per-task=24 --mem-per-cpu=4000", 24, 94),
        ("--gpus-per-node=4 --tasks-per-node=4 -c 8 --overcommit -O", 32, 0),
        ("--gpus-per-node=4 --mem=0", 16, 0),
        ("--gpus-per-node=4 --mem=lots --cpus-per-task=x", 16, 0),
        ("--gpus-per-node=8", 32, 0),
    ],
)
def test_what_a_line_asks_for_by_gpu_or_task_becomes_what_each_node_gives(
    tmp_path: Path, lines: str, cpus: int, memory_gib: int
) -> None:
    job = prepared(tmp_path, f"#!/bin/bash\n#SBATCH {lines}\npython train.py\n").job
    assert (job.hardware.cpus_per_node, job.slurm.mem_gib) == (cpus, memory_gib)


def test_a_whole_node_has_all_its_memory_and_names_are_each_jobs_own(tmp_path: Path) -> None:
    lines = "#SBATCH --gpus-per-node=8 --exclusive --mem=0 --dependency=singleton\n"
    notes = prepared(tmp_path, f"#!/bin/bash\n{lines}python train.py\n").notes
    assert not [note for note in notes if "--mem" in note]
    assert "its #SBATCH --dependency is left out: each job of rltui has a name of its own" in notes


def test_a_script_that_loads_modules_gets_a_login_shell(tmp_path: Path) -> None:
    plain = prepared(tmp_path, "#!/bin/bash\necho the module is loaded\npython train.py\n", nodes=1, gpus_per_node=1)
    assert preview_script(plain.job, SLURM).startswith("#!/bin/bash\n")
    text = "#!/bin/bash\n  module load cuda\npython train.py\n"
    assert preview_script(prepared(tmp_path, text, gpus_per_node=1).job, SLURM).startswith("#!/bin/bash -l\n")


def test_gpus_of_a_node_come_with_their_share_of_its_cores(tmp_path: Path) -> None:
    node = structs.replace(SLURM, cpus_per_node=128)
    script = preview_script(prepared(tmp_path, nodes=2, gpus_per_node=2, profile=node).job, node)
    assert "#SBATCH --cpus-per-task=32\n" in script
    whole = preview_script(prepared(tmp_path, profile=node).job, node)
    assert "--exclusive" in whole
    assert "cpus-per-task" not in whole


def test_a_placement_that_cannot_work_is_a_problem_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    assert "its roles need 16 GPUs, and 8 are asked for" in prepared(tmp_path, nodes=1).problems[0]
    assert not prepared(tmp_path, "#!/bin/sh\npython train.py\n", nodes=1, gpus_per_node=1).problems


def test_a_script_that_does_not_say_its_gpus_asks_for_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="how many GPUs"):
        prepared(tmp_path, "#!/bin/sh\npython train.py\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), ("\n\n", "is empty"), ("a\0b", "is no script"), ("x" * (1 << 21), "is no script")],
)
def test_what_is_no_script_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prepared(tmp_path, text, gpus_per_node=1)


def test_a_file_that_is_not_there_and_an_unknown_dialect_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        prepare(str(tmp_path / "none.sh"), Wishes(), SLURM)
    with pytest.raises(UsageError, match="no dialect nobody"):
        prepared(tmp_path, dialect="nobody")


def test_a_script_of_two_systems_says_so(tmp_path: Path) -> None:
    both = prepared(tmp_path, VERL + "trl grpo --output_dir x\n")
    assert both.job.dialect.name == "verl"
    assert "it also looks like trl" in both.notes[0]


def test_changes_are_the_jobs_or_appended_words(tmp_path: Path) -> None:
    before = prepared(tmp_path).job
    after = changed_script(before, ["slurm.time=8:00:00", "data.seed=3", excluding([], ["node7"])])
    assert (after.slurm.time, after.slurm.exclude, after.words) == ("8:00:00", ["node7"], ("data.seed=3",))
    assert after.hardware == before.hardware
    with pytest.raises(UsageError, match=r"slurm.nonsense=1 is no setting"):
        changed_script(before, ["slurm.nonsense=1"])
    with pytest.raises(UsageError, match="its roles need 16 GPUs"):
        changed_script(before, ["hardware.nodes=1"])


def test_a_layouts_key_becomes_the_systems_word_or_is_refused(tmp_path: Path) -> None:
    before = prepared(tmp_path).job
    after = changed_script(before, ["roles.rollout.memory_utilization=0.4"])
    assert after.words == ("actor_rollout_ref.rollout.gpu_memory_utilization=0.4",)
    with pytest.raises(UsageError, match="no word of verl"):
        changed_script(before, ["roles.learner.hpz_partition=8"])
    openrlhf = prepared(tmp_path, "deepspeed --module openrlhf.cli.train_ppo_ray $@\n", nodes=1, gpus_per_node=8).job
    assert changed_script(openrlhf, ["roles.rollout.enforce_eager=true"]).words == ("--vllm.enforce_eager",)


def test_every_word_of_every_dialect_stands_for_a_key_that_layouts_have() -> None:
    from rltui.dialects.load import load_dialects

    layout = msgspec.to_builtins(load_layout(resolve("verl-ppo/ppo-2x8-split")).layout)
    for dialect in load_dialects().values():
        for key in dialect.words:
            value = layout
            for part in key.split("."):
                assert part in value, f"{dialect.name}: {key}"
                value = value[part]


def test_resume_appends_the_systems_words_once(tmp_path: Path) -> None:
    job = prepared(tmp_path).job
    again, said = resumed(job, Checkpoint(step=40))
    assert again.words == ("trainer.resume_mode=auto",)
    assert "goes on from step 40 by trainer.resume_mode=auto" in said
    assert resumed(again, Checkpoint(step=60))[0].words == again.words
    assert resumed(job, None) == (job, "starts at step 0: no complete checkpoint was found")


# What starts each system, files of a complete checkpoint of step 20 and of a torn one of step 30, and what goes on.
KEPT = {
    "verl": (
        "python3 -m verl.trainer.main_ppo trainer.project_name=p trainer.experiment_name=e",
        {"checkpoints/p/e/latest_checkpointed_iteration.txt": "20", "checkpoints/p/e/global_step_30/actor/x": ""},
        ("trainer.resume_mode=auto",),
    ),
    "slime": (
        "python3 train.py --rollout-num-gpus 4 --save /kept",
        {"/kept/latest_checkpointed_iteration.txt": "20", "/kept/iter_0000030/x": ""},
        ("--load={}/kept",),
    ),
    "prime-rl": (
        "uv run rl @ rl.toml --output-dir out --run.name mine --ckpt",
        {f"out/mine/checkpoints/step_{step}/{name}": "\x80\x04bin" for step, name in (
            (20, "trainer/.metadata"), (20, "orchestrator/progress.pt"), (30, "orchestrator/progress.pt"))},
        ("--resume",),
    ),
    "open-instruct": (
        "python open_instruct/grpo_fast.py --vllm_num_engines 4 --checkpoint_state_dir kept",
        {"kept/latest": "global_step20", "kept/global_step30/x": ""},
        (),
    ),
    "nemo-rl": (
        "uv run python examples/run_grpo_math.py checkpointing.checkpoint_dir=kept",
        {"kept/step_20/training_info.json": "{}", "kept/tmp_step_30/training_info.json": "{}"},
        (),
    ),
    "skyrl": (
        "python -m skyrl_train.entrypoints.main_base trainer.ckpt_path=kept",
        {"kept/latest_ckpt_global_step.txt": "20", "kept/global_step_30/trainer_state.pt": ""},
        ("trainer.resume_mode=latest",),
    ),
    "openrlhf": (
        "python3 -m openrlhf.cli.train_ppo_ray --ckpt.path kept",
        {"kept/_actor/latest": "global_step20", "kept/_critic/latest": "global_step30"},
        ("--ckpt.load_enable",),
    ),
    "openrlhf-flat": (
        "python3 -m openrlhf.cli.train_sft --pretrain m --ckpt_path kept",
        {"kept/latest": "global_step20", "kept/global_step30/x": ""},
        ("--load_checkpoint",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_each_system_goes_on_from_its_newest_complete_checkpoint_by_its_own_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, files, words = KEPT[name]
    monkeypatch.chdir(tmp_path)
    local = Profile(name="local")
    text = f'{command.replace("/kept", f"{tmp_path}/kept")} "$@"\n'
    job = prepared(tmp_path, text, local, nodes=1, gpus_per_node=8, anyway=True).job
    assert job.dialect.name == name
    assert newest_checkpoint(Context(), job) is None
    for path, content in files.items():
        place = tmp_path / path.removeprefix("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode("latin-1"))
    newest = newest_checkpoint(Context(), job)
    assert newest is not None
    assert newest._replace(place="") == Checkpoint(step=20)
    again, said = resumed(job, newest)
    words = tuple(word.format(tmp_path) for word in words)
    assert (again.words, "goes on from step 20" in said) == (words, True)
    assert resumed(again, newest)[0].words == words
    assert tuple(here(msgspec.to_builtins(job))["words"]) == words


def test_a_system_that_makes_its_folder_anew_says_what_it_needs(tmp_path: Path) -> None:
    notes = prepared(tmp_path, 'uv run rl @ rl.toml "$@"\n', nodes=1, gpus_per_node=8).notes
    assert any("--run.name in the command" in note for note in notes)
    named = prepared(tmp_path, 'uv run rl @ rl.toml --run.name a "$@"\n', nodes=1, gpus_per_node=8)
    assert named.job.checkpoints == "outputs/a/checkpoints"
    assert not any("--run.name" in note for note in named.notes)


def test_a_folder_in_the_home_is_that_of_the_cluster(tmp_path: Path) -> None:
    text = VERL.replace("/data/ckpt", '"$HOME/ckpt"')
    assert prepared(tmp_path, text).job.checkpoints == "~/ckpt"


def test_a_torn_tracker_is_gone_around_by_naming_the_newest_checkpoint_that_is_surely_complete(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for step in (5, 10, 15):
        (kept / f"global_step_{step}").mkdir(parents=True)
    (kept / "latest_checkpointed_iteration.txt").touch()
    job = structs.replace(prepared(tmp_path).job, checkpoints=str(kept))
    newest = newest_checkpoint(Context(), job)
    again, said = resumed(job, newest)
    named = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={kept}/global_step_10")
    assert again.words == named
    assert "goes on from step 10" in said
    assert "latest_checkpointed_iteration.txt is torn" in said
    assert resumed(again, Checkpoint(step=20))[0].words == ("trainer.resume_mode=auto",), "it is whole again"
    slime = prepared(
        tmp_path,
        'python train_async.py --rollout-batch-size 8 --sglang-mem-fraction-static 0.7 "$@"\n',
        gpus_per_node=8,
    )
    assert slime.job.dialect.name == "slime"
    assert "write 10 into it" in resumed(slime.job, newest)[1]


def test_a_start_that_slurm_makes_again_goes_on_by_the_same_words(tmp_path: Path) -> None:
    job = structs.replace(prepared(tmp_path).job, checkpoints=str(tmp_path / "kept"))
    told = msgspec.to_builtins(job)
    assert here(told)["words"] == told["words"], "nothing was saved yet"
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/latest_checkpointed_iteration.txt").write_text("40")
    again = here({**told, "words": ("talker.note=1", "trainer.resume_mode=disable")})
    assert again["words"] == ["talker.note=1", "trainer.resume_mode=auto"]
    assert here({**told, "passes_words": False})["words"] == told["words"], "no word would reach it"


def test_resume_that_cannot_reach_the_training_is_said(tmp_path: Path) -> None:
    job = prepared(tmp_path, VERL.replace(' "$@"', "")).job
    again, said = resumed(job, Checkpoint(step=40))
    assert again.words == ()
    assert "goes on only if run.sh has trainer.resume_mode=auto" in said
    trl = prepared(tmp_path, "trl grpo --output_dir out\n", nodes=1, gpus_per_node=1).job
    assert "starts anew unless run.sh goes on by itself" in resumed(trl, Checkpoint(step=20))[1]


@pytest.mark.parametrize(("name", "text", "answer"), [
    ("a.sh", "", True), ("a.py", "", True), ("train", "#!/bin/bash\n", True), ("a.yaml", "layout: 1\n", False),
])  # fmt: skip
def test_a_script_is_known_by_ending_or_first_bytes(tmp_path: Path, name: str, text: str, answer: bool) -> None:
    (tmp_path / name).write_text(text)
    assert is_script(str(tmp_path / name)) is answer
    assert not is_script("local/grpo-tiny")


def test_a_secret_like_name_never_reaches_the_job_script(tmp_path: Path) -> None:
    job = prepared(tmp_path, words=("--token", "hf_" + "a" * 30)).job
    assert "hf_" not in preview_script(job, SLURM)


def test_what_a_check_says_of_a_script_is_a_warning(tmp_path: Path) -> None:
    text = VERL.replace(' "$@"', " data.train_batch_size=64 actor_rollout_ref.actor.ppo_mini_batch_size=128")
    found = prepared(tmp_path, text)
    assert not found.problems
    assert any("ppo_mini_batch_size" in finding.message + finding.key for finding in found.findings)


@pytest.mark.parametrize(("text", "each"), [
    ("torchrun --nproc_per_node 8 train.py", True),
    ("accelerate launch --num_processes 16 train.py", True),
    ("python train.py --machine_rank ${NODE_RANK}", True),
    ("# torchrun is not used\npython train.py", False),
    ("srun torchrun --nproc_per_node 8 train.py", False),
    ("mpirun -np 2 torchrun train.py", False),
    ("deepspeed --hostfile hosts train.py --nodes $SLURM_NODEID", False),
])  # fmt: skip
def test_a_script_is_started_on_each_node_where_it_starts_one_nodes_processes(
    tmp_path: Path, text: str, each: bool
) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n{text}\n"
    found = prepared(tmp_path, text)
    assert found.job.on_each_node is each
    assert any("MASTER_ADDR" in note for note in found.notes)
    assert prepared(tmp_path, text, on_each_node=not each).job.on_each_node is not each
    assert not prepared(tmp_path, text, nodes=1, on_each_node=True).job.on_each_node


def test_a_script_that_finds_a_ray_cluster_is_started_once(tmp_path: Path) -> None:
    assert not prepared(tmp_path, VERL.replace("python3", "torchrun x; python3")).job.on_each_node


def ray_of(job: ScriptJob) -> object:
    attempt = Attempt(run_id="run", number=1, uuid="u", path="/runs/run/attempts/01", code="/code")
    return script_job(job, attempt, "python3")["ray"]


def test_a_script_with_a_ray_of_its_own_gets_no_second_one(tmp_path: Path) -> None:
    assert ray_of(prepared(tmp_path).job) is not None
    alone = prepared(tmp_path, VERL.replace("python3", "ray start --head\npython3", 1))
    assert ray_of(alone.job) is None
    assert any("nothing joins it" in note for note in alone.notes)
    join = 'if [ "$NODE_RANK" = 0 ]; then ray start --head; else exec ray start --address "$MASTER_ADDR" --block; fi\n'
    each = prepared(tmp_path, VERL.replace("python3", f"{join}python3", 1))
    assert (ray_of(each.job), each.job.on_each_node) == (None, True)
    assert not any("nothing joins it" in note for note in each.notes)


WAYS = {
    "OpenRLHF": ("openrlhf", "Ray"), "SkyRL": ("skyrl", "Ray"), "NeMo-RL": ("nemo-rl", "Ray"),
    "open-instruct": ("open-instruct", "Ray"), "any program": ("generic", "each node"), "TRL": ("generic", "each node"),
    "ms-swift": ("generic", "first node"), "GRPO with": ("trl", "each node"), "X-R1": ("generic", "first node"),
    "slime": ("slime", "Ray"),
}  # fmt: skip
"""By how an example of docs/multi-node.md begins: whose script it is taken for, and how it comes to its nodes."""


def test_the_examples_of_several_nodes_do_what_their_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/multi-node.md").read_text()
    examples = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    found = {}
    for text in examples:
        one = prepared(tmp_path, text)
        assert not one.problems
        assert one.job.hardware.nodes > 1
        way = "each node" if one.job.on_each_node else "Ray" if ray_of(one.job) is not None else "first node"
        [start] = [begin for begin in WAYS if text.splitlines()[1].startswith(f"# {begin}")]
        found[start] = (one.job.dialect.name, way)
    assert found == WAYS
