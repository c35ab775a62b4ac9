"""A run's environments as its loop uses them: tasks that they open, and conversations in them."""

from __future__ import annotations

from trainers.agents import AgentTurns
from trainers.conversations import Conversations
from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.data.prompts import Task
from trainers.data.tasks import EVALUATION_SEED, make_evaluation_task, make_task
from trainers.environments.opening import OpenedTask
from trainers.environments.pool import Environments
from trainers.environments.processes import make_environments
from trainers.roles.fleet import Fleet
from trainers.rollouts import Rollouts
from trainers.session import Session


class EnvironmentTurns:
    """What stands between the data, the engines and the environments.

    Args:
        session: The attempt.
        environments: The environments.
        codec: The model's tokenizer.

    Attributes:
        environments: The environments.
    """

    def __init__(self, session: Session, environments: Environments, codec: Codec) -> None:
        data = session.layout.data
        self.environments = environments
        self._session, self._layout, self._codec = session, session.layout, codec
        self._tools = environments.tools()
        self._renderer = Renderer(codec, data.chat, data.system, tools=self._tools)

    def task(self) -> Task:
        """The prompts of training, each opened by its environment."""
        return self._opened(make_task(self._layout, self._codec, self._tools), self._layout.train.seed)

    def evaluation_task(self) -> Task:
        """What is evaluated on; the run's seed has no part in it."""
        return self._opened(make_evaluation_task(self._layout, self._codec, self._tools), EVALUATION_SEED)

    def conversations(self, rollouts: Rollouts, seed: int) -> Conversations:
        """What has the prompts of such a task answered; ``seed`` as for the task."""
        return Conversations(rollouts, self.environments, self._codec, self._renderer, self._layout, seed)

    def close(self) -> None:
        """End the environments, whatever they are at."""
        self.environments.close()

    def evaluation(self, rollouts: Rollouts) -> Conversations:
        """What has the prompts of an evaluation answered."""
        return self.conversations(rollouts, EVALUATION_SEED)

    def _opened(self, task: Task, seed: int) -> Task:
        longest = self._layout.lengths.prompt
        return OpenedTask(task, self.environments, self._renderer, longest, seed, self._session.event)


def make_multi_turn(session: Session, fleet: Fleet, codec: Codec) -> EnvironmentTurns | AgentTurns | None:
    """The environments or agents of the session's layout; None where it names none.

    Raises:
        ValueError: The environment cannot be imported.
    """
    if session.layout.data.environment and session.layout.data.environment_kind == "agent":
        return AgentTurns(session, codec, fleet.of("reward"))
    environments = make_environments(session, fleet)
    return None if environments is None else EnvironmentTurns(session, environments, codec)
