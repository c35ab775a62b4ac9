"""What concerns links: collectives in a node and over nodes, and weights on their way to engines."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rltui.onnode.node_network import free_ports
from trainers.roles.fleet import LOOPBACK
from trainers.selftest.found import last_words, middle, rate
from trainers.selftest.nodes import answers, dismiss, guest, join, slots_of, worker

if TYPE_CHECKING:
    import torch

    from trainers.selftest.found import Found
    from trainers.selftest.nodes import Worker
    from trainers.weights import ParameterMeta, WeightGroup, WeightReceiver

ROUNDS = 6
JOIN_S = 60.0
PARAMETER_BYTES = 2**24
VERSIONS = (1, 2, 3)
"""The first is compared byte for byte; the last is timed, when nobody is at that any more."""


def all_reduce(found: Found) -> None:
    """Sums over the cards of each node, node by node at the same time, and over all of them."""
    nodes, slots, size = join(), slots_of(found.layout), found.size(2**22, 2**28, 2**30)
    workers = {node.id: [worker(found.layout, node) for _ in range(slots)] for node in nodes}
    for what, groups, lacking in (
        ("in a node", list(workers.values()), "a node has one card" if slots == 1 else ""),
        ("over nodes", [[one for each in workers.values() for one in each]], "there is one node" * (len(nodes) == 1)),
    ):
        if lacking:
            found.skipped(what, lacking)
            continue
        begun = [call for group in groups for call in _sums(group, size)]
        said = answers(begun)
        slowest = min(bandwidth for bandwidth, _ in said)
        words = f"{rate(slowest)} a card over {len(groups[0])} cards by {said[0][1]}"
        name = "node" if what == "in a node" else "network"
        found.ok(what, words, **{f"all_reduce_{name}_bytes_per_s": slowest})
    dismiss(one for each in workers.values() for one in each)


def _sums(group: Sequence[Worker], size: int) -> list[Any]:
    """Begin the sums of a group, whose first says where to meet."""
    [[port]] = answers([group[0].begin(free_ports, 1)])
    host = LOOPBACK if len({one.node.id for one in group}) == 1 else group[0].node.address
    return [one.begin(sum_up, rank, len(group), host, port, size) for rank, one in enumerate(group)]


def sum_up(rank: int, world: int, host: str, port: int, size: int) -> tuple[float, str]:
    """One rank's part; returns bytes/s on its link (NCCL tests' bus bandwidth) and what carries them.

    Raises:
        ValueError: The sum is wrong.
    """
    import torch
    import torch.distributed as dist

    has_card = torch.cuda.is_available()
    device, backend = torch.device("cuda" if has_card else "cpu"), "nccl" if has_card else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://{host}:{port}", rank=rank, world_size=world)
    try:
        times = []
        for _ in range(ROUNDS):
            values = torch.full((size // 4,), float(rank + 1), device=device)
            # all begin at once: else the first to come would time its wait for the last
            dist.barrier()
            began = time.monotonic()
            dist.all_reduce(values)
            if has_card:
                torch.cuda.synchronize()
            times.append(time.monotonic() - began)
            if not bool((values == world * (world + 1) / 2).all()):
                raise ValueError(f"rank {rank} of {world}: the sum by {backend} is wrong")
    finally:
        dist.destroy_process_group()
    return 2 * (world - 1) / world * size / middle(times[1:]), backend


def weights(found: Found) -> None:
    """A learner's weights to engines of one and of two ranks elsewhere, and to one on its own card."""
    nodes, slots = join(), slots_of(found.layout)
    places = [node for _ in range(slots) for node in nodes]
    learner = worker(found.layout, nodes[0])
    others = [worker(found.layout, node) for node in sorted(places[1:], key=nodes.index, reverse=True)[:2]]
    size = found.size(2**25, 2**31, 2**34)
    for width in (1, 2):
        what = f"to an engine of {width} rank{'s' * (width > 1)}"
        if len(others) < width:
            found.skipped(what, f"it takes {1 + width} cards, there are {len(places)}")
        else:
            _transfer(found, what, learner, others[:width], size, is_shared=False)
    beside = guest(found.layout, learner)
    _transfer(found, "to an engine on the learner's card", learner, [beside], size, is_shared=True)
    dismiss([learner, *others, beside])


