"""The sections of a layout about models that reward: what they are asked, and what their answers are worth."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from rltui.layout.scalars import Count, Name, NonNegativeFloat, PositiveFloat

REWARDS = ("exact", "coin", "math", "code", "http", "judge", "reward_model")
"""The rewards that the bundled trainers have a name for."""
ADDED_REWARDS = tuple(reward for reward in REWARDS if reward != "coin")
"""What may be added to another reward, beside functions of the user's own."""
SERVED_REWARDS = ("http", "judge", "reward_model")
"""Rewards that others compute: the trainer's own process asks them for many answers at once."""


class Judging(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the language model of ``roles.judge`` is asked about an answer, and what its verdict is worth."""

    prompt: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=50_000,
            description="What it is asked; {question}, {answer} and {reference} stand for the sample's.",
        ),
    ] = (
        "Question:\n{question}\n\nRight answer:\n{reference}\n\nAnswer to grade:\n{answer}\n\n"
        "How good is that answer, from 0 to 10? Think it over briefly, and end with a line 'Score: N'."
    )
    system: Annotated[str, Meta(description="What the system says first.", max_length=50_000)] = ""
    chat: Annotated[bool, Meta(description="Ask in the judge's chat template; false: the prompt as it stands.")] = True
    template_options: Annotated[
        dict[Name, bool | int | float | str],
        Meta(description="Variables of that chat template, such as enable_thinking: false."),
    ] = field(default_factory=dict)
    verdict: Annotated[
        Literal["number", "choice", "likelihood"],
        Meta(
            description="number: what pattern finds; choice: the last of choices; likelihood: how likely the judge "
            "finds continuation after the prompt."
        ),
    ] = "number"
    pattern: Annotated[
        str, Meta(max_length=1000, description="Regular expression whose first group is the number; the last counts.")
    ] = r"[Ss]core\W*(-?\d+(?:\.\d+)?)"
    lowest: Annotated[float, Meta(description="The number that is worth 0.")] = 0.0
    highest: Annotated[float, Meta(description="The number that is worth 1.")] = 10.0
    choices: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=200)], float],
        Meta(description="Words of which the verdict has one, and what each is worth."),
    ] = field(default_factory=dict)
    continuation: Annotated[
        str, Meta(min_length=1, max_length=50_000, description="For likelihood, with the same places as prompt.")
    ] = "{reference}"
    max_tokens: Annotated[Count, Meta(description="Longest verdict, in tokens; one that is cut counts as failed.")] = (
        512
    )
    temperature: Annotated[NonNegativeFloat, Meta(description="Temperature of the judge; 0: greedy.")] = 0.0
    failed: Annotated[float, Meta(description="What an answer earns without a verdict that can be read.")] = 0.0


class Scoring(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``roles.reward_model`` reads of a sample, and what its score is worth: (score - center) / spread."""

    chat: Annotated[
        bool, Meta(description="Write question and answer in its chat template; false: one after the other.")
    ] = True
    system: Annotated[str, Meta(description="What the system says first in that chat.", max_length=50_000)] = ""
    center: Annotated[float, Meta(description="Subtracted from scores, such as the mean score of known answers.")] = 0.0
    spread: Annotated[PositiveFloat, Meta(description="Scores are divided by it.")] = 1.0
    bounded: Annotated[
        bool, Meta(description="Take the sigmoid of that: the chance to be preferred to an answer of score center.")
    ] = True
    failed: Annotated[float, Meta(description="What an answer earns that is longer than its context.")] = 0.0
