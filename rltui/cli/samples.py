"""``rltui samples``: answers that a run trained on or was evaluated by, the worst or best first."""

from __future__ import annotations

import argparse
import re
import sys

from rltui.cli.output import add_json, add_run, columns, print_json, print_lines, talk
from rltui.errors import UsageError
from rltui.service.all_clusters import open_run
from rltui.service.samples import samples_of
from rltui.watch.samples import Order, Sample, SampleQuery, SamplesFound

HEADER = ("STEP", "REWARD", "TOKENS", "WEIGHTS", "END", "PROMPT", "ANSWER")
PROMPT_WIDTH = 30
WHOLE = 1 << 16
"""Characters of a text that are printed where samples are wanted whole."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    which = parser.add_mutually_exclusive_group()
    for order, what in (("worst", "lowest reward"), ("best", "highest reward"), ("longest", "most tokens")):
        which.add_argument(
            f"--{order}", dest="order", action="store_const", const=order, help=f"{what} first (default: newest first)"
        )
    parser.add_argument(
        "--grep", default="", metavar="RE", help=r"with this in their line of the file (a line end: \\n)"
    )
    parser.add_argument("--step", type=int, metavar="N", help="of this training step, or of the evaluation after it")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="at most so many (default 20)")
    parser.add_argument("--evaluation", action="store_true", help="answers of evaluations instead of the training's")
    parser.add_argument("--full", action="store_true", help="print prompts and answers whole, with line ends")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print samples; 1 where none is found, as grep has it."""
    found = _found(options)
    if options.json:
        samples = [{**_parts(sample), "path": sample.path} for sample in found.samples]
        print_json({"schema": 1, "samples": samples, "note": found.note})
    elif options.full:
        print_lines(line for sample in found.samples for line in _whole(sample))
    elif found.samples:
        print_lines(columns(HEADER, [_row(sample) for sample in found.samples], frozenset(range(4))))
    if not found.samples:
        talk(found.note or "No sample is like that.")
    return 0 if found.samples else 1


def _found(options: argparse.Namespace) -> SamplesFound:
    """What is found when the search is over; meanwhile a terminal is told how far it is."""
    if not 1 <= options.limit <= 1000:
        raise UsageError("--limit is from 1 to 1000.")
    try:
        re.compile(options.grep)
    except re.error as error:
        raise UsageError(f"The pattern cannot be read: {error}.") from error
    order: Order = options.order or "newest"
    query = SampleQuery(
        order=order,
        grep=options.grep,
        step=options.step,
        evaluation=options.evaluation,
        limit=options.limit,
        clip=WHOLE if options.full or options.json else 200,
    )
    told, found = False, None
    with open_run(options.cluster, options.run) as (context, summary):
        for found in samples_of(context, summary, query):
            if found.share < 1.0 and sys.stderr.isatty():
                told = True
                sys.stderr.write(f"\r{100 * found.share:3.0f} % searched")
    if told:
        sys.stderr.write("\r\x1b[K")
    assert found is not None
    return found


def _parts(sample: Sample) -> dict[str, object]:
    names = ("step", "reward", "tokens", "version", "finish_reason", "prompt", "answer", "right_answer")
    return {name: getattr(sample, name) for name in names}


def _row(sample: Sample) -> tuple[str, ...]:
    numbers = (sample.step, sample.reward, sample.tokens, sample.version)
    prompt = " ".join(sample.prompt.split())
    return (
        *(
            "–" if number is None else f"{number:.4g}" if isinstance(number, float) else str(number)
            for number in numbers
        ),
        sample.finish_reason or "–",
        prompt if len(prompt) <= PROMPT_WIDTH else f"…{prompt[1 - PROMPT_WIDTH :]}",
        " ".join(sample.answer.split()),
    )


def _whole(sample: Sample) -> list[str]:
    step, reward, tokens, version, end, *_ = _row(sample)
    lines = [f"step {step}  reward {reward}  tokens {tokens}  weights {version}  {end}"]
    for name, text in (("prompt", sample.prompt), ("answer", sample.answer), ("right answer", sample.right_answer)):
        lines += [f"  {name}:", *(f"    {line}" for line in text.split("\n"))] if text else []
    return [*lines, ""]
