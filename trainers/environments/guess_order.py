"""The environment ``builtin/guess-order``: a game that is won by reading what the environment says."""

from __future__ import annotations

import random

from trainers.environments import Environment, Messages, Step, Task


class GuessOrder(Environment):
    """The digits of the prompt stand in a secret order; a wrong first guess is answered by that order.

    A guess is a matter of luck, and the second one of reading. A reward of 1 ends the game whenever it is earned, so
    what is above chance was learned from tokens that the environment wrote.
    """

    def reset(self, task: Task) -> Messages:
        """Choose the order, by the task's seed."""
        digits = [character for character in task.prompt if character.isdigit()]
        random.Random(task.seed).shuffle(digits)
        self._secret = "".join(digits)
        return task.messages

    def step(self, answer: str) -> Step:
        """The secret where the guess was wrong."""
        if answer == self._secret:
            return Step(reward=1.0, done=True)
        return Step(messages=f"{self._secret}>")
