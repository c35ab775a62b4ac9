"""What concerns whole nodes: versions, clocks, and the runs' folder."""

from __future__ import annotations

import contextlib
import importlib.util
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any

from rltui.onnode import card_kernels, node_check, preflight
from trainers.selftest.found import FOLDER, Found, rate
from trainers.selftest.nodes import answers, join, worker

LARGEST_SKEW_S = 5.0
"""As the check of nodes before a run has it (``rltui/onnode/node_report.py``)."""
ASKED = 5
BLOCK_BYTES = 2**23
VLLM_KERNELS = ("vllm._C", "vllm._C_stable_libtorch")
"""Modules of vLLM's kernels; since 0.24 they are built for torch's stable interface, and called so."""
SEEN_S = 30.0
"""How long a file written on one node may take to be seen on another."""


def versions(found: Found) -> None:
    """Packages, driver and kernels of each node."""
    nodes = join()
    said = answers([worker(found.layout, node, 0).begin(node_versions, not found.on_cpu) for node in nodes])
    problems = [f"{node.name}: {one}" for node, each in zip(nodes, said, strict=True) for one in each["problems"]]
    for problem in problems:
        found.failed("kernels", problem)
    if found.on_cpu:
        found.skipped("kernels", "the slots are CPU processes")
    elif not problems:
        found.ok("kernels", f"torch was built for {said[0]['cards']}")
    names = {name for each in said for name in each["versions"]}
    apart = [name for name in sorted(names) if len({each["versions"].get(name) for each in said}) > 1]
    if apart:
        told = "; ".join(
            f"{node.name} {each['versions'].get(apart[0])}" for node, each in zip(nodes, said, strict=True)
        )
        found.failed("packages", f"{', '.join(apart)} differ between nodes: {apart[0]} is {told}")
    else:
        found.ok("packages", ", ".join(f"{name} {version}" for name, version in said[0]["versions"].items()))


def node_versions(with_cards: bool) -> dict[str, Any]:
    """Of this node: versions by name, what its cards are, and what stands in the way of kernels for them."""
    import torch

    known = {**node_check.versions(), "CUDA": torch.version.cuda or "none"}
    if not with_cards:
        return {"versions": known, "cards": "", "problems": []}
    capabilities = preflight.compute_capabilities()
    cards = f"{', '.join(sorted(set(capabilities)))}: {' '.join(torch.cuda.get_arch_list())}"
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        known["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    with contextlib.suppress(Exception):  # NVML is asked for one word that nothing else depends on
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        known["driver"] = version.decode() if isinstance(version, bytes) else str(version)
    problems = [*card_kernels.problems(capabilities, sys.executable), *vllm_problems()]
    return {"versions": known, "cards": cards, "problems": problems}


def vllm_problems() -> list[str]:
    """What stands in the way of vLLM's own kernels, in the versions that call them so or so; nothing without vLLM."""
    if importlib.util.find_spec("vllm") is None:
        return []
    for name in VLLM_KERNELS:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        except ImportError as error:
            return [f"vLLM cannot load its kernels, so it was built for another torch or CUDA: {error}"]
        return []
    return [f"this vLLM has none of {', '.join(VLLM_KERNELS)}: its installation is not whole, or a build without CUDA"]


def clock(found: Found) -> None:
    """How far the nodes' clocks are from that of the first."""
    nodes = join()
    if len(nodes) == 1:
        found.skipped("", "there is one node")
        return
    skews = {}
    for node in nodes[1:]:
        hand = worker(found.layout, node, 0)
        answers([hand.begin(time.time)])  # its process is up
        skews[node.name] = min((_skew(hand) for _ in range(ASKED)), key=abs)
    name, worst = max(skews.items(), key=lambda item: abs(item[1]))
    words = f"{name} is {abs(worst):.2f} s {'ahead of' if worst > 0 else 'behind'} {nodes[0].name}"
    if abs(worst) > LARGEST_SKEW_S:
        found.failed("", words, clock_skew_s=abs(worst))
    else:
        found.ok("", f"{words}, the furthest of {len(nodes)}", clock_skew_s=abs(worst))


def _skew(hand: Any) -> float:
    """Of another node's clock, as NTP has it: its time against the middle of the round trip."""
    before = time.time()
    [there] = answers([hand.begin(time.time)])
    return float(there - (before + time.time()) / 2)


def disk(found: Found) -> None:
    """The runs' folder, written on the last node and read on the first."""
    nodes = join()
    size = found.size(2**26, 2**30, 2**33)
    path = found.attempt / FOLDER / "disk.bin"
    writer, reader = (worker(found.layout, node, 0) for node in (nodes[-1], nodes[0]))
    try:
        [written_s] = answers([writer.begin(write_file, path, size)])
        [read_s] = answers([reader.begin(read_file, path, size)])
    finally:
        path.unlink(missing_ok=True)
    write, read = size / written_s, size / read_s
    where = "written on one node, read on another" if len(nodes) > 1 else "one node"
    words = f"writes {rate(write)}, reads {rate(read)} ({where})"
    minutes = 14 * 7e9 / write / 60
    found.ok("", f"{words}; a checkpoint of 7 billion parameters takes {minutes:.1f} min to write",
             disk_write_bytes_per_s=write, disk_read_bytes_per_s=read)  # fmt: skip


def write_file(path: Path, size: int) -> float:
    """Write ``size`` bytes that do not compress, to the disk itself; returns the seconds."""
    block = os.urandom(BLOCK_BYTES)
    began = time.monotonic()
    with path.open("wb", buffering=0) as stream:
        for _ in range(size // BLOCK_BYTES):
            stream.write(block)
        os.fsync(stream.fileno())
        seconds = time.monotonic() - began
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # a reader here asks the disk
    return seconds


def read_file(path: Path, size: int) -> float:
    """Read a file of ``size`` bytes as soon as it is seen here, past the memory's copy where that can be; the seconds.

    Raises:
        FileNotFoundError: It is not seen, or not all of it.
    """
    deadline = time.monotonic() + SEEN_S
    while not (path.exists() and path.stat().st_size == size):
        if time.monotonic() > deadline:
            raise FileNotFoundError(f"what another node wrote to {path} is not seen within {SEEN_S:g} s")
        time.sleep(0.1)
    buffer = mmap.mmap(-1, BLOCK_BYTES)  # aligned, as O_DIRECT wants it
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:  # a file system without it
        descriptor = os.open(path, os.O_RDONLY)
    began = time.monotonic()
    try:
        while os.readv(descriptor, [buffer]):
            pass
    finally:
        os.close(descriptor)
    return time.monotonic() - began
