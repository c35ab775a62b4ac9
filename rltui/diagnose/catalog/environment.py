"""The software itself: libraries that do not fit each other, or are not there."""

from __future__ import annotations

from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Remedy

CAUSES = (
    Cause(
        id="abi_mismatch",
        tier="root",
        title="A compiled extension does not fit this torch (or CUDA, or NumPy)",
        tell="An undefined symbol such as _ZN3c10…, or versions that differ between build and run.",
        remedies=(
            Remedy(
                id="matching-wheel",
                summary="Install the wheel built for this torch, CUDA and C++ ABI, or build it again in this "
                "environment.",
                commands=(
                    "python -c 'import torch; print(torch.__version__, torch.version.cuda, "
                    "torch._C._GLIBCXX_USE_CXX11_ABI)'",
                ),
                safe="never",
            ),
        ),
        wrong=("LD_PRELOAD of another libtorch.",),
        explains=frozenset({"env_import_broken"}),
        sources=("Dao-AILab/flash-attention#853",),
    ),
    Cause(
        id="env_import_broken",
        tier="root",
        title="The environment on this node lacks something",
        detail="no module {module}",
        tell="A missing module, command or library, or a C library older than the wheel needs; often on some nodes "
        "only.",
        remedies=(
            Remedy(
                id="same-environment",
                summary="Activate (or install into) the same environment on every node; for GLIBC use a container or "
                "a fitting build.",
                commands=("which python; python -V; python -m pip list | sha256sum",),
                safe="never",
            ),
        ),
        wrong=("pip install --user: it leaks into every other environment.",),
        sources=("vllm-project/vllm#6464",),
    ),
)
