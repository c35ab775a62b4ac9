"""``builtin/guess-order``, a game that is won by reading what one is told: as an environment, and as an agent."""

from __future__ import annotations

import random

from trainers.environments import Environment, Messages, Policy, Step, Task


class GuessOrder(Environment):
    """The digits of the prompt stand in a secret order; a wrong first guess is answered by that order.

    A guess is a matter of luck, and the second one of reading. A reward of 1 ends the game whenever it is earned, so
    what is above chance was learned from tokens that the environment wrote.
    """

    def reset(self, task: Task) -> Messages:
        """Choose the order, by the task's seed."""
        self._secret = secret_of(task)
        return task.messages

    def step(self, answer: str) -> Step:
        """The secret where the guess was wrong."""
        if answer == self._secret:
            return Step(reward=1.0, done=True)
        return Step(messages=f"{self._secret}>")


def play(task: Task, policy: Policy) -> float:
    """The same game by an agent, which has the policy guess, tells it the order, and has it guess once more."""
    secret, chat = secret_of(task), list(task.messages)
    guess = policy.chat(chat)
    if guess["content"] != secret:
        guess = policy.chat([*chat, guess, {"role": "user", "content": f"{secret}>"}])
    return float(guess["content"] == secret)


def secret_of(task: Task) -> str:
    """The digits of the prompt in the order that the task's seed says."""
    digits = [character for character in task.prompt if character.isdigit()]
    random.Random(task.seed).shuffle(digits)
    return "".join(digits)
