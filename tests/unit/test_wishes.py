"""What stands behind a script, read the same in the shell and in the cockpit; and the review of a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.cli.main import main
from rltui.cluster.profile import Profile
from rltui.errors import UsageError
from rltui.service.review import review_launch
from rltui.service.wishes import Wishes, read_wishes

ROOT = Path(__file__).parents[2]
LOCAL = Profile(name="local")
SLURM = Profile(name="lab", host="lab", scheduler="slurm", gpu="H100-SXM-80GB", gpus_per_node=8)


def test_options_settings_and_the_scripts_own_words() -> None:
    read = read_wishes(["slurm.time=1:00:00", "--nodes", "2", "--on-each-node", "--", "--nodes", "9", "a=1"])
    assert read == Wishes(nodes=2, on_each_node=True, settings=("slurm.time=1:00:00",), words=("--nodes", "9", "a=1"))
    assert read_wishes([]) == Wishes()
    assert read_wishes(["--on-first-node", "--anyway"]) == Wishes(on_each_node=False, anyway=True)


@pytest.mark.parametrize(
    "words", [["--nodes"], ["--nodes", "two"], ["--node", "2"], ["--on-each-node", "--on-first-node"]]
)
def test_what_cannot_be_read_is_said(words: list[str]) -> None:
    with pytest.raises(UsageError):
        read_wishes(words)


def script(folder: Path, text: str) -> str:
    path = folder / "run.sh"
    path.write_text(text)
    return str(path)


def test_a_script_on_slurm_is_read_and_wrapped(tmp_path: Path) -> None:
    path = script(tmp_path, '#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\npython3 train.py "$@"\n')
    shown = review_launch(SLURM, path, ["--nodes", "2", "slurm.time=1:00:00"])
    assert shown.can_launch
    assert "--nodes=2" in shown.script
    assert "rltui.onnode.slurm_job" in shown.script
    assert shown.commands == (f"rltui launch --script {path} --cluster lab --nodes 2 slurm.time=1:00:00",)
    assert any("2 nodes with 8 GPUs each" in note for note in shown.notes)


def test_words_that_cannot_be_read_and_a_script_that_is_not_there_stand_in_the_way(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/bash\necho step 1\n")
    assert not review_launch(LOCAL, path, ["--nodes"]).can_launch
    assert (shown := review_launch(LOCAL, path, ["--gpus-per-node", "0"])).can_launch
    assert "1 node with no GPUs, by --gpus-per-node" in shown.notes
    assert not review_launch(LOCAL, str(tmp_path / "none.sh")).can_launch


def test_findings_warn_and_only_placement_stands_in_the_way(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n"
    text += "python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8\n"
    path = script(tmp_path, text)
    assert review_launch(SLURM, path).can_launch
    narrow = review_launch(SLURM, path, ["--nodes", "1"])
    assert [one.code for one in narrow.findings if one.severity == "error"] == ["PLACE"]
    assert review_launch(SLURM, path, ["--nodes", "1", "--anyway"]).can_launch


def test_what_ends_a_launch_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "#!/bin/bash\npython3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8\n"
    assert main(["launch", script(tmp_path, text), "--nodes", "1", "--gpus-per-node", "1"]) == 1
    assert capsys.readouterr().err.count("need 16 GPUs") == 1
