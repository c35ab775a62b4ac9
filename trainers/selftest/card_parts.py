"""What concerns single cards: how fast they are, and their attention kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rltui.hardware.gpus import find_gpu
from rltui.layout.schema import Layout
from trainers.data.models import resolve_model
from trainers.selftest.found import Found, middle, rate
from trainers.selftest.nodes import answers, dismiss, join, slots_of, worker

ROUNDS = 7
LEAST_OF_SHEET = 0.5
"""Of a card's data sheet, below which something holds it down; sound cards reach 0.6 to 0.95."""
LEAST_OF_OTHERS = 0.85
"""Of the median card: below, it makes all others wait."""
PACK_TOKENS = 64


def card(found: Found) -> None:
    """Every card at once: they share the host's memory and power as in a run."""
    nodes, layout = join(), found.layout
    sizes = (found.size(2**26, 2**31, 2**33), found.size(768, 8192, 16384))
    slots = 1 if found.on_cpu else slots_of(layout)
    workers = [worker(layout, node) for node in nodes for _ in range(slots)]
    said = answers([one.begin(measure_card, *sizes) for one in workers])
    where = [f"{one.node.name} {each['name']}" for one, each in zip(workers, said, strict=True)]
    gpu = None if found.on_cpu else find_gpu(layout.hardware.gpu) or find_gpu(said[0]["name"])
    _judge(
        found, "memory bandwidth", where, [each["bandwidth"] for each in said], gpu.bandwidth if gpu else None, _bytes
    )
    kind = said[0]["dtype"]
    _judge(
        found,
        f"{kind} matrix product",
        where,
        [each["flops"] for each in said],
        gpu.peak_flops if gpu else None,
        _flops,
    )
    if found.on_cpu:
        found.skipped("copies to and from the host", "there is no card")
        return
    to_card, from_card = (min(each[name] for each in said) for name in ("to_card", "from_card"))
    words = f"{rate(to_card)} to the card, {rate(from_card)} back, the slowest of {len(said)} at once"
    found.ok("copies to and from the host", words,
             to_card_bytes_per_s=to_card, from_card_bytes_per_s=from_card)  # fmt: skip


def _bytes(value: float) -> tuple[str, str]:
    return "bandwidth_bytes_per_s", rate(value)


def _flops(value: float) -> tuple[str, str]:
    return "matmul_flops_per_s", f"{value / 1e12:.3g} TFLOP/s"


def _judge(
    found: Found,
    what: str,
    where: list[str],
    values: list[float],
    sheet: float | None,
    form: Callable[[float], tuple[str, str]],
) -> None:
    """Say the median; failed where a card is slow against its data sheet, or against the others."""
    median, slowest = middle(values), min(values)
    name, words = form(median)
    of_sheet = f", {median / sheet:.0%} of the data sheet" if sheet else ""
    others = f"; the slowest of {len(values)}: {form(slowest)[1]}" if len(values) > 1 else ""
    slow = where[values.index(slowest)]
    measured = {name: median}
    if slowest < LEAST_OF_OTHERS * median:
        found.failed(what, f"{words} in the middle, {form(slowest)[1]} on {slow}", "", **measured)
    elif sheet and median < LEAST_OF_SHEET * sheet:
        found.failed(what, f"{words}{of_sheet}", "", **measured)
    else:
        found.ok(what, f"{words}{of_sheet}{others}", **measured)


def measure_card(copied_bytes: int, width: int) -> dict[str, Any]:
    """How fast this process's card is, or one thread of the CPU.

    Args:
        copied_bytes: Read and written by the copy whose bytes/s are the bandwidth.
        width: Of the square matrices whose product gives the FLOP/s.
    """
    import torch

    has_card = torch.cuda.is_available()
    device = torch.device("cuda" if has_card else "cpu")
    # without emulation: torch says yes on Volta and Turing too, which have no hardware for it
    half = torch.bfloat16 if has_card and torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    dtype = half if has_card else torch.float32
    one, other = (torch.zeros(copied_bytes // 2, dtype=torch.uint8, device=device) for _ in range(2))
    copy_s = _seconds(lambda: other.copy_(one), device)
    left, right = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
    product_s = _seconds(lambda: left @ right, device)
    found = {
        "name": torch.cuda.get_device_name() if has_card else "CPU",
        "dtype": {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(dtype, "fp32"),
        "bandwidth": 2 * one.numel() / copy_s,
        # a product and a sum for each of the width^3 pairs
        "flops": 2 * width**3 / product_s,
    }
    if has_card:
        host = torch.zeros(one.numel(), dtype=torch.uint8, pin_memory=True)
        found["to_card"] = one.numel() / _seconds(lambda: one.copy_(host, non_blocking=True), device)
        found["from_card"] = one.numel() / _seconds(lambda: host.copy_(one, non_blocking=True), device)
    return found


def _seconds(work: Callable[[], object], device: Any) -> float:
    """Median time of ``work``, which is queued on a card, after one that warms up."""
    import torch

    times = []
    for _ in range(ROUNDS + 1):
        began = time.monotonic()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.monotonic() - began)
    return middle(times[1:])


def packing(found: Found) -> None:
    """The proof that packed samples do not see each other, by the kernel that a learner would take."""
    from trainers.roles.sample_attention import NAME

    nodes = join()
    hand = worker(found.layout, nodes[0])
    path = resolve_model(found.layout.roles.learner.model, found.layout, lambda _words, _done: None)
    [(kernel, card_name)] = answers([hand.begin(load_packed, found.layout, path)])
    dismiss([hand])
    mask = "" if kernel in ("flash_attention_2", NAME) else "; packed rows take a mask of T × T"
    found.ok("", f"{found.layout.roles.learner.precision} on {card_name}: {kernel}{mask}")


def load_packed(layout: Layout, path: str) -> tuple[str, str]:
    """Load the model for packed rows, which proves them; returns the attention kernel and where it runs."""
    import torch

    from trainers.roles.forward import load_frozen

    model = load_frozen(path, layout.roles.learner.precision, PACK_TOKENS)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return str(model.config._attn_implementation), name
