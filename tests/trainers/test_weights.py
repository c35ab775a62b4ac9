"""Weight transfer over real gloo groups and over shared memory, between threads of the test's process or processes."""

from __future__ import annotations

import multiprocessing
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_support import forking

from free_ports import free_ports
from trainers.weight_channel import choose_backend
from trainers.weights import (
    ParameterMeta,
    WeightGroup,
    WeightReceiver,
    WeightSender,
    WeightTransferError,
    plan_buckets,
)

pytestmark = pytest.mark.trainers

Named = list[tuple[str, torch.Tensor]]

DTYPES = ("float32", "bfloat16", "int64", "uint8")
metas = st.builds(
    ParameterMeta,
    name=st.text("abc.", min_size=1, max_size=8),
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 12), max_size=3).map(tuple),
)


def new_group(engines: int = 1, timeout_s: float = 300.0, route: str = "broadcast", **changes: Any) -> WeightGroup:
    if route == "shared":
        changes["places"] = (secrets.token_hex(8),)
    return WeightGroup("127.0.0.1", free_ports(1)[0], 1 + engines, timeout_s, **changes)


both_routes = pytest.mark.parametrize("route", ["broadcast", "shared"])


def transfer(
    group: WeightGroup, sent: Callable[[WeightSender], None], received: Callable[[WeightReceiver], Any]
) -> Any:
    """Run ``sent`` as the learner and ``received`` as each engine; return what the engines return."""
    with ThreadPoolExecutor(group.world_size) as threads:

        def engine(rank: int) -> Any:
            receiver = WeightReceiver(group, rank, f"engine {rank - 1}")
            try:
                return received(receiver)
            finally:
                receiver.close()

        futures = [threads.submit(engine, rank) for rank in range(1, group.world_size)]
        sender = WeightSender(group, group.timeout_s)
        try:
            sent(sender)
            return [future.result(timeout=300) for future in futures]
        finally:
            sender.close()


def manifest_of(tensors: Named) -> list[ParameterMeta]:
    return [ParameterMeta.of(name, tensor) for name, tensor in tensors]


def collect(receiver: WeightReceiver, manifest: Sequence[ParameterMeta], version: int) -> Named:
    return [pair for bucket in receiver.receive(manifest, version) for pair in bucket]


def random_tensors(manifest: Sequence[ParameterMeta], seed: int = 0) -> Named:
    generator = torch.Generator().manual_seed(seed)
    return [
        (meta.name, torch.randint(0, 100, meta.shape, generator=generator).to(meta.torch_dtype)) for meta in manifest
    ]


def same(left: Named, right: Named) -> bool:
    pairs = zip(left, right, strict=True)
    return all(a[0] == b[0] and a[1].dtype == b[1].dtype and torch.equal(a[1], b[1]) for a, b in pairs)


MODEL = [
    ParameterMeta("embedding", "float32", (100, 64)),
    ParameterMeta("norm", "bfloat16", (7,)),
    ParameterMeta("scale", "float32", ()),
    ParameterMeta("empty", "float32", (0, 4)),
    *[ParameterMeta(f"layer.{number}", ("float32", "bfloat16")[number % 2], (33, 5)) for number in range(20)],
]


@given(manifest=st.lists(metas, max_size=30), limit=st.integers(16, 3000))
def test_buckets_keep_order_and_limit_and_overlap_nothing(manifest: list[ParameterMeta], limit: int) -> None:
    plan = plan_buckets(manifest, limit)
    assert [meta for bucket in plan for meta in bucket.parameters] == manifest
    for bucket in plan:
        assert bucket.nbytes <= limit or len(bucket.parameters) == 1
        end = 0
        for meta, offset in zip(bucket.parameters, bucket.offsets, strict=True):
            assert offset >= end
            assert offset % 16 == 0
            end = offset + meta.nbytes


@both_routes
@settings(max_examples=15, deadline=None)
@given(manifest=st.lists(metas, max_size=12), limit=st.integers(16, 2000))
def test_any_manifest_arrives_bit_by_bit(route: str, manifest: list[ParameterMeta], limit: int) -> None:
    tensors = random_tensors(manifest)
    [arrived] = transfer(
        new_group(route=route, bucket_bytes=limit),
        lambda sender: sender.send(tensors, 3),
        lambda receiver: collect(receiver, manifest, 3),
    )
    assert same(arrived, tensors)


@both_routes
@pytest.mark.parametrize("limit", [2**30, 4096, 64])
def test_versions_arrive_at_all_engines(limit: int, route: str) -> None:
    versions = [random_tensors(MODEL, seed) for seed in range(3)]

    def send(sender: WeightSender) -> None:
        for version, tensors in enumerate(versions):
            sender.send(tensors, version)

    for arrived in transfer(
        new_group(engines=2 if route == "broadcast" else 1, route=route, bucket_bytes=limit),
        send,
        lambda receiver: [collect(receiver, MODEL, version) for version in range(3)],
    ):
        assert all(same(*pair) for pair in zip(arrived, versions, strict=True))


