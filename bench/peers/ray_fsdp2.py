"""The ray bench's peer: the same training step as one plain script of torch. FSDP2 over gloo on two processes.

Speaks the lines of `bench/side.ts`: the job as JSON first, then `step` as often as wanted, until the input ends. The
first process reads them and tells the second.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from side import answer, peak_bytes
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

WORLD = 2


class Logprobs(nn.Module):
    """Log-probabilities of the tokens of `ids` [batch, time] but the first, under FSDP's root."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.model(input_ids=ids, use_cache=False).logits[:, :-1]
        return torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


class Trainer:
    """One rank's part of the loop."""

    def __init__(self, job: dict[str, Any], rank: int, address: str) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=WORLD)
        mesh = init_device_mesh("cpu", (WORLD,))
        model = transformers.AutoModelForCausalLM.from_pretrained(job["folder"], dtype=torch.float32)
        self.root = Logprobs(model)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.root, mesh=mesh)
        for part in self.root.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)
                part.set_force_sum_reduction_for_comms(True)
        self.settings = job["optimizer"]
        self.optimizer = torch.optim.AdamW(
            self.root.parameters(),
            lr=self.settings["lr"],
            betas=tuple(self.settings["betas"]),
            eps=self.settings["eps"],
            weight_decay=self.settings["weightDecay"],
            foreach=True,
        )
        rows = torch.tensor(job["rows"])
        self.count = rows[:, 1:].numel()
        self.batches = rows[rank::WORLD].split(job["microRows"])

    def step(self) -> tuple[float, float]:
        total = torch.zeros(())
        for ids in self.batches:
            loss = -self.root(ids).sum() / self.count
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(self.root.parameters(), self.settings["maxNorm"]).full_tensor()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        dist.all_reduce(total)
        return total.item(), norm.item()


def follow(job: dict[str, Any], address: str) -> None:
    """The second process: a step whenever the first one begins one."""
    trainer = Trainer(job, 1, address)
    while True:
        goes_on = torch.zeros(1)
        dist.broadcast(goes_on, 0)
        if not goes_on.item():
            return
        trainer.step()


def main() -> None:
    # What libraries print must not come between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    other = mp.get_context("spawn").Process(target=follow, args=(job, address), daemon=True)
    other.start()
    trainer = Trainer(job, 0, address)
    answer(out, {"ready": {"torch": torch.__version__, "transformers": transformers.__version__}})
    for _ in sys.stdin:
        start = time.perf_counter()
        dist.broadcast(torch.ones(1), 0)
        loss, norm = trainer.step()
        seconds = time.perf_counter() - start
        answer(out, {"seconds": seconds, "loss": loss, "gradNorm": norm, "peakBytes": peak_bytes()})
    dist.broadcast(torch.zeros(1), 0)
    other.join(10)


if __name__ == "__main__":
    main()
