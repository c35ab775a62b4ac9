"""Bad input of every kind: exit code 2, one clear line for each problem, no traceback, and all of it at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from check_cases import GPU

from rltui.check.run import check_text
from rltui.cli.main import main
from rltui.layout.document import MAX_BYTES

TEXTS = {
    "empty": b"",
    "only a comment": b"# nothing\n",
    "huge": b"# \n" * MAX_BYTES,
    "binary": bytes(range(256)) * 4,
    "not UTF-8": b"name: caf\xe9\n",
    "deeply nested": b"a: " + b"[" * 5000,
    "deep mappings": b"\n".join(b" " * n + b"a:" for n in range(200)),
    "alias bomb": b"a: &a [1,1]\nb: &b [*a,*a]\nc: &c [*b,*b]\n",
    "a list": b"- 1\n- 2\n",
    "a word": b"layout",
    "duplicate keys": b"layout: 1\nlayout: 1\n",
    "a tag": b"layout: !!python/object/new:os.system [true]\n",
    "two documents": b"layout: 1\n---\nlayout: 1\n",
    "tabs": b"layout:\t1\n\tname: x\n",
    "unclosed": b"roles: {learner: {gpus: [1, 2}\n",
    "control characters": b'name: "\x01"\n\x02',
    "resolvers": b"name: ${oc.env:HOME}\nlayout: 1\n",
}

VALUES = {
    "a word for a number": "train.steps=many",
    "a negative count": "train.steps=-1",
    "a billion GPUs": "hardware.gpus_per_node=1000000000",
    "a billion nodes": "hardware.nodes=1000000000",
    "more GPUs than the world has": "hardware={nodes: 10000, gpus_per_node: 1024}",
    "an enormous pool": f"pools={{a: {{gpus: {[1024] * 300}}}}}",
    "more engines than GPUs exist": "roles.rollout={engines: 100000, tensor_parallel: 8}",
    "infinity": "train.learning_rate=.inf",
    "not a number": "train.learning_rate=.nan",
    "more than fits a float": "train.learning_rate=1e999",
    "a list for a mapping": "hardware=[1]",
    "a mapping for a list": "roles.learner.gpus={a: 1}",
    "null for a section": "train=null",
    "zero GPUs in a bundle": "roles.learner.gpus=[0]",
    "a negative share": "roles.rollout.memory_utilization=-0.1",
    "a share above one": "roles.rollout.memory_utilization=1.1",
    "an unknown algorithm": "algorithm=grop",
    "an unknown precision": "roles.learner.precision=int8",
    "an empty pool": "pools={a: {gpus: []}}",
    "a pool that is a list": "pools=[4, 4]",
    "a name with a path": "name=../../etc",
    "another version": "layout=2",
    "what a role has and no layout sets": "roles.reward_model.tensor_parallel=2",
    "bytes that are no text": "slurm.account=caf\udce9",
    "a very long name": "data.train=" + "x" * 600,
}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["check", *words]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return captured.out + captured.err


@pytest.mark.parametrize("kind", TEXTS)
def test_files_that_are_no_layout(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(TEXTS[kind])
    out = said(capsys, str(path))
    assert str(path) in out
    assert all(len(line) < 400 for line in out.splitlines())


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_no_layout_has(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GPU)
    word = VALUES[kind]
    out = said(capsys, str(path), word)
    assert word.partition("=")[0] in out
    assert all(len(line) < 400 for line in out.splitlines())


@pytest.mark.parametrize("kind", ["missing", "directory", "loop", "unreadable", "fifo", "NUL", "nobody"])
def test_paths_that_are_no_file(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "unreadable":
        path.write_text(GPU)
        path.chmod(0)
        if os.access(path, os.R_OK):  # root reads everything
            path.unlink()
    said(capsys, {"NUL": f"{path}\0.yaml", "nobody": "~no-such-user/x.yaml"}.get(kind, str(path)))


def test_one_bad_file_of_many_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GPU)
    bad.write_text("layout: 1\n")
    out = said(capsys, str(bad), str(good))
    assert f"✓ {good}" in out
    assert f"✗ {bad}" in out


@pytest.mark.parametrize(
    "words",
    [
        ["hardware.nodes=10000", "roles.rollout.engines=100000", "hardware.gpus_per_node=1"],
        ["hardware.nodes=10000", "hardware.gpus_per_node=16", "roles.rollout.engines=100000"],
        [f"roles.learner.gpus={[1] * 10000}", "hardware.nodes=10000"],
        ["roles.learner.micro_batch=999999999", "train.prompts_per_step=1000000000"],
        [f"pools={{a: {{gpus: {[16] * 10000}}}}}", "roles.rollout.pool=a", "roles.rollout.engines=0"],
    ],
    ids=lambda words: words[0][:40],
)
def test_the_largest_layouts_are_checked_in_little_time(words: list[str]) -> None:
    from rltui.check.reporters import as_text

    began = time.process_time()
    report = check_text(GPU, "gpu.yaml", words)
    list(as_text(report))
    assert report.readable
    assert time.process_time() - began < 5.0  # half a second here; the square of these numbers would be minutes
