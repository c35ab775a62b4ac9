"""Which part of a run an exception comes from, by the frames that it passed through, and what to do about it there.

For exceptions that no cause knows: who raised it says where to look, whatever the words are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rltui.diagnose.wording import compiled


class Part(NamedTuple):
    """One part of a run.

    Attributes:
        title: What it is, to be said after "raised in".
        frames: Regular expression on frames (``path:line in function``) that belong to it alone.
        exceptions: Regular expression on exceptions that speak for it where no frame does; empty: none do.
        next_step: What to do first, in one or two sentences.
    """

    title: str
    frames: str
    exceptions: str
    next_step: str


PARTS: dict[str, Part] = {
    "reward": Part(
        "the rewards (a judge, a verifier or a sandbox)",
        r"reward|remote_rm|\brm_(?:hub|fn)|math_verify|latex2sympy|/sympy/|grader|verifier|judge|sandbox",
        "",
        "Call the reward function alone with the answer and the row at which it failed. One that meets every answer a "
        "model can give needs a time limit of its own, and has to return a number where it cannot tell.",
    ),
    "weight_sync": Part(
        "the hand-over of weights from learner to engines",
        r"checkpoint_engine|update_weight|weight_update|weight_sync|weights_manager|sharding_manager|broadcast_to_inference",
        "",
        "Hold the engine's version against the one that the trainer names, and see whether both have the same model "
        "and parallel sizes; then try one engine with tensor parallelism 1.",
    ),
    "checkpoint": Part(
        "saving or loading a checkpoint",
        r"^(?!.*(?:activation_checkpoint|gradient_checkpoint|torch/utils/checkpoint)).*(?:checkpoint|ckpt)|"
        r"load_state_dict|in load_state$|save_pretrained|torch/serialization",
        "",
        "See whether the checkpoint is complete and was written with the same number of ranks; try the one before it.",
    ),
    "engine": Part(
        "the inference engine",
        r"/vllm/|/sglang/|/(?:vllm|sglang)_\w+(?:\.py|/)|flashinfer|/lmdeploy/|tensorrt_llm|inference_(?:engine|client|server)|vllm_(?:engine|client)|/rollout|"
        r"/router|completions",
        "",
        "Start the engine alone with the same model and settings, and hold its version against the one that the "
        "trainer names.",
    ),
    "data": Part(
        "reading or preparing data",
        r"/datasets/|pyarrow|pandas|data_?loader|dataset|collat|tokeniz|chat_template|jinja2",
        r"UnicodeDecodeError|JSONDecodeError",
        "Look at the row at which it failed, its columns and types; often it is the first row of another file.",
    ),
    "settings": Part(
        "reading the settings",
        r"hydra|omegaconf|argparse|pydantic|validate_(?:args|config)|arguments\.py|hf_argparser",
        "ValidationError",
        "Hold the key that is named against the documentation of the installed version; `rltui check <script>` reads "
        "scripts before they are queued.",
    ),
    "network": Part(
        "a connection to another machine or service",
        r"/requests/|urllib3|httpx|aiohttp|http/client|/socket\.py|/grpc/|huggingface_hub|/openai/",
        r"Connect\w*Error|\w*Timeout\w*|HTTP\w*Error|gaierror|APIStatusError",
        "From the node itself, ask that address with curl; proxies (http_proxy, no_proxy) count there too.",
    ),
    "learner": Part(
        "the learner",
        r"deepspeed|megatron|fsdp|accelerate|/optim/|/autograd/|trainer|actor|critic",
        r"OutOfMemoryError|AcceleratorError",
        "Read the source line of the innermost frame of your own code: an assertion quotes what has to hold, a missing "
        "attribute or argument is a library of another version. Try it again with one GPU and one prompt.",
    ),
    "ray": Part(
        "Ray",
        r"/ray/",
        "",
        "Read the logs of the named worker in Ray's session_latest/logs on its node.",
    ),
    "disk": Part(
        "a file system",
        r"/shutil\.py|/pathlib|/tempfile\.py",
        r"OSError|IOError|FileNotFoundError|PermissionError|NotADirectoryError|BlockingIOError",
        "Look from that node whether the path is there, writable and not full (ls -l, df -h, df -i).",
    ),
    "program": Part(
        "the program itself",
        "",
        "",
        "Read the source line of the innermost frame: an assertion quotes what has to hold, a missing attribute or "
        "argument is a library of another version.",
    ),
}


_SERVERS = ("weight_sync", "engine", "reward")
"""Parts that ask a server: the frames of the connection do not tell which, those outside of it do."""


def part_of(frames: Sequence[str], exception: str) -> str:
    """Return the key of ``PARTS`` that the innermost telling frame, or else the exception, speaks for.

    Args:
        frames: ``path:line in function``, outermost first.
        exception: The exception's own line.
    """
    told = (name for frame in reversed(frames) if (name := _part_of_frame(frame)))
    innermost = next(told, "")
    if innermost:
        return next((name for name in told if name in _SERVERS), innermost) if innermost == "network" else innermost
    kind = exception.partition(":")[0].rpartition(".")[2]
    for name, part in PARTS.items():
        if part.exceptions and compiled(part.exceptions).fullmatch(kind):
            return name
    return "program"


def _part_of_frame(frame: str) -> str:
    fitting = (name for name, part in PARTS.items() if part.frames and compiled(part.frames).search(frame))
    return next(fitting, "")
