"""A Ray cluster: an existing one, or a new one on this machine.

Ray allows about 30 seconds for each step of a start, which can be too short on a busy machine. Here a start that makes
progress may take until the deadline of the engine, and a start that timed out is tried once more.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_QUIET = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}


def start(local: dict[str, Any], init: dict[str, Any], env: dict[str, str], seconds: float) -> None:
    """Start a cluster on this machine. Everything in it inherits this process's environment; `env` has defaults."""
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # training is the main work of this machine; Ray's default is 15
    defaults = {**{name: str(value) for name, value in _timeouts(seconds).items()}, **env}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)  # the shell wins
    os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(_PACKAGE), os.environ.get("PYTHONPATH", "")])
    import ray

    deadline = time.monotonic() + seconds
    _wait_for_node(deadline)
    settings = {**_QUIET, **local, **init}
    try:
        ray.init("local", include_dashboard=False, **settings)
    except Exception as error:
        if "timed out" not in str(error).lower() or time.monotonic() > deadline - seconds / 2:
            raise
        print(f"Ray did not start in time ({error}); trying once more.", file=sys.stderr)
        ray.shutdown()
        ray.init("local", include_dashboard=False, **settings)


def join(address: str, init: dict[str, Any], env: dict[str, str]) -> None:
    """Become a driver of the cluster at an address; this package is sent to its workers.

    The variables of `env` are sent too, with the values of this process's shell where it sets them.
    """
    if "RAY_AUTH_TOKEN" in os.environ:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    given = init.get("runtime_env", {})
    of_job = _variables_of_job()  # Ray does not allow setting these again
    ours = {name: os.environ.get(name, value) for name, value in env.items() if name not in of_job}
    environment = {**given, "env_vars": {**ours, **given.get("env_vars", {})}}
    environment["py_modules"] = [*given.get("py_modules", []), _PACKAGE]
    ray.init(address, **{**_QUIET, **init, "runtime_env": environment})


def _variables_of_job() -> dict[str, str]:
    """The environment variables that `ray job submit` sets for the workers, if it started this process."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    variables: dict[str, str] = (job.get("runtime_env") or {}).get("env_vars") or {}
    return variables


def _timeouts(seconds: float) -> dict[str, int]:
    """Ray's own timeouts. A raylet of this machine that does not answer is busy; if it is dead, its workers are too."""
    most = int(seconds)
    return {
        "RAY_gcs_server_port_wait_time_s": most,
        "RAY_gcs_rpc_server_connect_timeout_s": most,
        "RAY_py_gcs_connect_timeout_s": most,
        "RAY_raylet_start_wait_time_s": most,
        "RAY_worker_register_timeout_seconds": most,
        "RAY_agent_register_timeout_ms": 1000 * most,
        "RAY_health_check_timeout_ms": 60_000,
        "RAY_health_check_failure_threshold": 10,
    }


def _wait_for_node(deadline: float) -> None:
    """Ray 2.60 looks for the node that it starts for 30 seconds, and no setting changes that: let each call wait."""
    from ray._private import services

    get_node: Callable[..., Any] = services.get_node

    def get_node_until_deadline(*args: Any) -> Any:
        while True:
            try:
                return get_node(*args)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    services.get_node = get_node_until_deadline
