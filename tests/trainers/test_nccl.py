"""The NCCL path of a weight channel, on a fake that fails as NCCL does: failed operations complete, wait is silent."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from trainers import weight_channel
from trainers.weight_channel import NCCL_ENVIRONMENT, WeightChannel, WeightTransferError

pytestmark = pytest.mark.trainers


class FakeWork:
    """Work of NCCL: it ends, fails or hangs."""

    def __init__(self, end: str) -> None:
        self.end, self.waited, self.polls = end, False, 0

    def is_completed(self) -> bool:
        self.polls += 1
        return self.end != "hangs" and self.polls > 2

    def exception(self) -> Exception | None:
        return RuntimeError("NCCL error: remote process exited") if self.end == "fails" else None

    def wait(self) -> bool:
        """Only queues: also after an error."""
        self.waited = True
        return True


class FakeNccl:
    """``torch.distributed.ProcessGroupNCCL`` with what we use of it, as its stub describes it."""

    def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
        self.options, self.made_in = options, dict(os.environ)
        self.work, self.aborted = FakeWork("ends"), False

    @staticmethod
    def Options() -> Any:  # noqa: N802
        return SimpleNamespace(config=SimpleNamespace(blocking=1))

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> FakeWork:
        return self.work

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> WeightChannel:
    monkeypatch.setattr(dist, "ProcessGroupNCCL", FakeNccl, raising=False)
    made = WeightChannel.__new__(WeightChannel)
    made.name, made.device, made._rank, made._world, made._timeout_s = "learner 0", torch.device("cuda"), 0, 2, 0.2
    made._meeting, made._store = "group", dist.HashStore()
    made._group = weight_channel._form_group("nccl", made._store, 0, 2, "", 0.2)
    return made


def test_the_group_ends_no_process_and_can_be_aborted(channel: WeightChannel) -> None:
    group: Any = channel._group
    assert group.options.config.blocking == 0
    assert {name: group.made_in[name] for name in NCCL_ENVIRONMENT} == NCCL_ENVIRONMENT
    assert not NCCL_ENVIRONMENT.keys() & os.environ.keys()  # the learners' own groups keep torch's defaults
    channel.close()
    assert group.aborted


@pytest.mark.parametrize(("end", "words"), [("fails", "remote process exited"), ("hangs", "timed out"), ("ends", "")])
def test_an_operation_that_failed_is_not_taken_for_a_completed_one(
    channel: WeightChannel, end: str, words: str
) -> None:
    group: Any = channel._group
    group.work = FakeWork(end)
    if not words:
        channel.broadcast(torch.ones(3), "bucket 1")
        assert group.work.waited
        return
    with pytest.raises(WeightTransferError, match=f"bucket 1 could not be sent to all engines.*{words}"):
        channel.broadcast(torch.ones(3), "bucket 1")
    assert not group.work.waited


def test_installed_torch_still_tells_of_errors_as_the_fake_does() -> None:
    group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
    work = group.broadcast([torch.ones(1)], dist.BroadcastOptions())
    work.wait()
    assert work.is_completed()
    assert work.exception() is None
