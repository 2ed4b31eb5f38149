"""A worker: one process of a group that shares models. Each verb takes and gives one message.

Every worker gets every verb that touches shared parameters, in the same order and with the same number of passes;
gathering and summing are torch's. A forward pass that is to be learnt from is kept until its backward pass.
"""

from __future__ import annotations

import os
from collections import deque
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.tensor import DTensor

from . import checkpoint
from .folder import check_shared
from .laws import Memory, check_causal, find_memory
from .manifest import write_manifest
from .model import Asked, Sharding, TokenModel, describe, fsdp_modules, load_model
from .reading import Reader
from .refusal import NETWORK, Refusal
from .sampling import Sampler
from .transfer import Line, open_store

Message = dict[str, Any]


class Role:
    """One model, with what training and sampling from it need."""

    def __init__(self, model: TokenModel, sharding: Sharding, folder: str) -> None:
        self.model = model
        self.sharding = sharding
        self.config = checkpoint.read_config(folder)
        self.kept: dict[str, Tensor] = {}
        self.sampler: Sampler | None = None
        self.memory: Memory | None = None
        self._optimizer: torch.optim.AdamW | None = None
        self._is_gathered = False

    @property
    def optimizer(self) -> torch.optim.AdamW:
        """Made when it is first needed; its settings come with every step."""
        if self._optimizer is None:
            self._optimizer = torch.optim.AdamW(self.model.module.parameters(), lr=0.0, foreach=True)
            for parameter in self.model.module.parameters():
                moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
                self._optimizer.state[parameter] = {"step": torch.tensor(0.0), **moments}
        return self._optimizer

    def gather(self) -> None:
        """Have all parameters at hand until `scatter`, so that passes need no other worker."""
        if self._is_gathered:
            return
        for part in fsdp_modules(self.model):
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        self._is_gathered = True

    def scatter(self) -> None:
        """Keep only this worker's part again: what is still at hand would not follow a change of the weights."""
        for part in fsdp_modules(self.model):
            part.reshard()
            part.set_reshard_after_forward(self.sharding.reshards and not isinstance(part, TokenModel), recurse=False)
        self._is_gathered = False

    def ready(self) -> None:
        """Before a pass in which all workers take part."""
        if self._is_gathered:
            self.scatter()


