"""llama.cpp's side of the rollout bench: its low-level batch, all prompts at once, one token per prompt and call.

The random numbers of a round are drawn before its clock starts. Speaks the lines of `bench/side.ts`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

import llama_cpp
import numpy as np
from side import answer, peak_bytes


def main() -> None:
    out = os.fdopen(os.dup(1), "w")  # what libraries print must not come between the answers
    os.dup2(2, 1)
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    prompts: list[list[int]] = job["prompts"]
    new_tokens: int = job["newTokens"]
    rows, length = len(prompts), len(prompts[0])
    context, vocabulary = open_context(job, rows * (length + new_tokens))
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(rows * length, 0, 1)
    generator = np.random.default_rng(0)
    answer(out, {"ready": {"llama-cpp-python": version("llama-cpp-python")}})
    for _ in sys.stdin:
        noise = generator.gumbel(size=(new_tokens, rows, vocabulary)).astype(np.float32)
        start = time.perf_counter()
        llama_cpp.llama_memory_clear(memory, False)
        drawn = np.empty((new_tokens, rows), dtype=np.int64)
        logprobs = np.empty((new_tokens, rows), dtype=np.float32)
        fill(batch, [(t, i, token, t == length - 1) for i, prompt in enumerate(prompts) for t, token in enumerate(prompt)])
        for step in range(new_tokens):
            if llama_cpp.llama_decode(context, batch) != 0:
                raise SystemExit("llama_decode did not succeed")
            logits = read_logits(context, batch, rows, vocabulary)
            ids = np.argmax(logits + noise[step], axis=1)
            largest = logits.max(axis=1, keepdims=True)
            total = np.log(np.exp(logits - largest).sum(axis=1)) + largest[:, 0]
            drawn[step] = ids
            logprobs[step] = logits[np.arange(rows), ids] - total
            fill(batch, [(length + step, i, int(token), True) for i, token in enumerate(ids)])
        seconds = time.perf_counter() - start
        answer(
            out,
            {
                "seconds": seconds,
                "peakBytes": peak_bytes(),
                "ids": drawn[:, 0].tolist(),
                "logprobs": [float(x) for x in logprobs[:, 0]],
            },
        )


def open_context(job: dict[str, Any], tokens: int) -> tuple[Any, int]:
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(job["file"].encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    rows = len(job["prompts"])
    params.n_ctx = tokens
    params.n_seq_max = rows
    params.n_batch = params.n_ubatch = rows * len(job["prompts"][0])
    params.n_threads = params.n_threads_batch = job["threads"]
    params.type_k = params.type_v = 0  # float32, as on the other sides
    params.kv_unified = False  # each sequence attends to its own tokens alone: the faster of the two
    context = llama_cpp.llama_init_from_model(model, params)
    return context, llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))


def fill(batch: Any, tokens: list[tuple[int, int, int, bool]]) -> None:
    """A batch of tokens: position, sequence, id, and whether the logits after it are wanted."""
    batch.n_tokens = len(tokens)
    for j, (position, sequence, token, is_wanted) in enumerate(tokens):
        batch.token[j] = token
        batch.pos[j] = position
        batch.n_seq_id[j] = 1
        batch.seq_id[j][0] = sequence
        batch.logits[j] = is_wanted


def read_logits(context: Any, batch: Any, rows: int, vocabulary: int) -> np.ndarray:
    """The wanted logits lie one after the other, in the order of the batch."""
    flat = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape=(rows * vocabulary,))
    return flat.reshape(rows, vocabulary)


main()
