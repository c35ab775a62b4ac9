"""Launchers around a training: other scripts, jobs, configuration files, Python; nothing of it is run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from import_support import counts
from import_support import read as read_script

from rltui.errors import UsageError
from rltui.importers.read import Imported, import_file
from rltui.importers.shell_run import read_shell

INNER = """#SBATCH --nodes=3
#SBATCH --gres=gpu:h100:8
python open_instruct/grpo_fast.py --num_learners_per_node ${LEARNERS:-8} --vllm_num_engines 16 \\
    --vllm_tensor_parallel_size ${1:-1} --model_name_or_path Qwen/Qwen3-8B
"""
BASE = """[model]
name = 'Qwen/Qwen3-4B'
[deployment]
num_train_gpus = 2
num_infer_gpus = 6
[inference.parallel]
tp = 2
"""
RECIPE = """
grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16}
policy:
  model_name: Qwen/Qwen2.5-1.5B
  max_total_sequence_length: 512
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 4}
  generation: {backend: vllm, vllm_cfg: {tensor_parallel_size: 2}, colocated: {enabled: true}}
cluster: {gpus_per_node: 8, num_nodes: 1}
"""
TAUGHT = """
defaults: recipe.yaml
policy: {generation: {colocated: {enabled: false, resources: {num_nodes: 2, gpus_per_node: 4}}}}
cluster: {gpus_per_node: 4, num_nodes: 10}
on_policy_distillation:
  enabled: true
  teacher_model_by_agent_name: {maths: org/a, code: org/b, again: org/b}
  non_colocated_teachers:
    enabled: true
    default_teacher_cfg: {num_nodes: 2, gpus_per_node: 4, tensor_model_parallel_size: 8}
    teacher_overrides: {code: {num_nodes: 3}}
