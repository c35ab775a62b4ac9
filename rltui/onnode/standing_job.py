"""Runs one attempt on a Ray cluster that stands already: the entry point of a Ray job, which that cluster starts."""

import argparse
import json
import os
import subprocess
import sys
from typing import Any, Dict, Optional

from rltui.onnode import hands_off, preflight, rundir
from rltui.onnode.attempt_runner import AttemptRunner
from rltui.onnode.ray_head import RayHead
from rltui.onnode.rundir import EndedError

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where Ray hands a job its settings, as JSON; ``ray.init`` reads it, so actors on all nodes get what is added here."""

DASHBOARD_VARIABLE = "RLTUI_RAY_DASHBOARD"
"""Where rltui says which address the cluster's dashboard has."""

LONGEST_HOLD_S = 86400.0
"""Until quiet hours are over; a pause after attempts in vain is shorter."""

ACTORS_VARIABLE = "RLTUI_ACTORS_INHERIT"
"""Where rltui names the profile's variables, with commas: this Ray's processes have none of the job's."""

ACTORS_INHERIT = ("PYTHONPATH", "PYTHONUNBUFFERED", "SPT_NOENV", rundir.ATTEMPT_VARIABLE)


class StandingRay(RayHead):
    """Somebody else's Ray: used, never started and never stopped."""

    def __init__(self, address: str, dashboard: str) -> None:
        self.address = address
        self.dashboard = dashboard

    def client_environment(self) -> Dict[str, str]:
        """Nothing: Ray has given the job what it needs."""
        return {}

    def death(self) -> str:
        """Nothing: where this Ray dies, the job dies with it."""
        return ""

    def stop(self, grace_s: float = 0.0) -> None:
        """Leave Ray alone: it was there before the attempt, and others use it."""

    def remove_folder(self) -> None:
        """Leave Ray's folder alone: it is not the attempt's."""


class StandingJob(AttemptRunner):
    """One attempt as a job of a standing Ray cluster.

    Args:
        attempt: The attempt's directory.
        environment: What Ray gave the job.
    """

    notes_servers = True  # Ray may start the job on another node than its dashboard's

    def __init__(self, attempt: str, environment: Dict[str, str]) -> None:
        super().__init__(attempt)
        self._given = environment

    def preflight(self) -> None:
        """Look at disk and Python of this node, and at what Ray gave.

        Raises:
            EndedError: Something is missing.
        """
        problems = preflight.problems(self.attempt, self.job)
        if not self._given.get("RAY_ADDRESS"):
            problems.append("RAY_ADDRESS is not set: this is not a job of a Ray cluster")
        if problems:
            raise EndedError("; ".join(problems))

    def start_ray(self) -> None:
        """Take the Ray that is there."""
        address = self._given["RAY_ADDRESS"]
        dashboard = self._given.get(DASHBOARD_VARIABLE, "")
        self.ray = StandingRay(address, dashboard)
        self.environment[JOB_CONFIG] = json.dumps(with_variables(self._given.get(JOB_CONFIG, ""), self.environment))
        endpoint = {"schema": rundir.SCHEMA, "address": address, "dashboard": dashboard, "pid": 0, "jobs": []}
        rundir.write_json(os.path.join(self.attempt, rundir.RAY_ENDPOINT), endpoint)
        rundir.write_stage(self.attempt, "ray-up", "the cluster's own Ray")
        self.start_guard("")

    def start_sampler(self) -> None:
        """Start the sampler of this node, and what starts those of the others, as only Ray reaches them."""
        super().start_sampler()
        argv = [sys.executable, "-m", "trainers.standing_ray", "--attempt", self.attempt, "--mark", self.uuid]
        argv += ["--parent", str(os.getpid())]
        environment = {**self.environment, "RAY_ADDRESS": self._given["RAY_ADDRESS"]}
        quiet = subprocess.DEVNULL  # it tells its troubles as an event; Ray's chatter is none of the run's log
        subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, start_new_session=True)

    def in_a_hurry(self) -> bool:
        """Ray kills a stopped job after three seconds."""
        return self.requested()

    @property
    def decision_s(self) -> Optional[float]:
        """Ray may end what a job leaves behind, so the decision is waited for, also where it waits for quiet hours.

        Meanwhile the job holds nothing of the cluster's.
        """
        return hands_off.DECISION_S + LONGEST_HOLD_S


def with_variables(config: str, environment: Dict[str, str]) -> Dict[str, Any]:
    """Ray's job configuration with the variables that the actors need on every node."""
    try:
        value = json.loads(config) if config else {}
    except ValueError:
        value = {}
    settings: Dict[str, Any] = value if isinstance(value, dict) else {}
    runtime = settings.setdefault("runtime_env", {})
    told = environment.get(ACTORS_VARIABLE, "").split(",")
    runtime.setdefault("env_vars", {}).update(
        {name: environment[name] for name in (*told, *ACTORS_INHERIT) if name in environment}
    )
    return settings


def main() -> int:
    """Entry point: ``python -m rltui.onnode.standing_job --attempt DIR``, in a job of Ray."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    options = parser.parse_args()
    job = StandingJob(options.attempt, dict(os.environ))
    try:
        # a second copy of the same submission (a reply that was lost) ends here
        os.mkdir(rundir.lock_folder(job.attempt, job.uuid), 0o700)
    except FileExistsError:
        return 0
    return job.run()


if __name__ == "__main__":
    sys.exit(main())
