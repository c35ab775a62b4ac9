"""What a script's own commands print, read and write, and what starts another script; the same as bash, or unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.importers.read import Imported, import_file, read_facts
from rltui.importers.shell_run import read_shell
from rltui.importers.values import HOLE

RUN = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.nnodes={nodes} trainer.n_gpus_per_node=8 "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2 data.train_batch_size=64"
)
TRAINS = RUN.format(nodes=2)


def read(folder: Path, name: str, script: str) -> Imported:
    (folder / name).write_text(script)
    return import_file(folder / name)


def trained_gpus(folder: Path, script: str) -> int | None:
    (folder / "inner.sh").write_text(f"#!/bin/bash\n{TRAINS}\n")
    return read(folder, "outer.sh", f"#!/bin/bash\n{script}\n").trainer_gpus


@pytest.mark.parametrize(
    "script",
    [
        "job=$(sbatch --parsable inner.sh)\nsbatch --dependency=afterok:$job next.sh",
        "JOB=$(sbatch inner.sh | awk '{print $4}')",
        "JOB=`sbatch --parsable inner.sh`",
        'sbatch "$@" inner.sh',
        "sbatch < inner.sh",
        "OUT=$(ray job submit --no-wait -- bash inner.sh 2>&1)",
        "nohup setsid bash -o pipefail inner.sh > log 2>&1 &",
        "docker run --rm --gpus all -v $PWD:/w image:1 bash inner.sh",
        "apptainer exec --nv image.sif bash inner.sh",
        "conda run -n verl --no-capture-output bash inner.sh",
        "uv run --no-sync bash inner.sh",
        "pdsh -w node[1-2] 'cd /w && bash inner.sh'",
        "ssh node1 'bash inner.sh' &",
        f"cat > one.sh <<EOF\n{TRAINS}\nEOF\nchmod +x one.sh\n./one.sh",
        f"cat <<EOF > /tmp/run_$USER.sh\n{TRAINS}\nEOF\nray job submit -- bash /tmp/run_$USER.sh",
        f"N=2\ncat <<EOF | sbatch\n#!/bin/bash\n#SBATCH --nodes=$N\n{RUN.format(nodes='$N')}\nEOF",
        f'echo "{TRAINS}" | bash',
        f'CMD=$(cat <<EOF\nDIR=$NOWHERE\n{TRAINS}\nEOF\n)\nsrun bash -c "$CMD"',
        f"$(which python3) {TRAINS.partition(' ')[2]}",
    ],
)
def test_what_starts_another_script_is_followed(tmp_path: Path, script: str) -> None:
    assert trained_gpus(tmp_path, script) == 16


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('read -r A B <<< "2 8 x"\nrun "$A" "$B"', ["2", "8 x"]),
        ("IFS=, read -ra A <<< 0,1\nrun ${#A[@]} ${A[-1]}", ["2", "1"]),
        ("for e in 'a|1'; do IFS='|' read -r A B <<< \"$e\"; done\nrun $A $B", ["a", "1"]),
        ("while read -r A B; do C=$B; done <<EOF\nx 2\ny 3\nEOF\nrun $C ${A:-none}", ["3", "none"]),
        ("mapfile -t A < <(seq 3)\nrun ${#A[@]}", ["3"]),
        ("declare -A M=([a]=2 [b]=3)\nM[c]=4\nrun ${M[b]} ${M[c]} ${#M[@]}", ["3", "4", "3"]),
        ("tp() { case $1 in *7B) echo 2 ;; *) echo 4 ;; esac; }\nrun $(tp Qwen-7B) $(tp Qwen-32B)", ["2", "4"]),
        ("f() { if [ -e x ]; then echo 2; else echo 4; fi; }\nrun $(f)", [HOLE]),
        ("A=a/b.c\nrun ${A//[ab]/x} ${A:2} ${A: -1} ${A^} $(basename $A .c)", ["x/x.c", "b.c", "c", "A/b.c", "b"]),
        ("for i in $(ls); do echo 1; done | wc -l\nrun $(for i in $(ls); do echo 1; done | wc -l)", [HOLE]),
        ("echo a > f.txt\necho b >> f.txt\nrun $(cat f.txt)", ["a", "b"]),
        ("echo a 2> f.txt\nrun $(cat f.txt)", [HOLE]),
        ("A=1\necho 2 | while read -r A; do :; done\nrun $A", ["1"]),
    ],
)  # fmt: skip
def test_texts_between_commands(script: str, words: list[str]) -> None:
    assert list(read_shell(script).commands[-1].words[1:]) == words


def test_of_jobs_in_a_chain_the_first_that_trains_is_meant(tmp_path: Path) -> None:
    (tmp_path / "prepare.sbatch").write_text("#!/bin/bash\n#SBATCH -N 1 --gres=gpu:1\npython prepare.py\n")
    for name, nodes in (("first", 2), ("second", 4)):
        text = f"#!/bin/bash\n#SBATCH -N {nodes} --gres=gpu:8\n{RUN.format(nodes=nodes)}\n"
        (tmp_path / f"{name}.sbatch").write_text(text)
    script = "a=$(sbatch --parsable prepare.sbatch)\nb=$(sbatch --parsable -d afterok:$a first.sbatch)\n"
    facts, _ = read_facts(script, tmp_path / "chain.sh")
    assert (facts.nodes, facts.gpus_per_node, facts.trainer_gpus) == (2, 8, 16)
    facts, _ = read_facts(f"{script}sbatch -d afterok:$b second.sbatch\n", tmp_path / "chain.sh")
    assert (facts.nodes, facts.gpus_per_node, facts.trainer_gpus) == (2, 8, 16)
    assert facts.notes[0] == "of 2 jobs that train, the first that is submitted is meant"


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes 2 --nproc_per_node 8 swift/cli/rlhf.py",
        "torchrun --nnodes 2 --nproc_per_node=8 $(which swift) rlhf",
        "deepspeed --num_nodes 2 --num_gpus 8 /a/ms-swift/swift/cli/rlhf.py",
        "NNODES=2 NPROC_PER_NODE=8 python -m swift.cli.main rlhf",
        "accelerate launch --num_machines 2 --num_processes 16 swift/cli/rlhf.py",
    ],
)
def test_the_modules_of_ms_swift_are_its_commands(tmp_path: Path, command: str) -> None:
    flags = "--rlhf_type grpo --model Qwen/Qwen3-8B --use_vllm true --vllm_mode colocate"
    found = read(tmp_path, "run.sh", f"{command} {flags}\n")
    assert (found.dialect, found.trainer_gpus, found.rollout_gpus) == ("ms-swift", 16, 16)


def test_a_model_in_a_folder_that_is_not_known_keeps_its_name(tmp_path: Path) -> None:
    facts, notes = read_facts(f"{TRAINS} actor_rollout_ref.model.path=$MODELS/Qwen3-8B\n", tmp_path / "run.sh")
    assert facts.model == "./Qwen3-8B"
    assert any("model.path" in note for note in (*notes, *facts.notes))


def test_slurm_leaves_a_job_the_gpus_that_it_asks_for(tmp_path: Path) -> None:
    script = (
        '#!/bin/bash\n#SBATCH --gres=gpu:2\nIFS=, read -ra SEEN <<< "${CUDA_VISIBLE_DEVICES:-0}"\n'
        "accelerate launch --num_processes ${#SEEN[@]} train_grpo.py --num_generations 8\n"
    )
    assert read(tmp_path, "run.sh", script).trainer_gpus == 2
