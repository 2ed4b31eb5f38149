"""A Ray actor around a vLLM server, which runs as a separate process, and with another Python if there is one.

The actor starts the server, returns its address, and reports when it ends or is frozen. Requests go to the server over
HTTP. The actor has resources of its own in the cluster, or it runs on a node of the workers, reserves no resources and
uses their GPUs.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any

import ray

from . import frames
from .errors import UserError
from .health_check import DIRECT, HealthCheck, ServerLost
from .manifest import check_manifest
from .worker_actor import interface_of

Message = dict[str, Any]
_PREFIX = re.compile(r"^(\(\w+ pid=\d+\) )?([A-Z]+ \S+ \S+ \[[^\]]*\] )?")
_ERROR = re.compile(r"^[\w.]*(Error|Exception)\b")
_HAS_VLLM = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('vllm') else 1)"


def create_beside(workers: list[Message], parallel: int, actor_class: Any, *arguments: Any) -> list[Any]:
    """Create an actor for each server: with GPUs one for every `parallel` workers of a node, else one on each node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes: dict[str, list[str]] = {}
    for worker in workers:
        nodes.setdefault(worker["node"], []).extend(str(gpu) for gpu in worker["gpus"])
    actors = []
    for node, gpus in nodes.items():
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        shares = [gpus[i : i + parallel] for i in range(0, len(gpus), parallel)] or [[]]
        here = actor_class.options(scheduling_strategy=strategy, num_cpus=0)
        actors += [here.remote(*arguments, share) for share in shares]
    return actors


