"""What Ray's workers get of the variables that a script exports: what can be told without a shell, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from test_scripts import SLURM, prepared

from rltui.onnode.script_exports import read_place

KNOWN = {"HOME": "/home/me", "PATH": "/bin", "SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export NCCL_DEBUG=INFO", {"NCCL_DEBUG": "INFO"}),
        ("export A=1 B='two words' # C=3", {"A": "1", "B": "two words"}),
        ('DATA=$HOME/data\nexport CACHE="${DATA}/my cache"', {"CACHE": "/home/me/data/my cache"}),
        ("export PATH=/opt/bin:$PATH", {"PATH": "/opt/bin:/bin"}),
        ("A=1\nexport A\nA=2", {"A": "2"}),
        ("export A='$HOME'", {"A": "$HOME"}),
        ("export RUN=run-$SLURM_JOB_ID", {"RUN": "run-7"}),
        ("export A=1 \\\n  B=2", {"A": "1", "B": "2"}),
        # only a shell can tell these
        ("export A=$(date) B=`date` C=${D:-1} E=$UNKNOWN F=~/x", {}),
        ("export A=1\nexport A=$(nproc)", {}),
        ("export A=1; rm -rf /", {}),
        # set for one command, perhaps never, or each node's own
        ("A=1 python train.py", {}),
        ("if x; then\n  export A=1\nfi", {}),
        ("export SLURM_NNODES=1 RAY_ADDRESS=auto CUDA_VISIBLE_DEVICES=0 TMPDIR=/x", {}),
        ("export 'unclosed", {}),
        ("exported=1\nA=2", {}),
    ],
)
def test_exports_are_those_of_the_outermost_lines(text: str, expected: dict[str, str]) -> None:
    assert read_place(text, "/start", KNOWN).exports == expected


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("python train.py", "/start"),
        ("cd $HOME/mine && python train.py", "/home/me/mine"),
        ("cd ..\ncd here", "/here"),
        ("cd", "/home/me"),
        ('cd "$(dirname "$0")"', "/start"),
        ("  cd /perhaps", "/start"),
        ("mkdir -p out; cd out", "/start"),
    ],
)
def test_the_folder_is_where_the_outermost_lines_lead(text: str, folder: str) -> None:
    assert read_place(text, "/start", KNOWN).folder == folder


def test_what_only_a_shell_can_tell_is_named_until_it_is_set_again() -> None:
    text = "export A=$(date) B=$(date)\nexport C=$(date)\nB=1\nD=$(date)\nexport E=1\nE=$(date)\n"
    place = read_place(text, "/start", KNOWN)
    assert (place.exports, place.untold) == ({"B": "1"}, ("A", "C", "E"))


@pytest.mark.parametrize(("host", "kept"), [("", "/my/verl"), ("login.example.org", "")])
def test_sbatch_typed_here_would_take_pythonpath_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, kept: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/my/verl")
    assert prepared(tmp_path, profile=structs.replace(SLURM, host=host)).job.pythonpath == kept
