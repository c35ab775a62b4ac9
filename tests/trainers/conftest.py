"""One Ray and one cache of models for all tests that run the trainer."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from rltui.onnode import rundir
from tiny_model import tiny_model

if TYPE_CHECKING:
    from pathlib import Path

    from agent_support import Table
    from trainer_support import Attempt, Learned

    from trainers.data.codec import Codec


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """On models this small, a second thread costs four times the CPU seconds, and twice the time."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_cache() -> Path:
    """The cache of the session, with the tiny model in it."""
    return tiny_model().parents[1]


@pytest.fixture(scope="session")
def process_group() -> Iterator[None]:
    """DeepSpeed's in this process: it keeps groups for as long as a process lives, and does not survive their end."""
    yield
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def deepspeed_here(process_group: None) -> Iterator[None]:
    """An environment for learners in this process, of which nothing is left behind."""
    before = dict(os.environ)
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def ray_environment(model_cache: Path) -> Iterator[dict[str, str]]:
    from trainer_support import ray_cluster

    with ray_cluster(num_cpus=4, cache=model_cache) as environment:
        yield environment


@pytest.fixture
def launch(tmp_path: Path, ray_environment: dict[str, str]) -> Iterator[Callable[..., Attempt]]:
    """Start attempts of one run: ``launch(1, "train.steps=40")``; none of them outlives the test."""
    from trainer_support import LAYOUT, Attempt

    started: list[Attempt] = []

    def start(number: int, *overrides: str, preamble: str = "", base: Path = LAYOUT) -> Attempt:
        attempt = Attempt(tmp_path / "run-1", number, overrides, base)
        started.append(attempt.start(ray_environment, preamble))
        return attempt

    yield start
    for attempt in started:
        attempt.end()


@pytest.fixture(scope="session")
def learned(ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learned]:
    """The run of ``local/grpo-tiny`` that others are compared with."""
    from learning import LEARNING
    from trainer_support import Attempt, Learned, ask_status, at_generation

    asked = tmp_path_factory.mktemp("learned") / "asked"
    waits = at_generation(12, f"while not os.path.exists({str(asked)!r}): time.sleep(0.05)")
    attempt = Attempt(asked.with_name("run-1"), 1, LEARNING).start(ray_environment, waits)
    try:
        attempt.await_step(10)
        mode = stat.S_IMODE((attempt.path / rundir.STATUS_ENDPOINT).stat().st_mode)
        status = ask_status(attempt)[1]
        denied = ask_status(attempt, token="wrong")[0], ask_status(attempt, path="/secrets")[0]
        asked.touch()
        yield Learned(attempt, attempt.wait(), status, denied, mode)
    finally:
        attempt.end()


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    """The tokenizer of the tiny models, one token a character, in a folder of its own."""
    from trainers.data.codec import Codec
    from trainers.data.tiny_qwen3 import VOCABULARY, new_tokenizer

    folder = tmp_path_factory.mktemp("model")
    new_tokenizer(VOCABULARY, 512).save_pretrained(folder)
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    return Codec(str(folder))


@pytest.fixture
def make_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Table]]:
    """What makes a run's agents and endpoint, with a policy that says what a test wants."""
    from agent_support import tables

    yield from tables(tmp_path, monkeypatch)


@pytest.fixture
def table(make_table: Callable[..., Table]) -> Table:
    """One of them, with the usual settings."""
    return make_table()