"""


def read(folder: Path, name: str, text: str) -> Imported:
    return read_script(folder, text, name)


def gpus(imported: Imported) -> tuple[int | None, ...]:
    """Declared, trainer, rollout, tensor parallel, engines."""
    return counts(imported)[1:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LEARNERS=4\nbash inner.sh 2\n", (40, 8, 32, 2, 16)),
        ("export LEARNERS=4\nbash inner.sh\n", (20, 4, 16, 1, 16)),
        ("LEARNERS=4 bash ./inner.sh\n", (20, 4, 16, 1, 16)),
        ("LEARNERS=4\nsource inner.sh 2\n", (36, 4, 32, 2, 16)),
        ("nohup bash -x $HERE/inner.sh 2 &\n", (40, 8, 32, 2, 16)),
        ("srun --ntasks-per-node 1 ./inner.sh 2\n", (40, 8, 32, 2, 16)),
        ("env LEARNERS=4 nohup inner.sh 2\n", (36, 4, 32, 2, 16)),
        ("sbatch --nodes=4 inner.sh 1\n", (32, 8, 16, 1, 16)),
        ("sbatch --exclusive -N 2 inner.sh\nsqueue\n", (16, 8, 16, 1, 16)),
        ("sbatch -a 0-3 --oversubscribe -N 2 inner.sh\n", (16, 8, 16, 1, 16)),
        ("sbatch inner.sh; sbatch -N 2 inner.sh\n", (24, 8, 16, 1, 16)),
        ("bash missing.sh\nbash inner.sh\n", (24, 8, 16, 1, 16)),
        (
            'sbatch -N 2 --gres=gpu:4 --wrap "torchrun --nnodes 2 --nproc_per_node 4 grpo.py --use_vllm '
            '--vllm_mode colocate"\n',
            (8, 8, 8, 1, 8),
        ),
        ("srun -N2 --gpus-per-node=4 torchrun --nnodes 2 --nproc_per_node 4 sft.py\n", (8, 8, 0, None, None)),
    ],
)
def test_scripts_and_jobs_that_a_script_starts(tmp_path: Path, text: str, expected: tuple[int | None, ...]) -> None:
    (tmp_path / "inner.sh").write_text(INNER)
    found = gpus(read(tmp_path, "outer.sh", text))
    assert found[1:] == expected[1:]
    assert found[0] == expected[0]


def test_a_script_that_starts_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text("bash inner2.sh\n" + INNER)
    (tmp_path / "inner2.sh").write_text("bash inner.sh\n")
    assert read(tmp_path, "outer.sh", "bash inner.sh\n").trainer_gpus == 8


def test_a_script_elsewhere_is_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("torchrun --nproc_per_node 4 sft.py")
    with pytest.raises(UsageError, match="no training that is known"):
        read(tmp_path, "outer.sh", "bash secret.txt\nbash ~/inner.sh\n. /etc/profile.sh\n")


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ((["echo", "0,1,2"], ["tr", ",", "\\n"], ["wc", "-l"]), "3"),
        ((["echo", "0,1,2"], ["awk", "-F", ",", "{print NF}"]), "3"),
        ((["echo", "0,1,2"], ["awk", "-F,", "{ print NF }"]), "3"),
        ((["echo", "0,1,2"], ["tr", "-cd", ","], ["wc", "-c"]), "2"),
        ((["echo", "0,1,2"], ["grep", "-o", ","], ["wc", "-l"]), "2"),
        ((["echo", "a b"],), "a b"),
        ((["echo", "-n", "0"], ["wc", "-l"]), "0"),
        ((["echo", "0,1"], ["sed", "s/,/ /"]), "0 1"),
        ((["echo", "0,1"], ["sed", "s/./ /"]), "\0"),
        ((["nvidia-smi"], ["wc", "-l"]), "\0"),
        ((["echo", "\0"], ["wc", "-l"]), "\0"),
    ],
)
def test_filters(stages: tuple[list[str], ...], expected: str) -> None:
    pipe = " | ".join(map(shlex.join, stages))
    read = read_shell(f'run "$({pipe})"').commands[-1]
    assert read.words[1] == expected


def test_visible_devices_are_counted_where_the_script_says_them(tmp_path: Path) -> None:
    script = """
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0,1,2,3}
COUNT=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\\n' | wc -l)
torchrun --nproc_per_node $COUNT sft.py
"""
    assert read(tmp_path, "a.sh", script).trainer_gpus == 4
    assert read(tmp_path, "b.sh", script.replace("${CUDA_VISIBLE_DEVICES:-0,1,2,3}", "$MINE")).trainer_gpus is None


class TestPrimeRL:
    """``rl @ FILE.toml``, and files over files."""

    @pytest.fixture(autouse=True)
    def toml(self, tmp_path: Path) -> None:
        (tmp_path / "configs").mkdir()
        (tmp_path / "configs" / "base.toml").write_text(BASE)
        over = "toml_files = ['base.toml']\n[deployment]\nnum_infer_gpus = 4\n[orchestrator]\nbatch_size = 64\n"
        (tmp_path / "configs" / "over.toml").write_text(over)

    @pytest.mark.parametrize(
        ("command", "expected"),
        [
            ("uv run rl @ configs/base.toml", (8, 2, 6, 2, 3)),
            ("WANDB_MODE=offline uv run rl @ configs/over.toml --output-dir x $@ > log", (6, 2, 4, 2, 2)),
            ("uv run rl @ configs/base.toml @ configs/over.toml", (6, 2, 4, 2, 2)),
            ("rl @ configs/base.toml --deployment.num-train-gpus 3 --inference.parallel.tp=1", (9, 3, 6, 1, 6)),
            ("rl @ configs/base.toml --deployment.num-infer-gpus $N", (None, 2, None, 2, None)),
            ("uv run rl --trainer-gpu-ids 4,5 --inference-gpu-ids 0,1,2,3 --orchestrator @ configs/empty.toml",
             (None, None, None, None, None)),
            ("uv run rl @ configs/base.toml @ configs/nowhere.toml", (None, None, None, None, None)),
        ],
    )  # fmt: skip
    def test_commands(self, tmp_path: Path, command: str, expected: tuple[int | None, ...]) -> None:
        assert gpus(read(tmp_path, "run.sh", command)) == expected

    def test_slurm_says_what_is_asked_for(self, tmp_path: Path) -> None:
        text = "#SBATCH -N 1\n#SBATCH --gres=gpu:16\nuv run rl @ configs/base.toml"
        assert (read(tmp_path, "run.sh", text).declared_gpus, import_file(tmp_path / "run.sh").needed_gpus) == (16, 8)

    def test_a_file_that_is_not_there_leaves_all_unknown(self, tmp_path: Path) -> None:
        imported = read(tmp_path, "a.toml", "toml_files = ['gone.toml']\n[deployment]\nnum_infer_gpus = 4\n")
        assert gpus(imported) == (None, None, None, None, None)
        assert any("gone.toml" in line for line in imported.unmapped)

    def test_a_name_that_no_file_can_have_is_not_looked_for(self, tmp_path: Path) -> None:
        long = "c" * 300
        for name, text in {
            "a.toml": f"toml_files = ['{long}']\n{BASE}",
            "a.yaml": f"defaults: {long}\n{RECIPE}",
            "a.sh": f"uv run examples/run_grpo_math.py --config {long}.yaml\n",
        }.items():
            assert any(long[:250] in line for line in read(tmp_path, name, text).unmapped), name

    def test_files_in_a_circle_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "b.toml").write_text("toml_files = ['a.toml']\n")
        with pytest.raises(UsageError, match="come back to"):
            read(tmp_path, "a.toml", "toml_files = ['b.toml']\n")

    def test_gpus_for_anything_else_count(self, tmp_path: Path) -> None:
        imported = read(tmp_path, "a.toml", BASE.replace("[inference", "num_value_gpus = 1\n[inference"))
        assert (imported.needed_gpus, imported.declared_gpus, imported.trainer_gpus) == (9, 9, 2)


class TestNemoRL:
    """``run_grpo.py --config FILE``, and teachers on nodes of their own."""

    @pytest.fixture(autouse=True)
    def recipe(self, tmp_path: Path) -> None:
        (tmp_path / "recipe.yaml").write_text(RECIPE)

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("--config recipe.yaml", (8, 8, 8, 2, 4)),
            ("--config=$HERE/recipe.yaml cluster.num_nodes=2 ++a.b=$X", (16, 16, 16, 2, 8)),
            ("--config recipe.yaml policy.generation.backend=megatron", (8, 8, 8, 4, 2)),
            ("--config recipe.yaml cluster.num_nodes=$N", (None, None, None, 2, None)),
            ("--config nowhere.yaml cluster.num_nodes=2", (None, None, None, None, None)),
        ],
    )
    def test_commands(self, tmp_path: Path, words: str, expected: tuple[int | None, ...]) -> None:
        assert gpus(read(tmp_path, "run.sh", f"uv run examples/run_grpo_math.py {words}\n")) == expected

    def test_teachers_of_their_own_are_neither_policy_nor_engines(self, tmp_path: Path) -> None:
        imported = read(tmp_path, "mopd.yaml", TAUGHT)
        assert gpus(imported) == (40, 12, 8, 2, 4), "40 - 8 for engines - (2 + 3) x 4 for two checkpoints"
        assert imported.needed_gpus == 40
        assert imported.layout is not None
        assert imported.layout["algorithm"] == "opd"


ELDER = """
python3 -m verl.trainer.main_ppo distillation.enabled=True distillation.teacher_model.enable_resource_pool=POOL \\
    distillation.teacher_model.n_gpus_per_node=4 distillation.teacher_model.nnodes=1 \\
    distillation.teacher_model.model_path=Qwen/Qwen2.5-3B actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 trainer.n_gpus_per_node=2 trainer.nnodes=1
