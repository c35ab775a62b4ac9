"""The learner gathers a bucket while the one before it travels, and never holds more than two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from trainers import weights
from trainers.weight_channel import route_words
from trainers.weights import WeightGroup, WeightSender, WeightTransferError

pytestmark = pytest.mark.trainers

HOST = "gloo, through host memory, because "
LIMIT = 64
"""Bytes of a bucket: four of the parameters below."""


class Recording:
    """A channel that writes down what happens in which order, and which memory is under way."""

    name, route, device = "learner", "nothing", torch.device("cpu")

    def __init__(self, log: list[str], *, keeps_tensors: bool = True, breaks_at: str = "") -> None:
        self.keeps_tensors, self._log, self._breaks_at = keeps_tensors, log, breaks_at
        self.under_way: list[int] = []
        self.buffers: set[int] = set()
        self.closed = False

    def begin(self, tensor: torch.Tensor, what: str) -> Callable[[], None]:
        name, at = f"bucket {int(tensor.view(torch.float32)[0])}", tensor.data_ptr()
        assert at not in self.under_way
        self._log.append(f"begin {name}")
        self.under_way.append(at)
        self.buffers.add(at)
        sent = tensor.clone()

        def finish() -> None:
            if name == self._breaks_at:
                raise WeightTransferError(f"{what} did not come through")
            if self.keeps_tensors:
                assert torch.equal(tensor, sent), "the bucket was written to while it travelled"
            self._log.append(f"end {name}")
            self.under_way.remove(at)

        return finish

    def begin_integers(self, values: Sequence[int], what: str) -> Callable[[], None]:
        return lambda: None

    def close(self) -> None:
        self.closed = True


def gathered(log: list[str], sizes: Sequence[int]) -> Iterator[tuple[str, torch.Tensor]]:
    for number, size in enumerate(sizes):
        log.append(f"gather {number}")
        yield f"p{number}", torch.full((size,), float(number))


def send(monkeypatch: pytest.MonkeyPatch, channel: Recording, log: list[str], sizes: Sequence[int]) -> int:
    monkeypatch.setattr(weights, "open_channel", lambda *_: channel)
    sender = WeightSender(WeightGroup("", 0, 2, bucket_bytes=LIMIT), 1.0)
    return sender.send(gathered(log, sizes), 1)


def test_a_bucket_is_gathered_while_the_one_before_it_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    channel = Recording(log)
    assert send(monkeypatch, channel, log, [8] * 6) == 6 * 8 * 4
    assert log == [
        "gather 0", "gather 1", "gather 2", "begin bucket 0",  # the third is what does not fit any more
        "gather 3", "gather 4", "end bucket 0", "begin bucket 2",
        "gather 5", "end bucket 2", "begin bucket 4", "end bucket 4",
    ]  # fmt: skip
    send(monkeypatch, channel, log, [8] * 40)
    assert not channel.under_way
    assert len(channel.buffers) <= 4  # two a transfer, whatever there is to send


def test_a_channel_that_copies_needs_no_second_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    channel = Recording(log, keeps_tensors=False)
    send(monkeypatch, channel, log, [16] * 5)
    assert log.index("gather 3") < log.index("end bucket 1")  # it still overlaps
    assert len(channel.buffers) <= 2  # the first one grew once


def test_what_is_larger_than_a_bucket_is_taken_before_it_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    send(monkeypatch, Recording(log), log, [8, 40, 8])
    assert log.index("end bucket 0") < log.index("begin bucket 1")
    assert log.index("gather 2") > max(place for place, line in enumerate(log) if line == "end bucket 1")


def test_a_bucket_that_is_not_taken_ends_the_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    channel = Recording(log, breaks_at="bucket 2")
    with pytest.raises(WeightTransferError, match="bucket from 'p2'"):
        send(monkeypatch, channel, log, [8] * 40)
    assert channel.closed
    assert "begin bucket 4" not in log


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (["cuda a", "cuda b"], "NCCL, from card to card"),
        (["cuda a", "cuda b", "cuda a"], HOST + "NCCL refuses ranks on one card: ranks 0, 2"),
        (["cuda a", "cpu"], HOST + "rank 1 of 2 cannot use NCCL on a card"),
        (["cpu", "cpu"], HOST + "no rank has a card that NCCL can use"),
    ],
)
def test_the_way_through_host_memory_is_explained(devices: list[str], words: str) -> None:
    assert route_words(devices) == words
