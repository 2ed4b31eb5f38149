"""Hugging Face's side of the rollout bench: `generate` of all prompts at once, with the log-probs of what was drawn.

Speaks the lines of `bench/side.ts`: the job as JSON first, then `step` as often as wanted, until the input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import transformers
from side import answer, peak_bytes


def main() -> None:
    out = os.fdopen(os.dup(1), "w")  # what libraries print must not come between the answers
    os.dup2(2, 1)
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    torch.set_num_threads(job["threads"])
    model = transformers.AutoModelForCausalLM.from_pretrained(job["folder"], dtype=torch.float32)
    model.eval()
    model.generation_config.eos_token_id = None  # every prompt goes on to the end
    prompts = torch.tensor(job["prompts"])
    new_tokens = job["newTokens"]
    settings = transformers.GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=new_tokens,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    answer(out, {"ready": {"torch": torch.__version__, "transformers": transformers.__version__}})
    for _ in sys.stdin:
        start = time.perf_counter()
        with torch.inference_mode():
            made = model.generate(prompts, attention_mask=torch.ones_like(prompts), generation_config=settings)
            ids = made.sequences[:, prompts.shape[1] :]
            columns = [
                row.log_softmax(-1).gather(1, ids[:, t : t + 1]) for t, row in enumerate(made.logits)
            ]
            logprobs = torch.cat(columns, dim=1)
        seconds = time.perf_counter() - start
        if ids.shape != (len(job["prompts"]), new_tokens):
            raise SystemExit(f"generate made {tuple(ids.shape)} tokens")
        answer(
            out,
            {
                "seconds": seconds,
                "peakBytes": peak_bytes(),
                "ids": ids[0].tolist(),
                "logprobs": logprobs[0].tolist(),
            },
        )


main()
