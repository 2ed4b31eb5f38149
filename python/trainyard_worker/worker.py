"""A worker: one process of a group that shares models. Each method takes one message and returns one.

Every call that needs sharded parameters goes to all workers, in the same order and with the same number of passes;
torch does the communication. The outputs of a forward pass with gradients are kept until its backward pass.
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
from .errors import NETWORK, UserError
from .manifest import write_manifest
from .model import OutputRequest, Sharding, TokenModel, describe, fsdp_modules, load_model
from .model_checks import SamplingCache, check_causal, choose_cache
from .model_runner import ModelRunner
from .sampler import Sampler
from .shared_folder import check_shared
from .weight_transfer import WeightTransferGroup, open_store

Message = dict[str, Any]


class Role:
    """One model, with its optimizer and sampler."""

    def __init__(self, model: TokenModel, sharding: Sharding, folder: str) -> None:
        self.model = model
        self.sharding = sharding
        self.config = checkpoint.read_config(folder)
        self.pending: dict[str, Tensor] = {}  # outputs that wait for their backward pass
        self.sampler: Sampler | None = None
        self.cache: SamplingCache | None = None
        self._optimizer: torch.optim.AdamW | None = None
        self._is_unsharded = False

    @property
    def optimizer(self) -> torch.optim.AdamW:
        """Created when it is first needed; its settings come with every step."""
        if self._optimizer is None:
            self._optimizer = torch.optim.AdamW(self.model.module.parameters(), lr=0.0, foreach=True)
            for parameter in self.model.module.parameters():
                moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
                self._optimizer.state[parameter] = {"step": torch.tensor(0.0), **moments}
        return self._optimizer

    def unshard(self) -> None:
        """All-gather the parameters and keep them until `reshard`, so that passes need no other worker."""
        if self._is_unsharded:
            return
        for part in fsdp_modules(self.model):
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        self._is_unsharded = True

    def reshard(self) -> None:
        """Keep only this worker's shards. Unsharded parameters would not follow a change of the weights."""
        for part in fsdp_modules(self.model):
            part.reshard()
            part.set_reshard_after_forward(self.sharding.reshards and not isinstance(part, TokenModel), recurse=False)
        self._is_unsharded = False

    def prepare_pass(self) -> None:
        """Call it before a pass in which all workers take part."""
        if self._is_unsharded:
            self.reshard()


