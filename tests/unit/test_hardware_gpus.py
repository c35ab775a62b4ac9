"""Cards by their exact names."""

from __future__ import annotations

import pytest

from rltui.hardware.gpus import find_gpu, gpu_by_nvml, gpus, nearest_gpus


@pytest.mark.parametrize(
    ("nvml", "mib", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "H100-SXM-80GB"),
        ("NVIDIA H100 NVL", 95830, "H100-NVL-94GB"),
        ("NVIDIA H100", 97871, "H100-SXM-96GB"),
        ("NVIDIA GH200 480GB", 97871, "GH200-96GB"),
        ("NVIDIA GH200 144G HBM3e", 147000, "GH200-144GB"),
        ("NVIDIA H200", 143771, "H200-SXM-141GB"),
        ("NVIDIA B200", 183359, "B200-SXM-180GB"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-SXM-40GB"),
        ("NVIDIA A100-SXM4-80GB", 81920, "A100-SXM-80GB"),
        ("Tesla V100-SXM2-16GB", 16160, "V100-SXM-16GB"),
        ("Tesla V100-SXM2-32GB", 32510, "V100-SXM-32GB"),
        ("NVIDIA L40S", 46068, "L40S-48GB"),
        ("NVIDIA RTX A6000", 49140, "A6000-48GB"),
    ],
)
def test_nvml_name_and_memory_make_the_card(nvml: str, mib: int, name: str) -> None:
    gpu = gpu_by_nvml(nvml, mib)
    assert gpu is not None
    assert gpu.name == name


@pytest.mark.parametrize(
    ("nvml", "mib"),
    [
        ("NVIDIA H100", 81559),  # the name of the 96 GB card, the memory of another
        ("NVIDIA GH200", 97871),
        ("H200", 143771),
        ("nvidia h200", 143771),
        ("NVIDIA RTX 9090", 65536),
        ("", 0),
    ],
)
def test_anything_else_is_unknown(nvml: str, mib: int) -> None:
    assert gpu_by_nvml(nvml, mib) is None


def test_layouts_may_say_it_shorter() -> None:
    for word in ("H100-SXM-80GB", "h100", "H100-80GB", "NVIDIA H100 80GB HBM3"):
        gpu = find_gpu(word)
        assert gpu is not None
        assert gpu.name == "H100-SXM-80GB"


@pytest.mark.parametrize("word", ["A100", "GH200", "V100", "H300", "cpu", ""])
def test_ambiguous_words_are_not_resolved(word: str) -> None:
    assert find_gpu(word) is None


def test_nearest_cards_are_offered() -> None:
    assert nearest_gpus("V100") == ["V100-SXM-16GB", "V100-SXM-32GB", "V100-PCIe-16GB"]
    assert nearest_gpus("GH200-96") == ["GH200-96GB", "GH200-144GB"]
    assert nearest_gpus("warp-drive") == []


def test_every_card_makes_sense_and_no_name_is_taken_twice() -> None:
    names = [name.lower() for gpu in gpus() for name in (gpu.name, *gpu.aliases)]
    assert len(names) == len(set(names))
    pairs = [(name, gpu.nvml_mib) for gpu in gpus() for name in gpu.nvml_names]
    assert len(pairs) == len(set(pairs))
    for gpu in gpus():
        assert 0.93 < gpu.usable_gib / (gpu.nvml_mib / 1024) <= 1.01
        assert 50e12 < gpu.peak_flops < 3e15
        assert 250e9 < gpu.bandwidth < 10e12
