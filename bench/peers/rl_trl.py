"""TRL's side of the RL bench: GRPOTrainer, one step per command.

Speaks the lines of `bench/side.ts`: the job as JSON first, then `step` as often as wanted, until the input ends.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from typing import Any

import datasets
import torch
import transformers
import trl
from side import answer, peak_bytes


def is_right(completion: str, truth: str) -> float:
    """The reward of `bench/addition.ts`."""
    _, sign, after = completion.partition("=")
    numbers = re.findall(r"\d+", after if sign else completion)
    if not numbers:
        return 0.0
    return float((numbers[0] if sign else numbers[-1]) == truth)


class Gate(transformers.TrainerCallback):
    """Lets a step begin when a line comes in, and answers when it has ended."""

    def __init__(self, out: Any, lengths: list[int], rewards: list[float]) -> None:
        self.out = out
        self.lengths = lengths
        self.rewards = rewards
        self.start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if not sys.stdin.readline():
            os._exit(0)
        self.lengths.clear()
        self.rewards.clear()
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        seconds = time.perf_counter() - self.start
        answer(
            self.out,
            {
                "seconds": seconds,
                "peakBytes": peak_bytes(),
                "meanLength": sum(self.lengths) / max(1, len(self.lengths)),
                "reward": sum(self.rewards) / max(1, len(self.rewards)),
            },
        )


def main() -> None:
    # What libraries print must not come between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    torch.set_num_threads(job["threads"])
    lengths: list[int] = []
    rewards: list[float] = []

    def reward(
        completions: list[Any], completion_ids: list[list[int]], truth: list[str], **_: Any
    ) -> list[float]:
        lengths.extend(len(ids) for ids in completion_ids)
        texts = [completion[0]["content"] for completion in completions]
        values = [is_right(text, own) for text, own in zip(texts, truth, strict=True)]
        rewards.extend(values)
        return values

    with open(job["data"], encoding="utf8") as lines:
        rows = [json.loads(line) for line in lines]
    data = datasets.Dataset.from_list(
        [
            {"prompt": row["prompt"], "truth": row["reward_model"]["ground_truth"]}
            for row in rows
        ]
    )
    length = {"min_new_tokens": job["newTokens"]} if job["isFull"] else {}
    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=job["prompts"] * job["samples"],
            num_generations=job["samples"],
            max_completion_length=job["newTokens"],
            max_steps=job["steps"],
            learning_rate=job["lr"],
            lr_scheduler_type="constant",
            beta=0.0,
            temperature=1.0,
            generation_kwargs=length,
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = trl.GRPOTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(
                job["folder"], dtype=torch.float32
            ),
            processing_class=transformers.AutoTokenizer.from_pretrained(job["folder"]),
            args=config,
            train_dataset=data,
            reward_funcs=[reward],
            callbacks=[Gate(out, lengths, rewards)],
        )
        answer(out, {"ready": {"trl": trl.__version__, "torch": torch.__version__}})
        trainer.train()


if __name__ == "__main__":
    main()
