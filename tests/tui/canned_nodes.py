"""Canned nodes with their cards and processes."""

from __future__ import annotations

import math
import random

from canned_history import NOW

from rltui.watch.node_samples import GpuSample, HostSnapshot, ProcessSample, RoleMemory

ROLE_MEMORY = (
    RoleMemory(letter="L", moment="backward", estimated_gib=57.2),
    RoleMemory(letter="E", moment="generate", estimated_gib=74.8),
)


def wave(count: int, low: float, high: float, seed: int, rise: bool = False) -> tuple[float, ...]:
    """A plausible series: noisy, rising or level, the same for the same seed."""
    noise = random.Random(seed)
    values = []
    for index in range(count):
        share = 1 / (1 + math.exp(-8 * (index / max(1, count) - 0.4))) if rise else 0.55 + 0.2 * math.sin(index / 17)
        values.append(low + (high - low) * min(1.0, max(0.0, share + noise.uniform(-0.09, 0.09))))
    return tuple(values)


def gpu_hosts(nodes: int, first_pid: int = 211034, gpus: int = 4) -> tuple[HostSnapshot, ...]:
    hosts = []
    for node in range(nodes):
        cards = []
        for index in range(gpus):
            free = node == 1 and index == 1
            learner = index < 2
            cards.append(
                GpuSample(
                    index=index,
                    name="NVIDIA H100 80GB HBM3",
                    uuid=f"GPU-{node}{index}",
                    utilization_percent=0.0 if free else (84.0 + index + node if learner else 95.0 + index),
                    memory_used_gib=0.4 if free else (61.3 if learner else 70.2 + 6 * (node == 0 and index == 3)),
                    memory_total_gib=79.6,
                    power_w=92.0 if free else 612.0,
                    temperature_c=34.0 if free else 61.0 + index,
                    memory_peak_gib=0.4 if free else (66.1 if learner else 76.2),
                    clock_mhz=345.0 if free else 1755.0,
                    clock_most_mhz=1980.0,
                    ecc_corrected=0,
                    ecc_uncorrected=0,
                    pids=() if free else (first_pid + node * 10 + index,),
                )
            )
        hosts.append(
            HostSnapshot(
                host=f"nid{10701 + node:06d}",
                taken_at=NOW,
                cpus=64,
                cpu_percent=23.0 + node,
                memory_used_gib=212.0 + node,
                memory_total_gib=480.0,
                shm_used_gib=12.0,
                shm_total_gib=240.0,
                disk_used_gib=210.0,
                disk_total_gib=880.0,
                gpus=tuple(cards),
                cpu_history=wave(60, 15, 40, 40 + node),
                gpu_history=tuple(wave(60, 70, 100, 50 + node * 4 + i) for i in range(gpus)),
                processes=(
                    ProcessSample(
                        pid=first_pid + node * 10, title="ray::Learner.train", cpu_percent=104.0, resident_gib=14.2
                    ),
                ),
            )
        )
    return tuple(hosts)


def cpu_hosts() -> tuple[HostSnapshot, ...]:
    processes = (
        ProcessSample(pid=21011, title="ray::Learner.train rank 0", cpu_percent=97.0, resident_gib=0.61),
        ProcessSample(pid=21012, title="ray::Learner.train rank 1", cpu_percent=96.0, resident_gib=0.61),
        ProcessSample(pid=21013, title="ray::Engine.generate", cpu_percent=88.0, resident_gib=0.72),
        ProcessSample(pid=20990, title="raylet", cpu_percent=3.0, resident_gib=0.11),
        ProcessSample(pid=20981, title="gcs_server", cpu_percent=1.2, resident_gib=0.05),
    )
    return (
        HostSnapshot(
            host="ada-laptop",
            taken_at=NOW,
            cpus=8,
            cpu_percent=41.0,
            memory_used_gib=9.4,
            memory_total_gib=31.2,
            processes=processes,
            cpu_history=wave(60, 20, 70, 30),
        ),
    )