def test_tensors_may_be_gathered_and_freed_one_by_one() -> None:
    tensors = random_tensors(MODEL)

    def gathered() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in tensors:
            shard = tensor.clone()
            yield name, shard
            shard.zero_()

    [arrived] = transfer(
        new_group(bucket_bytes=4096),
        lambda sender: sender.send(gathered(), 1),
        lambda receiver: collect(receiver, MODEL, 1),
    )
    assert same(arrived, tensors)


def test_views_and_gradients_may_be_sent() -> None:
    wide = torch.arange(20.0).reshape(4, 5)
    tensors = [("transposed", wide.T), ("column", wide[:, 1]), ("trained", torch.nn.Parameter(wide.clone()))]
    [arrived] = transfer(
        new_group(bucket_bytes=64),
        lambda sender: sender.send(tensors, 1),
        lambda receiver: collect(receiver, manifest_of(tensors), 1),
    )
    assert same(arrived, tensors)


def refusal(manifest: Sequence[ParameterMeta], tensors: Named, sent_version: int = 7, route: str = "broadcast") -> str:
    """Return the error of an engine that expects ``manifest`` at version 7 and is sent something else."""

    def receive(receiver: WeightReceiver) -> str:
        with pytest.raises(WeightTransferError) as caught:
            collect(receiver, manifest, 7)
        return str(caught.value)

    def send(sender: WeightSender) -> None:
        # A short transfer is in the socket's buffer before the engine objects, so the learner may hear of it later.
        with pytest.raises(WeightTransferError, match="learner"):
            deque(sender.send(tensors, sent_version) for _ in range(2))

    [message] = transfer(new_group(route=route), send, receive)
    return str(message)


def test_another_version_is_refused() -> None:
    message = refusal(MODEL, random_tensors(MODEL), sent_version=6)
    assert message == "engine 0 (rank 1 of 2) waits for version 7, the learner sent 6"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda tensors: tensors[:-1], id="one too few"),
        pytest.param(lambda tensors: [*tensors, ("more", torch.zeros(3))], id="one too many"),
        pytest.param(lambda tensors: tensors[::-1], id="other order"),
        pytest.param(lambda tensors: [(n, t.double() if n == "norm" else t) for n, t in tensors], id="other dtype"),
    ],
)
@both_routes
def test_other_parameters_than_in_the_manifest_are_refused(change: Callable[[Named], Named], route: str) -> None:
    message = refusal(MODEL, change(random_tensors(MODEL)), route=route)
    assert "engine 0" in message
    assert "version 7" in message
    assert "the manifest is not what the learner sends" in message


def test_one_parameter_too_many_in_a_bucket_of_its_own_is_refused() -> None:
    tensors = random_tensors(MODEL)
    group = new_group(bucket_bytes=sum(meta.nbytes for meta in MODEL) + 16 * len(MODEL))

    def receive(receiver: WeightReceiver) -> None:
        with pytest.raises(WeightTransferError, match="the end of version 1, 0 parameters, but the learner sent 1"):
            collect(receiver, MODEL, 1)

    def send(sender: WeightSender) -> None:
        with pytest.raises(WeightTransferError, match="'more'"):
            sender.send([*tensors, ("more", torch.zeros(1000))], 1)

    transfer(group, send, receive)


def test_an_engine_that_never_joins_is_named_in_time() -> None:
    said = ""
    for patience_s in (1.5, 6.0, 24.0):
        group = new_group(engines=3)
        mine = WeightGroup(group.host, group.port, 4, timeout_s=patience_s - 0.5)
        with ThreadPoolExecutor(1) as threads:
            joined = threads.submit(WeightReceiver, mine, 2, "engine 1")
            with pytest.raises(WeightTransferError, match=rf"within {patience_s:g} s: ranks 1, .*3 did not") as caught:
                WeightSender(group, timeout_s=patience_s)
            with pytest.raises(WeightTransferError, match=r"engine 1 \(rank 2 of 4\)"):
                joined.result(timeout=300)
        said = str(caught.value)
        if "ranks 1, 3 did not" in said:  # else the one that joins came too late, on a busy machine
            break
    assert "ranks 1, 3 did not" in said


@both_routes
def test_a_learner_that_never_opens_is_named_in_time(route: str) -> None:
    group = new_group(timeout_s=0.5, route=route)
    began = time.monotonic()
    with pytest.raises(WeightTransferError, match=r"engine 0 \(.*\): the learner did not open .* within 0.5 s"):
        WeightReceiver(group, 1, "engine 0")
    assert time.monotonic() - began < 60


