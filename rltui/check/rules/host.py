"""Rules about the machines themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rltui.check.arithmetic import micro_batches_of
from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.check.rules.placement import part_key
from rltui.hardware.gpus import find_gpu, nearest_gpus
from rltui.layout.roles import effective_stage
from rltui.layout.scalars import UNNAMED_GPU

FEW_PASSES = 4
"""Micro-batches of an optimizer step up to which moving their gradients takes no longer than AdamW in host memory."""

_PRE_AMPERE = re.compile(r"\b(?:V100|T4)\b", re.IGNORECASE)


def _computing(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Key and value of the precision of every role that the layout has, and its card."""
    for role, found in subject.roles():
        yield f"roles.{role}.precision", found.precision, subject.layout.hardware_of(role).gpu


@rule("H401", "error")
def no_bf16(subject: Subject) -> Iterator[Trouble]:
    """The card has no bf16.

    Volta (V100) and Turing (T4) lack bf16 arithmetic. Train in fp16 with loss scaling.
    """
    found = [(key, card) for key, word, card in _computing(subject) if word == "bf16" and is_pre_ampere(card)]
    for key, card in found:
        yield Trouble(f"{card} has no bf16", key, tuple(f"{each}=fp16" for each, _ in found))


def is_pre_ampere(card: str) -> bool:
    """Whether the card is a V100 or a T4."""
    gpu = find_gpu(card)
    return not gpu.bf16 if gpu else _PRE_AMPERE.search(card) is not None


@rule("H402", "error")
def no_fp16_on_cpu(subject: Subject) -> Iterator[Trouble]:
    """fp16 is not trained on CPUs.

    Most CPU kernels have no fp16 path, and loss scaling has nothing to gain there. Use fp32, or bf16.
    """
    if not subject.layout.hardware.on_cpu:
        return
    keys = [key for key, precision, _ in _computing(subject) if precision == "fp16"]
    for key in keys:
        yield Trouble("fp16 does not run on CPU slots", key, tuple(f"{each}=fp32" for each in keys))


@rule("H403", "note")
def unknown_card(subject: Subject) -> Iterator[Trouble]:
    """The card is not in the table of GPUs, so its memory is not known.

    Names must be exact, because cards of one name come in several sizes: GH200 has 96 or 144 GB, A100 40 or 80, V100
    16 or 32. A card is never guessed from a part of its name.
    """
    for number, hardware in enumerate(subject.layout.hardware.parts):
        if not hardware.on_cpu and find_gpu(hardware.gpu) is None:
            near = nearest_gpus(hardware.gpu)
            hint = f"; is it {' or '.join(near)}?" if near else ""
            key = f"{part_key(subject.layout, number)}.gpu"
            if hardware.gpu == UNNAMED_GPU:
                yield Trouble(f"no card is named: memory is not checked ({key}=H100-SXM-80GB would name one)", key)
            else:
                yield Trouble(f"the table of GPUs has no {hardware.gpu}: memory is not checked{hint}", key)


@rule("H404", "warning")
def fp16_on_new_card(subject: Subject) -> Iterator[Trouble]:
    """The learner trains in fp16 on a card that has bf16.

    fp16 needs loss scaling, and RL gradients overflow it sooner or later; bf16 costs the same.
    """
    hardware = subject.layout.hardware_of("learner")
    card = find_gpu(hardware.gpu)
    if subject.layout.roles.learner.precision == "fp16" and card is not None and card.bf16:
        key = "roles.learner.precision"
        yield settled_by(f"fp16 with loss scaling, though {hardware.gpu} has bf16", key, "bf16")


@rule("H405", "note")
def unknown_host_memory(subject: Subject) -> Iterator[Trouble]:
    """States are offloaded to host memory of which the layout does not say how much there is.

    Offloaded Adam takes 12 to 18 bytes a parameter over the nodes, and half as much again in buffers.
    """
    offloaded = [name for name, role in subject.roles("learner", "critic") if role.offload != "none"]
    if any(not subject.layout.hardware_of(name).memory_gib_per_node for name in offloaded):
        yield Trouble("states go to host memory, but memory_gib_per_node is not known", "hardware.memory_gib_per_node")


@rule("H407", "warning")
def offload_on_cpu(subject: Subject) -> Iterator[Trouble]:
    """States are offloaded from a CPU to the same CPU's memory: copies without a gain."""
    for name, role in subject.roles("learner", "critic") if subject.layout.hardware.on_cpu else ():
        if role.offload != "none":
            yield settled_by("everything is in host memory already", f"roles.{name}.offload", "none")


@rule("B246", "warning")
def offload_without_shards(subject: Subject) -> Iterator[Trouble]:
    """Offload is a part of ZeRO: optimizer states can leave the card with ZeRO-1 to 3, weights with ZeRO-3 only.

    With a lower stage they stay where they are, and the card needs the memory that was to be saved. Of other systems'
    trainers, which move states by themselves, nothing is said.
    """
    for name, role in () if subject.layout.system != "rltui" else subject.roles("learner", "critic"):
        needed = {"none": 0, "optimizer": 1, "all": 3}[role.offload]
        if effective_stage(role) < needed:
            key = f"roles.{name}.zero_stage"
            yield settled_by(f"offload {role.offload} with ZeRO-{role.zero_stage}", key, needed)


@rule("H409", "warning")
def gradients_moved_often(subject: Subject) -> Iterator[Trouble]:
    """The gradients of each of many micro-batches go to host memory and back.

    So DeepSpeed adds them up at ZeRO-2 with an offloaded optimizer, parameter by parameter. A learner of 1.7 billion
    parameters on one H200 took 0.4 s longer for each micro-batch, and seven times as long for a step of 32. ZeRO-1 adds
    them up on the card and moves them once: on one GPU that takes no more memory, on several up to 2 bytes a parameter.
    Else take fewer, larger micro-batches.
    """
    layout = subject.layout
    for name, role in subject.roles("learner", "critic"):
        passes = micro_batches_of(layout, name) // layout.train.optimizer_steps
        if role.offload == "optimizer" and role.zero_stage == 2 and passes > FEW_PASSES:
            alone = (f"roles.{name}.zero_stage=1",) if layout.slots_of(name) == 1 else ()
            text = f"gradients go to host memory and back in each of {passes} micro-batches of a step"
            yield Trouble(text, f"roles.{name}.{'zero_stage' if alone else 'micro_batch'}", alone)


@rule("H408", "warning")
def few_cores(subject: Subject) -> Iterator[Trouble]:
    """The node has fewer than two CPU cores for each GPU.

    Beside each GPU process run its data loading, tokenisation, NCCL's threads and Ray's workers. `cpus_per_node` below
    twice the GPUs starves them; 8 to 16 cores a GPU are usual.
    """
    for number, hardware in enumerate(subject.layout.hardware.parts):
        if hardware.on_cpu or not hardware.gpus_per_node < hardware.cpus_per_node < 2 * hardware.gpus_per_node:
            continue
        key = f"{part_key(subject.layout, number)}.cpus_per_node"
        yield settled_by(
            f"{hardware.cpus_per_node} cores for {hardware.gpus_per_node} GPUs", key, 8 * hardware.gpus_per_node
        )