"""


@pytest.mark.parametrize(("pool", "needed"), [("False", 2), ("True", 6), ("$UNSET", None)])
def test_a_teacher_of_an_elder_verl_has_a_pool_or_shares(tmp_path: Path, pool: str, needed: int | None) -> None:
    assert read(tmp_path, "run.sh", ELDER.replace("POOL", pool)).needed_gpus == needed


LAUNCHER = """
from dataclasses import dataclass
import typer
import miles.utils.external_utils.command_utils as U

NUM_GPUS = 4

@dataclass
class ScriptArgs(U.ExecuteTrainConfig):
    name: str = "Qwen3-4B"
    per_node: int | None = None
    hardware: str = "H100"
    engine: int = 2
    share: bool = True

    def __post_init__(self):
        self.per_node = self.per_node or U.NUM_GPUS_OF_HARDWARE[self.hardware]

def execute(args: ScriptArgs):
    ckpt = f"--hf-checkpoint Qwen/{args.name}{'-FP8' if not args.share else ''} "
    match args.hardware:
        case "H100":
            engines = f"--rollout-num-gpus-per-engine {args.engine} "
        case _:
            raise NotImplementedError
    if U.something():
        engines += "--sglang-mem-fraction-static 0.5 "
    misc = f"--actor-num-nodes {args.num_nodes} --actor-num-gpus-per-node {args.per_node} "
    if args.share:
        misc += "--colocate "
    U.execute_train(train_args=f"{ckpt} {engines} {misc} {args.extra_args}", num_gpus_per_node=args.per_node)

if __name__ == "__main__":
    raise SystemExit("this must never run")
