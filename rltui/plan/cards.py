"""What cards and their links give in a plan: shares of data sheets, and never more than they were measured to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.plan.rates import Rates, rates_of

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.plan.request import Request

ITEM_BYTES = 2
"""Weights, gradients and KV cache travel in 16 bits."""

COPY_BANDWIDTH_SHARE = 0.6
"""Share of a card's memory bandwidth that the optimizer's pass over its states reaches; assumed."""

LINK_SHARE = 0.7
"""Share of a link's bandwidth that a collective reaches; assumed."""

NETWORK_BYTES_PER_S = 50e9
"""Between nodes, for each GPU and direction: one 400 Gb/s adapter a GPU. Assumed; nothing in a layout says it."""

PCIE_BYTES_PER_S = 25e9
"""Between cards of a node without NVLink, and from host memory: PCIe 4.0 ×16 less its overhead."""

PCIE_5 = ("H100", "H200", "H800", "H20-", "B200", "B300")
"""Cards with PCIe 5.0, twice as fast, by first letters of their names. An H200 copied 55 GB/s (selftest)."""

NVLINK_BYTES_PER_S = {
    "V100-SXM": 150e9,
    "A100-SXM": 300e9,
    "A800-SXM": 200e9,
    "H100-SXM": 450e9,
    "H800-SXM": 200e9,
    "H200-SXM": 450e9,
    "GH200": 450e9,
    "H20-": 450e9,
    "B200": 900e9,
    "B300": 900e9,
    "GB200": 900e9,
    "GB300": 900e9,
}
"""One direction, by the first letters of a card's name: half of what NVIDIA's data sheets state for both."""


RACK = ("GB200", "GB300")
RACK_GPUS = 72
"""Cards of one rack whose nodes of four NVLink joins into one (NVIDIA's GB200 NVL72)."""


def nvlink_gpus(request: Request) -> int:
    """Cards that talk over NVLink: those of a node, or of a rack."""
    return RACK_GPUS if request.gpu.name.startswith(RACK) else request.gpus_per_node


def link_bytes_per_s(request: Request, gpus: tuple[int, ...]) -> float:
    """Bandwidth of a collective over bundles of ``gpus``: NVLink or PCIe in one node, else the network if slower.

    As a self-test measured it on this cluster, else as data sheets have it.
    """
    name, known = request.gpu.name, request.measured
    sheet = next((rate for start, rate in NVLINK_BYTES_PER_S.items() if name.startswith(start)), PCIE_BYTES_PER_S)
    inside = known.node_bytes_per_s or LINK_SHARE * sheet
    if len(gpus) == 1 or (request.total_gpus <= nvlink_gpus(request) and not known.network_bytes_per_s):
        return inside
    return min(inside, network_bytes_per_s(request))


def ring_bytes_per_s(request: Request, gpus: tuple[int, ...]) -> float:
    """Bandwidth of a large gather, scatter or broadcast over bundles of ``gpus``, each on a node of its own.

    NCCL's rings enter and leave a node by the adapters of all its cards in the bundle at once: the network carries what
    one adapter does, times those cards. A self-test measures such a ring over whole nodes.
    """
    inside = link_bytes_per_s(request, gpus[:1])
    if len(gpus) == 1 or link_bytes_per_s(request, gpus) == inside:
        return inside
    return min(inside, request.measured.network_bytes_per_s or min(gpus) * network_bytes_per_s(request))


def host_bytes_per_s(request: Request) -> float:
    """Bandwidth between a card and host memory: as a self-test measured it, else what its PCIe carries."""
    generation = 2 if request.gpu.name.startswith(PCIE_5) else 1
    return request.measured.host_bytes_per_s or generation * PCIE_BYTES_PER_S


def network_bytes_per_s(request: Request) -> float:
    """Bandwidth of a collective between nodes for each card: as a self-test measured it, else assumed."""
    return request.measured.network_bytes_per_s or LINK_SHARE * NETWORK_BYTES_PER_S


def of_bandwidth(request: Request, share: float) -> float:
    """Bytes/s of the card's memory: ``share`` of its data sheet, and never more than it was measured to reach."""
    return request.gpu.bandwidth * min(share, request.measured.bandwidth or 1.0)


def of_peak(request: Request, share: float) -> float:
    """FLOP/s of the card: ``share`` of its data sheet, and never more than it was measured to reach."""
    return request.gpu.peak_flops * min(share, request.measured.matmul or 1.0)


def rates(request: Request, model: Architecture) -> Rates:
    """What the request says that cards reach, else what published runs of the model's family did."""
    return request.rates or rates_of(model, request.gpu)
