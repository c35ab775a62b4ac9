"""Bounded queues between the training loop and the engines, and the split of a step's prompts over engines."""

from __future__ import annotations

import threading

import pytest
from trainer_support import wait_for

from trainers.queues import BoundedQueue, QueueClosedError

pytestmark = pytest.mark.trainers

WAIT_S = 60.0


def test_lanes_keep_their_order_and_share_the_bound() -> None:
    queue: BoundedQueue[str] = BoundedQueue(10, lanes=2)
    queue.put("a", 3, lane=0)
    queue.put("b", 4, lane=1)
    queue.put("c", 3, lane=0)
    assert (queue.current, queue.maxsize) == (10, 10)
    assert [queue.take(0), queue.take(0), queue.take(1)] == ["a", "c", "b"]
    assert queue.current == 0


def test_a_full_queue_holds_the_putter_until_there_is_room() -> None:
    queue: BoundedQueue[str] = BoundedQueue(4)
    queue.put("first", 3)
    entered, done = threading.Event(), threading.Event()

    def put() -> None:
        entered.set()
        queue.put("second", 2)
        done.set()

    threading.Thread(target=put, daemon=True).start()
    assert entered.wait(WAIT_S)
    assert not done.wait(0.1)
    assert queue.take(timeout_s=WAIT_S) == "first"
    assert done.wait(WAIT_S)
    assert queue.current == 2


def test_what_could_never_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="5 prompts does not fit a queue of 4"):
        BoundedQueue[str](4).put("x", 5)


def test_taking_from_an_empty_queue_ends_at_the_deadline() -> None:
    with pytest.raises(TimeoutError, match=r"nothing came within 0\.05 s"):
        BoundedQueue[str](4).take(timeout_s=0.05)


def test_closing_ends_all_waits() -> None:
    queue: BoundedQueue[str] = BoundedQueue(1)
    ended: list[str] = []

    def take() -> None:
        try:
            queue.take()
        except QueueClosedError:
            ended.append("closed")

    threads = [threading.Thread(target=take, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    queue.close()
    wait_for(lambda: len(ended) == 2, "the end of both takers", WAIT_S)
    with pytest.raises(QueueClosedError):
        queue.put("x", 1)


def test_what_comes_first_waits_for_nobody_in_its_lane() -> None:
    queue: BoundedQueue[str] = BoundedQueue(4, lanes=2)
    queue.put("a", 1, lane=0)
    queue.put("b", 1, lane=0, first=True)
    queue.put("c", 1, lane=1)
    assert [queue.take(0), queue.take(0), queue.take(1)] == ["b", "a", "c"]