class VllmServerActor:
    """What runs in the actor's process."""

    def __init__(self, python: str | None, is_local: bool, gpus: list[str] | None = None) -> None:
        """`gpus` are the GPUs of workers that it shares, if any; None if it has resources of its own."""
        self._python = python or sys.executable
        self._is_local = is_local
        self._shared_gpus = gpus
        self._process: subprocess.Popen[bytes] | None = None
        self._output: deque[str] = deque(maxlen=1000)
        self._health: HealthCheck | None = None
        self._is_started = threading.Event()

    def describe(self) -> Message:
        """The process, machine and node of the actor."""
        context = ray.get_runtime_context()
        return {"pid": os.getpid(), "host": socket.gethostname(), "node": context.get_node_id()}

    def has_vllm(self) -> bool:
        """Whether this machine's Python has vLLM."""
        try:
            return subprocess.run([self._python, "-c", _HAS_VLLM], capture_output=True, check=False).returncode == 0
        except OSError as error:
            raise UserError(
                f"{self._python} (TRAINYARD_VLLM_PYTHON) cannot be run on the machine {socket.gethostname()}: "
                f"{error.strerror}. Name a Python that every node of the cluster has under this path."
            ) from error

    def call(self, method: str, data: bytes) -> bytes:
        """Call one of the methods below. An error that the user can fix is returned as `error`."""
        try:
            return frames.pack({"ok": getattr(self, f"_{method}")(frames.unpack(data))})
        except UserError as error:
            return frames.pack({"error": str(error)})

    def wait_until_exit(self) -> None:
        """Raises an error that says what happened when the server ends or is frozen."""
        self._is_started.wait()
        assert self._process is not None and self._health is not None
        while True:
            try:
                code = self._process.wait(self._health.pause)
                raise ServerLost(f"vLLM {_ending(code)}. {self._last_error()}")
            except subprocess.TimeoutExpired:
                if (problem := self._health.check()) is not None:
                    raise ServerLost(problem) from None

    def ping(self) -> None:
        """Returns at once, unless the process is stopped."""

    # ------------------------------------------------------------ methods that the controller calls

    def _start(self, a: Message) -> Message:
        """Start the server and wait until it answers; the result is its address."""
        self._check_nccl(a["transfer"]["nccl"])
        host = "127.0.0.1" if self._is_local else ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
        supervisor = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor.py")
        serve = [self._python, "-m", "vllm.entrypoints.cli.main", "serve", a["folder"]]
        place = ["--host", host, "--port", str(port)]
        place += ["--middleware", "trainyard_worker.authentication.AuthenticationMiddleware"]
        place += ["--worker-extension-cls", "trainyard_worker.worker_extension.WorkerExtension"]
        self._process = subprocess.Popen(
            [sys.executable, "-P", supervisor, *serve, *place, *a["options"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(a),
        )
        threading.Thread(target=self._read_output, daemon=True).start()
        address = f"http://{host}:{port}"
        self._wait_until_ready(address, a["timeout"])
        self._health = HealthCheck(address, a["key"], self._process.pid, a["silence"])
        self._is_started.set()
        return {"url": address}

    @staticmethod
    def _verify(a: Message) -> Message:
        """Check that a folder has the weights that were written."""
        check_manifest(a["folder"])
        return {}

    # ------------------------------------------------------------ the process

    def _check_nccl(self, theirs: str | None) -> None:
        """Raise an error if NCCL is not the version of the workers, which send weights over it; None if they do not."""
        if theirs is None:
            return
        command = [self._python, "-c", "import torch; print(torch.cuda.nccl.version())"]
        ours = subprocess.run(command, capture_output=True, check=False, text=True).stdout.strip() or "none"
        if ours != theirs:
            raise UserError(
                f"vLLM on the machine {socket.gethostname()} has NCCL {ours} and the workers, which send "
                f"it weights, have {theirs}. Install vLLM in the workers' Python (TRAINYARD_PYTHON), or let its "
                "servers share the workers' GPUs: actor_rollout_ref.rollout.nnodes=0."
            )

    def _environment(self, a: Message) -> dict[str, str]:
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"VLLM_SERVER_DEV_MODE": "1", "TRAINYARD_SERVER_KEY": a["key"], "PYTHONPATH": os.pathsep.join(paths)}
        transfer = {"TRAINYARD_WEIGHT_TRANSFER": json.dumps(a["transfer"])}
        interface = interface_of(ray.util.get_node_ip_address())
        gloo = {} if interface is None else {"GLOO_SOCKET_IFNAME": interface}
        return {**a["env"], **gloo, **os.environ, **own, **transfer, **self._shared()}

    def _shared(self) -> dict[str, str]:
        """The resources of the workers' node that it shares; Ray sets the variables for resources of its own."""
        if self._shared_gpus is None:
            return {}
        if self._shared_gpus:
            return {"CUDA_VISIBLE_DEVICES": ",".join(self._shared_gpus)}
        return {"OMP_NUM_THREADS": str(os.cpu_count())}  # Ray gives an actor without CPUs one thread

    def _read_output(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            self._output.append(line.decode(errors="replace").rstrip())

    def _wait_until_ready(self, address: str, timeout: float) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout
        where = f"vLLM on the machine {socket.gethostname()}"
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                time.sleep(0.2)  # until its last output is read
                raise UserError(f"{where} {_ending(code)} while it started. {self._last_error()}")
            try:
                with DIRECT.open(f"{address}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.25)
        assert self._process.stdin is not None
        self._process.stdin.close()
        raise UserError(
            f"{where} did not start within {timeout:.0f} s (trainer.ray_wait_register_center_timeout). "
            f"{self._last_error()}"
        )

    def _last_error(self) -> str:
        """The line of its output that most likely says what went wrong."""
        lines = [_PREFIX.sub("", line).strip() for line in self._output if " WARNING " not in line]
        # An error in one of its processes ends the others, whose messages only refer to it.
        causes = [line for line in lines if _ERROR.match(line) and "root cause" not in line]
        errors = [line for line in lines if "Error" in line]
        last = (causes or errors or [line for line in lines if line] or ["nothing"])[-1]
        return f"Its last message was: {last[:500]}"


def _ending(code: int) -> str:
    """How the supervisor ended, or the command by the exit code that the supervisor passes on."""
    number = -code if code < 0 else code - 128
    return f"was ended by signal {number}" if number > 0 else f"ended with exit code {code}"
