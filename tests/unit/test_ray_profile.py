"""What a standing Ray's jobs and requests get of the cluster's profile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rltui.cluster import trusted_server
from rltui.cluster.cluster import Attempt
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile import Profile
from rltui.cluster.ray_cluster import RayCluster, RayJobs
from rltui.cluster.trusted_server import TrustedServer
from rltui.onnode.standing_job import with_variables

ADDRESS = "http://127.0.0.1:8265"


def test_the_actors_of_a_run_have_the_variables_of_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, str] = {}
    monkeypatch.setattr(RayJobs, "submit", lambda *_, env, **__: told.update(env) or "u")
    profile = Profile(
        name="ray", scheduler="ray", ray_address=ADDRESS, env={"HF_HOME": "/shared/hf"}, env_file="~/secrets",
        nccl_ib_hca="mlx5", offline=True,
    )  # fmt: skip
    RayCluster(profile, LocalTransport()).submit(
        Attempt(run_id="r-1", number=1, uuid="u", path="/runs/r-1/attempts/01", code="/code")
    )
    given: dict[str, Any] = with_variables("", {**told, "HF_TOKEN": "hf_secret"})["runtime_env"]["env_vars"]
    wanted = {"HF_HOME": "/shared/hf", "NCCL_IB_HCA": "mlx5", "HF_HUB_OFFLINE": "1", "RLTUI_OFFLINE": "1"}
    assert wanted.items() <= given.items()
    assert "RLTUI_ENV_FILE" in told
    assert "hf_secret" not in json.dumps(given)  # whoever may look at the dashboard reads them


def test_a_token_that_is_put_there_while_a_cockpit_is_open_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    now, tokens = [1000.0], iter([{}, {"Authorization": "Bearer new"}])
    monkeypatch.setattr(trusted_server.time, "monotonic", lambda: now[0])
    server = TrustedServer(ADDRESS, lambda: next(tokens))
    assert server.headers_for(f"{ADDRESS}/api/version") == {}
    now[0] += trusted_server.KEPT_S
    assert server.headers_for(f"{ADDRESS}/api/version") == {}
    now[0] += 1
    assert server.headers_for(f"{ADDRESS}/api/version") == {"Authorization": "Bearer new"}
