"""The scalar types that the sections of a layout are made of, with their bounds."""

from typing import Annotated, Literal

from msgspec import Meta

LARGEST = 10**9
"""The largest count that a layout may have."""

Count = Annotated[int, Meta(ge=1, le=LARGEST)]
CountOrZero = Annotated[int, Meta(ge=0, le=LARGEST)]
Slots = Annotated[int, Meta(ge=1, le=1024)]
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
PositiveFloat = Annotated[float, Meta(gt=0.0, le=1e9)]
Seconds = Annotated[float, Meta(ge=1.0, le=604_800.0)]
NonNegativeFloat = Annotated[float, Meta(ge=0.0, le=1e9)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
Text = Annotated[str, Meta(max_length=500)]
SbatchOption = Annotated[str, Meta(pattern=r"^--[a-z][a-z-]{1,40}(=[!$-&(-\[\]-~]{1,200})?\Z")]
ImageName = Annotated[str, Meta(pattern=r"^([A-Za-z0-9/~][^\x00-\x1f\x7f]{0,499})?\Z")]
Mount = Annotated[
    str,
    Meta(
        pattern=r"^(~|/)[^:,\x00-\x1f\x7f]{0,300}(:/[^:,\x00-\x1f\x7f]{0,300}(:[a-zA-Z+=]{1,40})?)?\Z",
        description="SOURCE[:TARGET[:FLAGS]], such as /data or /scratch/images:/images:ro.",
    ),
]
RuntimeOption = Annotated[str, Meta(pattern=r"^-{1,2}[A-Za-z][^\x00-\x1f\x7f]{0,300}\Z")]
ModelName = Annotated[str, Meta(min_length=1, max_length=500)]

Algorithm = Literal["grpo", "ppo", "opd"]
Precision = Literal["fp32", "bf16", "fp16"]
System = Literal["rltui", "verl", "verl bf16", "prime-rl", "megatron", "megatron in turns"]

CPU = "cpu"
"""The value of ``hardware.gpu`` that makes every "GPU" of a layout a CPU slot: same placement, no card."""
UNNAMED_GPU = "unknown"
"""The same of a layout out of a script that does not say which card it is for."""

PoolName = Annotated[str, Meta(description="The pool it shares; empty: GPUs of its own.", max_length=64)]
GuestPoolName = Annotated[str, Meta(description="The pool it shares; empty: it sits with the learner.", max_length=64)]