class Worker:
    """What the shim calls, by name; `frames.py` says how messages travel."""

    def __init__(self) -> None:
        self._roles: dict[int, Role] = {}
        self._rank = 0
        self._device = torch.device("cpu")
        self._machine = ""
        self._store: dist.TCPStore | None = None
        self._line: Line | None = None

    # ------------------------------------------------------------ the group

    def join(self, a: Message) -> Message:
        """Become one of the group that meets at `address`."""
        self._rank = a["rank"]
        self._machine, _, _ = a["address"].rpartition(":")  # of the first worker
        if a["device"] == "cuda":
            self._device = torch.device("cuda", 0)  # the only one that Ray lets this process see
            torch.cuda.set_device(self._device)
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if a["device"] == "cuda" else "gloo",
                init_method=f"tcp://{a['address']}",
                rank=a["rank"],
                world_size=a["world"],
                timeout=timedelta(seconds=a["timeout"]),
            )
        except RuntimeError as error:  # as all of torch.distributed's are
            raise Refusal(
                f"Worker {a['rank']} on the machine {os.uname().nodename} does not reach the others, which meet at "
                f"{a['address']}: {' '.join(str(error).split())[:300]}. {NETWORK}"
            ) from error
        return {}

    def see(self, a: Message) -> Message:
        """Check that a folder is the one that the controller sees."""
        check_shared(a["folder"], a["mark"], self._rank)
        return {}

    # ------------------------------------------------------------ models

    def describe(self, a: Message) -> Message:
        """What the controller has to know of the model of a folder."""
        return describe(a["folder"])

    def load(self, a: Message) -> Message:
        """Open the model of a folder under the number `model`."""
        sharding = Sharding(**a["sharding"])
        model = load_model(a["folder"], a["head"], sharding, self._device, a.get("newHead"))
        role = Role(model, sharding, a["folder"])
        if model.kind == "lm":
            check_causal(model, self._device, sharding.dtype)
            role.scatter()
        self._roles[a["model"]] = role
        return {"parameters": sum(parameter.numel() for parameter in model.module.parameters())}

    def close(self, a: Message) -> Message:
        self._roles.pop(a["model"], None)
        return {}

    # ------------------------------------------------------------ passes

    def forward(self, a: Message) -> Message:
        """Outputs of the tokens at `positions`; those named in `learnt` wait for `backward`."""
        role = self._roles[a["model"]]
        role.ready()
        ids = self._tensor(a["ids"]).view(a["rows"], -1)
        positions = self._tensor(a["positions"])
        asked = Asked(tuple(a["heads"]), self._tensor(a["targets"]), a["temperature"])
        is_learnt = len(a["learnt"]) > 0
        role.model.train(is_learnt and role.sharding.checkpointing)
        with torch.set_grad_enabled(is_learnt):
            outputs = role.model(ids, positions, asked)
        role.kept = {head: outputs[head] for head in a["learnt"]}
        return {head: _floats(output) for head, output in outputs.items()}

    def backward(self, a: Message) -> Message:
        """Add the gradient of the kept pass, given the derivative by each of its outputs."""
        role = self._roles[a["model"]]
        outputs, role.kept = role.kept, {}
        grads = [torch.from_numpy(a["gradients"][head]).to(self._device) for head in outputs]
        torch.autograd.backward(list(outputs.values()), grads)
        return {}

    def step(self, a: Message) -> Message:
        """Clip and update, or leave everything as it is where the norm is not finite; then forget the gradient."""
        role = self._role(a)
        optimizer = role.optimizer
        parameters = list(role.model.module.parameters())
        for parameter in parameters:
            if parameter.grad is None:  # no output led to it, which is a gradient of zero
                parameter.grad = torch.zeros_like(parameter)
        norm = torch.nn.utils.clip_grad_norm_(parameters, a["maxNorm"], foreach=True)
        size = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        if np.isfinite(size):
            settings = {"lr": a["lr"], "betas": tuple(a["betas"]), "eps": a["eps"], "weight_decay": a["weightDecay"]}
            optimizer.param_groups[0].update(settings)
            optimizer.step()
            self._forget(role)
        optimizer.zero_grad(set_to_none=True)
        return {"gradNorm": size}

    # ------------------------------------------------------------ files

    def save(self, a: Message) -> Message:
        unties: bool = a.get("isUntied", False)
        role = self._role(a)
        if a["writesConfig"] and self._rank == 0:
            checkpoint.save_config(role.model, role.config, a["folder"], a["format"], unties)
        checkpoint.save_weights(role.model, a["folder"], a["format"], self._rank == 0, unties)
        return {}

    def note(self, a: Message) -> Message:
        """Write down what a folder of weights consists of, for servers on other machines."""
        if self._rank == 0:
            write_manifest(a["folder"])
        return {}

    def take(self, a: Message) -> Message:
        """Take over the weights of another folder."""
        role = self._role(a)
        checkpoint.take_weights(role.model, load_model(a["folder"], role.model.kind, role.sharding, self._device))
        self._forget(role)
        return {}

    def save_optimizer(self, a: Message) -> Message:
        role = self._role(a)
        checkpoint.save_optimizer(role.model, role.optimizer, a["folder"])
        return {}

    def load_optimizer(self, a: Message) -> Message:
        role = self._role(a)
        checkpoint.load_optimizer(role.model, role.optimizer, a["folder"])
        return {}

    # ------------------------------------------------------------ servers

    def invite(self, a: Message) -> Message:
        """Say where servers find the first worker, which sends them weights."""
        if self._rank > 0:
            return {}
        self._store = open_store(self._machine, a["timeout"])
        nccl = str(torch.cuda.nccl.version()) if a["device"] == "cuda" else None
        return {"address": f"{self._machine}:{self._store.port}", "nccl": nccl}

    def send(self, a: Message) -> Message:
        """Give the servers the weights as they are, when all of them are receiving."""
        device = self._device if a["device"] == "cuda" else torch.device("cpu")
        pieces = checkpoint.stream_weights(self._role(a).model, a["format"], device, self._rank == 0)
        if self._rank > 0:
            deque(pieces, maxlen=0)  # it gives its parts
            return {}
        if self._line is None:
            assert self._store is not None, "servers are invited before they are sent anything"
            self._line = Line(self._store, 0, a["world"], device, a["timeout"])
        self._line.send(pieces)
        return {}

    # ------------------------------------------------------------ sampling

    def prepare(self, a: Message) -> Message:
        """Find out how the model is drawn from, and what that takes; before the first sample."""
        role = self._roles[a["model"]]
        role.gather()
        role.model.eval()
        role.memory = memory = find_memory(role.model, self._device, role.sharding.dtype)
        has_cache = memory.kind is not None
        return {"hasCache": has_cache, "why": memory.why, "perToken": memory.per_token, "perRow": memory.per_row}

    def sample(self, a: Message) -> Message:
        """Some more tokens for each of this worker's sequences. When all workers are idle, give the memory back."""
        role = self._roles[a["model"]]
        if a["isIdle"]:
            role.sampler = None
            role.scatter()
            return {}
        role.gather()
        role.model.eval()
        if role.sampler is None:
            assert role.memory is not None, "a model is prepared before it is drawn from"
            role.sampler = Sampler(Reader(role.model, self._device), role.memory.kind)
        return role.sampler.go_on(a)

    # ------------------------------------------------------------ small things

    def _role(self, a: Message) -> Role:
        role = self._roles[a["model"]]
        role.scatter()
        return role

    @staticmethod
    def _forget(role: Role) -> None:
        if role.sampler is not None:
            role.sampler.forget()

    def _tensor(self, values: NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(values).to(self._device, torch.int64)


def _floats(output: Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = output.detach().to("cpu", torch.float32).numpy()
    return values
