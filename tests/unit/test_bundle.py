"""``rltui bundle`` and the mask of secrets: all that tells, and nothing that nobody else may know."""

from __future__ import annotations

import base64
import json
import os
import pickle
import resource
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from watch_support import attempt_of

from rltui.cli.main import main
from rltui.layout.secret_words import MASK, masked
from rltui.service import recording

RUN = "grpo-tiny-1a2b"
RAY_TOKEN, OWN, HUB = "5f" * 32, "correct-horse-battery", "hf_" + "aB3" * 10


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Path:
    """The attempt of a run that failed, with secrets where they may get to."""
    monkeypatch.chdir(tmp_path)
    attempt = attempt_of(RUN)
    (attempt / "evidence").mkdir()
    files = {
        "end.json": json.dumps({"outcome": "failed", "exit_code": 1, "at": 2.0}),
        "env": f"JUDGE_API_KEY={OWN}\nPLAIN=yes\n",
        "ray.json": json.dumps({"address": "127.0.0.2:1", "token": RAY_TOKEN}),
        "status.json": json.dumps({"url": "http://127.0.0.1:2", "token": "seventeen-letters"}),
        "out.log": f"(Learner pid=7) asked with {OWN}\n(Learner pid=8) boom, {RAY_TOKEN} refused\nstep 3\n",
        "metrics.jsonl": '{"step": 3, "time": 2.0}\n',
        "events.jsonl": json.dumps({"time": 1.0, "kind": "error", "text": f"token {HUB} was refused"}) + "\n",
        "gpu-n1.jsonl": '{"t": 1, "host": "n1"}\n',
        "evidence/5-n1.json": json.dumps({"host": "n1", "processes": [{"pid": 7, "title": "ray::L", "stack": "at f"}]}),
        "evidence/nccl_trace_engine_0_rank_0": "not a record",
    }
    for name, text in files.items():
        (attempt / name).write_text(text)
    for rank, sequence in enumerate((4, 3)):
        (attempt / f"evidence/nccl_trace_learner_rank_{rank}").write_bytes(pickle.dumps(flight_record(sequence), 2))
    return attempt


def flight_record(sequence: int) -> dict[str, Any]:
    """A rank's own record, of torch's form: it is in the collective of that number."""
    entry = {"collective_seq_id": sequence, "profiling_name": "nccl:all_reduce", "process_group": ("0", "default_pg")}
    state = {"state": "started", "retired": sequence < 4, "input_sizes": [[8]], "input_dtypes": ["Float"]}
    frames = [{"name": "step", "filename": f"/w/{OWN}/actor.py", "line": 7}]
    return {
        "version": "2.10",
        "pg_config": {"0": {"ranks": "[0, 1]"}},
        "entries": [{**entry, **state, "frames": frames}],
    }


def test_a_bundle_has_what_tells_and_no_secret(
    attempt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", RUN, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    path = tmp_path / f"{RUN}-bundle.tar.gz"
    assert (told["path"], told["answered"], told["silent"]) == (str(path), ["n1"], [])
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        files = {one.name.removeprefix(f"{RUN}/"): archive.extractfile(one) for one in archive}
        texts = {name: stream.read().decode() for name, stream in files.items() if stream is not None}
    assert sorted(texts) == told["files"]
    assert {"run.json", "recording.json"} <= set(texts)
    texts = {name.removeprefix("attempts/01/"): text for name, text in texts.items()}
    assert {"env", "ray.json", "status.json"}.isdisjoint(texts)
    assert not [name for name, text in texts.items() for secret in (RAY_TOKEN, OWN, HUB) if secret in text]
    assert texts["last-lines.txt"].splitlines() == [
        f"Learner pid 7: asked with {MASK}",
        f"Learner pid 8: boom, {MASK} refused",
        "the program itself: step 3",
    ]
    assert "pid 7 ray::L" in texts["evidence/5-n1-stacks.txt"]
    assert "rank 1 of 2 has not joined all_reduce 4 of default_pg" in " ".join(texts["why.txt"].split())
    records = {name for name in texts if "nccl_trace" in name}
    assert records == {f"evidence/nccl_trace_learner_rank_{rank}.json" for rank in range(2)}
    entry = json.loads(texts["evidence/nccl_trace_learner_rank_1.json"])["entries"][0]
    assert (entry["collective_seq_id"], entry["frames"][0]["filename"]) == (3, f"/w/{MASK}/actor.py")
    assert main(["replay", str(path), "--json", "--at", "end"]) == 0  # a bundle is a recording of one attempt
    assert json.loads(capsys.readouterr().out)["run"]["summary"]["state"] == "failed"
    assert {"end.json", "metrics.jsonl", "events.jsonl", "gpu-n1.jsonl", "evidence/5-n1.json"} <= set(texts)


def test_why_compares_what_torch_noted_of_the_ranks(attempt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert attempt.is_dir()
    assert main(["why", RUN, "--json"]) == 1
    causes = {one["id"]: one["summary"] for one in json.loads(capsys.readouterr().out)["diagnoses"]}
    assert "rank 1 of 2 has not joined all_reduce 4 of default_pg" in causes["process_awaited"]


def test_a_place_that_cannot_be_written_is_said(attempt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", RUN, "--output", str(attempt / "missing" / "b.tar.gz")]) == 2
    assert "b.tar.gz cannot be written: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={HUB}",
        "export WANDB_API_KEY='abc-123-def'",
        '{"api_key": "abc-123-def"}',
        "password: 'two words abc-123-def'",
        r'"{\"api_key\": \"abc-123-def\"}"',
        "python serve.py --api-key abc-123-def --port 80",
        "Authorization: Bearer abc-123-def",
        "-----BEGIN RSA PRIVATE KEY-----\nabc-123-def\n-----END RSA PRIVATE KEY-----",
        "postgres://me:abc-123-def@host/db",
        "run --verbose --wandb-api-key abc-123-def",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    found = masked(text)
    assert MASK in found
    assert "abc-123-def" not in found
    assert HUB not in found
    assert masked(found) == found


@pytest.mark.parametrize(
    "text",
    [
        '{"max_tokens": 512, "token": 17, "path": "/a/b"}',
        "HF_TOKEN_PATH=/home/me/token",
        "reward_token_variable: RLTUI_REWARD_TOKEN",
        "128.4k tokens: 3 of 4, tokenizer: fast",
        "step 12/1000 reward 0.812",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("piece", ["a", "a1", "-a", "a=", "-a="])
def test_a_long_word_is_read_once(piece: str) -> None:
    began = time.process_time()
    masked(piece * (150_000 // len(piece)))
    assert time.process_time() - began < 5.0  # the square of the length takes 20 seconds and more


def test_a_masked_json_line_is_still_one() -> None:
    event = {"time": 1.5, "token": "abc-123-def", "nested": {"secret": None, "password": "x, y"}, "token_count": 3}
    assert json.loads(masked(json.dumps(event))) == {
        **event, "token": MASK, "nested": {"secret": None, "password": MASK}
    }  # fmt: skip


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    text = base64.b64encode(os.urandom(50_000)).decode()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            recording._write(tmp_path / "r.tar.gz", "grpo-1", {"run.json": recording.Part(text)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
