"""torch's side of the train bench: Hugging Face transformers, one optimizer step per command.

Speaks the lines of `bench/side.ts`: the job as JSON first, then `step` as often as wanted, until the input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from side import answer, peak_bytes


def main() -> None:
    # What libraries print must not come between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    step = make_step(job)
    answer(
        out,
        {
            "ready": {
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            }
        },
    )
    for _ in sys.stdin:
        start = time.perf_counter()
        loss, grad_norm = step()
        seconds = time.perf_counter() - start
        answer(
            out,
            {
                "seconds": seconds,
                "loss": loss,
                "gradNorm": grad_norm,
                "peakBytes": peak_bytes(),
            },
        )


def make_step(job: dict[str, Any]) -> Callable[[], tuple[float, float]]:
    """Load the model; the function returned takes one step and gives the loss and the norm of the gradient."""
    torch.set_num_threads(job["threads"])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        job["folder"], dtype=torch.float32, attn_implementation="sdpa"
    )
    model.train()
    parameters = list(model.parameters())
    settings = job["optimizer"]
    optimizer = torch.optim.AdamW(
        parameters,
        lr=settings["lr"],
        betas=tuple(settings["betas"]),
        eps=settings["eps"],
        weight_decay=settings["weightDecay"],
    )
    forward = torch.compile(model) if job["compile"] else model
    ids = torch.tensor(job["rows"])

    def step() -> tuple[float, float]:
        loss = forward(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, settings["maxNorm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item(), norm.item()

    return step


if __name__ == "__main__":
    main()