def _transfer(
    found: Found, what: str, learner: Worker, engine: Sequence[Worker], size: int, *, is_shared: bool
) -> None:
    from ray.exceptions import RayError

    from trainers.weights import WeightGroup

    one_node = len({each.node.id for each in (learner, *engine)}) == 1
    [[port]] = answers([learner.begin(free_ports, 1)])
    group = WeightGroup(
        LOOPBACK if one_node else learner.node.address,
        port,
        1 + len(engine),
        JOIN_S,
        places=(secrets.token_hex(16),) if is_shared else (),
    )
    begun = [learner.begin(send, group, size)]
    begun += [each.begin(receive, group, rank, size) for rank, each in enumerate(engine, 1)]
    try:
        seconds, *carriers = answers(begun)
    except RayError as error:  # a transfer that fails leaves the next one to be tried
        found.failed(what, last_words(error))
        return
    where = "" if one_node else f" from {learner.node.name} to {engine[0].node.name}"
    words = f"{size / 2**30:.3g} GiB at {rate(size / seconds)}{where}, by {carriers[0]}, the same at the other end"
    found.ok(what, words, **{f"weights_{'shared' if is_shared else len(engine)}_bytes_per_s": size / seconds})


def parameters(size: int, device: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights of ``size`` bytes that both ends know: no two parameters, nor two places in one, are easily confused."""
    import torch

    count = PARAMETER_BYTES // 2
    for number in range(size // PARAMETER_BYTES):
        values = torch.arange(count, dtype=torch.int32, device=device).mul_(31).add_(7 * number).remainder_(251)
        yield f"layer.{number}", values.to(torch.bfloat16)


def send(group: WeightGroup, size: int) -> float:
    """The learner's part; returns the seconds of the last version."""
    import torch

    from trainers.weights import WeightSender

    sender = WeightSender(group, JOIN_S)
    tensors = list(parameters(size, torch.device("cuda" if torch.cuda.is_available() else "cpu")))
    try:
        for version in VERSIONS:
            began = time.monotonic()
            sender.send(tensors, version)
            seconds = time.monotonic() - began
    finally:
        sender.close()
    return seconds


def receive(group: WeightGroup, rank: int, size: int) -> str:
    """A worker's part; returns what carried the weights.

    Raises:
        ValueError: Other bytes arrived than were sent.
    """
    from trainers.weights import WeightReceiver

    receiver = WeightReceiver(group, rank, f"rank {rank}")
    try:
        compare(receiver, size)
        for version in VERSIONS[1:]:
            for _ in receiver.receive(manifest_of(size), version):
                pass
        device = receiver._channel.device
    finally:
        receiver.close()
    if group.places:
        return "CUDA IPC" if device.type == "cuda" else "shared memory"
    return "nccl" if device.type == "cuda" else "gloo"


def manifest_of(size: int) -> list[ParameterMeta]:
    """What the engine knows of ``parameters``."""
    from trainers.weights import ParameterMeta

    shape = (PARAMETER_BYTES // 2,)
    return [ParameterMeta(f"layer.{number}", "bfloat16", shape) for number in range(size // PARAMETER_BYTES)]


def compare(receiver: WeightReceiver, size: int) -> None:
    """Take the first version, and compare every byte that comes.

    Raises:
        ValueError: Other bytes arrived than were sent.
    """
    import torch

    wrong = []
    expected: Any = None
    for bucket in receiver.receive(manifest_of(size), VERSIONS[0]):
        for name, tensor in bucket:
            expected = expected or parameters(size, tensor.device)
            if not torch.equal(next(expected)[1], tensor):
                wrong.append(name)
    if wrong:
        raise ValueError(f"{len(wrong)} parameters arrived with other bytes, the first: {wrong[0]}")