@both_routes
def test_an_engine_that_never_receives_ends_the_send_in_time(route: str) -> None:
    given_up = threading.Event()
    waited: list[float] = []

    def send(sender: WeightSender) -> None:
        began = time.monotonic()
        with pytest.raises(WeightTransferError, match=r"learner .* version 4, .*'embedding'.* within 1 s"):
            sender.send(random_tensors(MODEL), 4)
        waited.append(time.monotonic() - began)
        given_up.set()

    transfer(new_group(timeout_s=1.0, route=route), send, lambda _receiver: given_up.wait(300))
    assert waited[0] < 60


@both_routes
def test_a_learner_that_never_sends_ends_the_wait_in_time(route: str) -> None:
    given_up = threading.Event()

    def receive(receiver: WeightReceiver) -> float:
        began = time.monotonic()
        with pytest.raises(WeightTransferError, match=r"engine 0 .* version 4, .* did not come .* within 1 s"):
            collect(receiver, MODEL, 4)
        given_up.set()
        return time.monotonic() - began

    [waited] = transfer(new_group(timeout_s=1.0, route=route), lambda _sender: given_up.wait(300), receive)
    assert waited < 60


@both_routes
def test_a_learner_that_dies_ends_the_wait_at_once(route: str) -> None:
    group = new_group(timeout_s=300.0, route=route)
    learner = forking().Process(target=_open_and_die, args=(group,))
    learner.start()
    receiver = WeightReceiver(group, 1, "engine 0")
    learner.join(timeout=300)
    began = time.monotonic()
    with pytest.raises(WeightTransferError, match="version 2"):
        collect(receiver, MODEL, 2)
    assert time.monotonic() - began < 150


def test_memory_of_another_process_is_read_and_larger_pieces_get_larger_segments() -> None:
    group = new_group(route="shared", bucket_bytes=2**20)
    learner = forking().Process(target=_send_growing, args=(group,))
    learner.start()
    receiver = WeightReceiver(group, 1, "engine 0")
    for version, size in enumerate(GROWING):
        [(_, arrived)] = collect(receiver, [ParameterMeta("x", "float32", (size,))], version)
        assert torch.equal(arrived, torch.arange(size, dtype=torch.float32))
    receiver.close()
    learner.join(timeout=300)
    assert learner.exitcode == 0


GROWING = (10, 200_000, 3_000_000, 5)


def _send_growing(group: WeightGroup) -> None:
    sender = WeightSender(group, group.timeout_s)
    for version, size in enumerate(GROWING):
        sender.send([("x", torch.arange(size, dtype=torch.float32))], version)


def _open_and_die(group: WeightGroup) -> None:
    WeightSender(group, group.timeout_s)
    multiprocessing.current_process().kill()


def _join_and_die(group: WeightGroup) -> None:
    WeightReceiver(group, 1, "engine 0")
    multiprocessing.current_process().kill()


@both_routes
def test_an_engine_that_dies_ends_the_send_at_once(route: str) -> None:
    group = new_group(timeout_s=300.0, route=route)
    engine = forking().Process(target=_join_and_die, args=(group,))
    engine.start()
    sender = WeightSender(group, timeout_s=300.0)
    engine.join(timeout=300)
    began = time.monotonic()
    with pytest.raises(WeightTransferError, match="version 2"):
        sender.send(random_tensors(MODEL), 2)
    assert time.monotonic() - began < 150


@both_routes
def test_a_gather_that_fails_ends_the_wait_of_the_engines_at_once(route: str) -> None:
    def send(sender: WeightSender) -> None:
        def gathered() -> Iterator[tuple[str, torch.Tensor]]:
            yield "embedding", torch.zeros(100, 64)
            raise MemoryError("out of memory")

        with pytest.raises(MemoryError):
            sender.send(gathered(), 5)
        with pytest.raises(WeightTransferError, match="closed since an earlier failure"):
            sender.send([], 6)

    def receive(receiver: WeightReceiver) -> float:
        began = time.monotonic()
        with pytest.raises(WeightTransferError, match="version 5"):
            collect(receiver, MODEL, 5)
        return time.monotonic() - began

    [waited] = transfer(new_group(timeout_s=300.0, route=route), send, receive)
    assert waited < 150


def test_a_port_in_use_is_named() -> None:
    group = new_group()
    with ThreadPoolExecutor(1) as threads:
        joined = threads.submit(WeightReceiver, group, 1, "engine 0")
        first = WeightSender(group, timeout_s=300.0)
        receiver = joined.result(timeout=300)
        with pytest.raises(WeightTransferError, match=rf"cannot listen .*:{group.port}"):
            WeightSender(group, timeout_s=1.0)
        receiver.close()
        first.close()


@pytest.mark.parametrize(
    ("devices", "backend"),
    [
        (["cuda A", "cuda B"], "nccl"),
        (["cuda A", "cpu"], "gloo"),
        (["cpu", "cuda A", "cuda B"], "gloo"),
        (["cpu"], "gloo"),
        (["cuda A", "cuda B", "cuda A"], "gloo"),
    ],
)
def test_nccl_only_where_all_ranks_have_cards_of_their_own(devices: list[str], backend: str) -> None:
    assert choose_backend(devices) == backend