class Worker:
    """Its public methods are called by the controller through the shim, by name; `frames.py` encodes the messages."""

    def __init__(self) -> None:
        self._roles: dict[int, Role] = {}
        self._rank = 0
        self._device = torch.device("cpu")
        self._machine = ""
        self._store: dist.TCPStore | None = None
        self._transfer: WeightTransferGroup | None = None

    # ------------------------------------------------------------ the group

    def join(self, a: Message) -> Message:
        """Join the process group at `address`."""
        self._rank = a["rank"]
        self._machine, _, _ = a["address"].rpartition(":")  # of the first worker
        if a["device"] == "cuda":
            self._device = torch.device("cuda", 0)  # Ray lets this process see one GPU only
            torch.cuda.set_device(self._device)
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if a["device"] == "cuda" else "gloo",
                init_method=f"tcp://{a['address']}",
                rank=a["rank"],
                world_size=a["world"],
                timeout=timedelta(seconds=a["timeout"]),
            )
        except RuntimeError as error:  # all errors of torch.distributed are
            raise UserError(
                f"Worker {a['rank']} on the machine {os.uname().nodename} cannot reach the others at "
                f"{a['address']}: {' '.join(str(error).split())[:300]}. {NETWORK}"
            ) from error
        return {}

    def check_folder(self, a: Message) -> Message:
        """Check that a folder is the same one as on the controller's machine."""
        check_shared(a["folder"], a["marker"], self._rank)
        return {}

    # ------------------------------------------------------------ models

    def describe(self, a: Message) -> Message:
        """What the controller needs to know about the model of a folder."""
        return describe(a["folder"])

    def load(self, a: Message) -> Message:
        """Load the model of a folder under the number `model`."""
        sharding = Sharding(**a["sharding"])
        model = load_model(a["folder"], a["head"], sharding, self._device, a.get("newHead"))
        role = Role(model, sharding, a["folder"])
        if model.kind == "lm":
            check_causal(model, self._device, sharding.dtype)
            role.reshard()
        self._roles[a["model"]] = role
        return {"parameters": sum(parameter.numel() for parameter in model.module.parameters())}

    def close(self, a: Message) -> Message:
        self._roles.pop(a["model"], None)
        return {}

    # ------------------------------------------------------------ passes

    def forward(self, a: Message) -> Message:
        """Outputs at `positions`; those in `gradHeads` are kept for `backward`."""
        role = self._roles[a["model"]]
        role.prepare_pass()
        ids = self._tensor(a["ids"]).view(a["rows"], -1)
        positions = self._tensor(a["positions"])
        request = OutputRequest(tuple(a["heads"]), self._tensor(a["targets"]), a["temperature"])
        has_gradient = len(a["gradHeads"]) > 0
        role.model.train(has_gradient and role.sharding.checkpointing)
        with torch.set_grad_enabled(has_gradient):
            outputs = role.model(ids, positions, request)
        role.pending = {head: outputs[head] for head in a["gradHeads"]}
        return {head: _floats(output) for head, output in outputs.items()}

    def backward(self, a: Message) -> Message:
        """Add the gradient of the last forward pass, given the derivative of the loss with respect to each output."""
        role = self._roles[a["model"]]
        outputs, role.pending = role.pending, {}
        grads = [torch.from_numpy(a["gradients"][head]).to(self._device) for head in outputs]
        torch.autograd.backward(list(outputs.values()), grads)
        return {}

    def step(self, a: Message) -> Message:
        """Clip and update; skip the update if the norm is not finite. Then clear the gradient."""
        role = self._role(a)
        optimizer = role.optimizer
        parameters = list(role.model.module.parameters())
        for parameter in parameters:
            if parameter.grad is None:  # no output depends on it, so its gradient is zero
                parameter.grad = torch.zeros_like(parameter)
        norm = torch.nn.utils.clip_grad_norm_(parameters, a["maxNorm"], foreach=True)
        size = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        if np.isfinite(size):
            settings = {"lr": a["lr"], "betas": tuple(a["betas"]), "eps": a["eps"], "weight_decay": a["weightDecay"]}
            optimizer.param_groups[0].update(settings)
            optimizer.step()
            self._clear_cache(role)
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

    def write_manifest(self, a: Message) -> Message:
        """Write the checksums of a folder of weights, for servers on other machines."""
        if self._rank == 0:
            write_manifest(a["folder"])
        return {}

    def load_weights(self, a: Message) -> Message:
        """Replace the weights by those of another folder."""
        role = self._role(a)
        checkpoint.copy_weights(role.model, load_model(a["folder"], role.model.kind, role.sharding, self._device))
        self._clear_cache(role)
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

    def open_transfer(self, a: Message) -> Message:
        """Open the store through which servers find the first worker, which sends them weights."""
        if self._rank > 0:
            return {}
        self._store = open_store(self._machine, a["timeout"])
        nccl = str(torch.cuda.nccl.version()) if a["device"] == "cuda" else None
        return {"address": f"{self._machine}:{self._store.port}", "nccl": nccl}

    def send_weights(self, a: Message) -> Message:
        """Send the current weights to the servers, when all of them are receiving."""
        device = self._device if a["device"] == "cuda" else torch.device("cpu")
        pieces = checkpoint.stream_weights(self._role(a).model, a["format"], device, self._rank == 0)
        if self._rank > 0:
            deque(pieces, maxlen=0)  # it takes part in gathering them
            return {}
        if self._transfer is None:
            assert self._store is not None, "`open_transfer` comes before `send_weights`"
            self._transfer = WeightTransferGroup(self._store, 0, a["world"], device, a["timeout"])
        self._transfer.send(pieces)
        return {}

    # ------------------------------------------------------------ sampling

    def prepare_sampling(self, a: Message) -> Message:
        """Choose the cache for sampling; returns its size. Called before the first sample."""
        role = self._roles[a["model"]]
        role.unshard()
        role.model.eval()
        role.cache = cache = choose_cache(role.model, self._device, role.sharding.dtype)
        has_cache = cache.kind is not None
        return {"hasCache": has_cache, "reason": cache.reason, "perToken": cache.per_token, "perRow": cache.per_row}

    def sample(self, a: Message) -> Message:
        """Sample some more tokens for each of this worker's sequences. Free the memory when all workers are idle."""
        role = self._roles[a["model"]]
        if a["isIdle"]:
            role.sampler = None
            role.reshard()
            return {}
        role.unshard()
        role.model.eval()
        if role.sampler is None:
            assert role.cache is not None, "`prepare_sampling` comes before `sample`"
            role.sampler = Sampler(ModelRunner(role.model, self._device), role.cache.kind)
        return role.sampler.run_round(a)

    # ------------------------------------------------------------ helpers

    def _role(self, a: Message) -> Role:
        role = self._roles[a["model"]]
        role.reshard()
        return role

    @staticmethod
    def _clear_cache(role: Role) -> None:
        if role.sampler is not None:
            role.sampler.clear_cache()

    def _tensor(self, values: NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(values).to(self._device, torch.int64)


def _floats(output: Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = output.detach().to("cpu", torch.float32).numpy()
    return values