"""


def test_a_python_launcher_is_read_and_never_run(tmp_path: Path) -> None:
    imported = read(tmp_path, "run.py", LAUNCHER)
    assert gpus(imported) == (8, 8, 8, 2, 4)
    assert imported.layout is not None
    assert imported.layout["roles"]["learner"]["model"] == "Qwen/Qwen3-4B"
    assert imported.layout["roles"]["rollout"]["memory_utilization"] == 0.9, "a branch that is not known says 0.5"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("= True", "= U.shares()", (None, 8, None, 2, None)),
        ("if args.share:", "if U.shares():", (None, 8, None, 2, None)),
        ("{args.num_nodes}", "{U.nodes()}", (None, None, None, 2, None)),
        ("= 2", "= 2 ** 90 * 3", (8, 8, 8, None, None)),
    ],
)
def test_what_a_launcher_leaves_to_a_run_is_unknown(
    tmp_path: Path, old: str, new: str, expected: tuple[int | None, ...]
) -> None:
    assert gpus(read(tmp_path, "run.py", LAUNCHER.replace(old, new))) == expected


@pytest.mark.parametrize(
    ("pattern", "engine"),
    [
        ('("H100", 1)', 1),
        ('("B200" | "H100", 1 | 2)', 1),
        ('("H100", nodes) if nodes > 8', None),
        ('("H100", 2)', 4),
        ('("H100", 1, 1)', 4),
        ("(name, nodes)", 1),
    ],
)
def test_a_launcher_chooses_by_patterns_of_several_values(tmp_path: Path, pattern: str, engine: int | None) -> None:
    text = LAUNCHER.replace("match args.hardware:", "match (args.hardware, args.num_nodes):")
    text = text.replace('case "H100":', f"case {pattern}:").replace("{args.engine}", "1")
    text = text.replace("raise NotImplementedError", 'engines = "--rollout-num-gpus-per-engine 4 "')
    assert read(tmp_path, "run.py", text).rollout_tp == engine


def test_a_launcher_keeps_its_recipes_in_dataclasses(tmp_path: Path) -> None:
    recipes = """
@dataclass(frozen=True)
class Recipe:
    nodes: int
    engine: int = 1

RECIPES = {"small": Recipe(1), "large": Recipe(nodes=4, engine=8)}

@dataclass
class ScriptArgs(U.ExecuteTrainConfig):
    topology: str = "large"

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.topology]
"""
    text = LAUNCHER.replace("\n@dataclass\nclass ScriptArgs(U.ExecuteTrainConfig):", f"{recipes}")
    text = text.replace("{args.engine}", "{args.recipe.engine}").replace("{args.num_nodes}", "{args.recipe.nodes}")
    assert gpus(read(tmp_path, "run.py", text)) == (32, 32, 32, 8, 4)


@pytest.mark.parametrize(
    ("words", "engines"),
    [
        ('("--use-wandb --wandb-key " + key) if (key := os.environ.get("KEY")) else ""', 4),
        ("U.get_default_wandb_args(__file__)", 4),
        ('("--rollout-num-gpus-per-engine 4" if U.shares() else "")', None),
        ("(U.more() if U.shares() else '')", None),
    ],
)
def test_only_flags_that_a_launcher_may_add_are_in_doubt(tmp_path: Path, words: str, engines: int | None) -> None:
    text = LAUNCHER.replace("    misc = ", f"    more = {words}\n    misc = ").replace("{misc} ", "{misc} {more} ")
    text = text.replace("    if U.something():", "    if False:")
    assert read(tmp_path, "run.py", text).rollout_engines == engines


@pytest.mark.parametrize(
    "text", ["def f(:\n execute_train", "execute_train(" * 300, "execute_train = '\\ud800'\n(" * 3]
)
def test_python_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        read(tmp_path, "run.py", text)


def test_odd_literals_of_a_launcher_are_not_talked_about(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    read(tmp_path, "run.py", f"x = 1if 2else 3\n{LAUNCHER}")
    assert not list(recwarn)


def test_what_is_typed_into_tmux_is_followed(tmp_path: Path) -> None:
    script = """SIZE=2
tmux new-session -d -s train
tmux send-keys -t "train" "export CUDA_VISIBLE_DEVICES=0,1,2,3" C-m
tmux send-keys -t "train" "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=$SIZE \\
    trainer.nnodes=1 trainer.n_gpus_per_node=4 2>&1 | tee one.log" C-m
"""
    assert gpus(read(tmp_path, "run.sh", script)) == (4, 4, 4, 2, 2)


@pytest.mark.parametrize("line", ["tmux new -d -s a 'verl {}'", "tmux send -t a 'verl {}' Enter"])
def test_a_tmux_session_runs_what_it_is_given(tmp_path: Path, line: str) -> None:
    training = "accelerate launch --num_processes 2 grpo.py --use_vllm false --model_name_or_path m"
    assert read(tmp_path, "run.sh", line.replace("verl {}", training) + "\n").trainer_gpus == 2


@pytest.mark.parametrize(
    ("script", "trainer"),
    [
        ("python3 -m verl.trainer.main config=$PWD/mine.yaml trainer.nnodes=2\n", 8),
        ("accelerate launch --config_file $HERE/mine.yaml grpo.py --num_generations 8\n", 3),
        ("accelerate launch --num_processes 1 --config_file $HERE/no.yaml grpo.py --num_generations 8\n", 1),
    ],
)
def test_a_file_in_a_folder_that_only_a_run_knows_is_looked_for_beside_the_script(
    tmp_path: Path, script: str, trainer: int
) -> None:
    (tmp_path / "mine.yaml").write_text("trainer: {n_gpus_per_node: 4}\nnum_processes: 3\n")
    assert read(tmp_path, "run.sh", script).trainer_gpus == trainer
