"""Makes test/fixtures/logits-more: small random models with what transformers computes.

    python make_reference.py OUT [NAME ...]

Each folder holds a model and reference.safetensors. Language models have what
`npm run parity` reads: input_ids, logits, logprobs, loss, grad.*, the left-padded
logits with their attention_mask, and eight greedy tokens. Models with a value or
reward head have the output of the head at every position, and the gradients of half
its mean square.

Weights are drawn large enough for every option to matter, and that is checked: a case
names options whose removal must move the outputs. Everything is computed in float32
from the saved checkpoint, whatever its dtype.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.modeling_auto import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

Options = Mapping[str, object]

MODELS = {
    "lm": AutoModelForCausalLM,
    "value": AutoModelForTokenClassification,
    "score": AutoModelForSequenceClassification,
}

VOCAB = 61

SIZES: Options = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Case:
    """A configuration; `without` are the options that take the point of it away."""

    family: str
    options: Options = field(default_factory=dict)
    without: Options | None = None
    head: str = "lm"
    time: int = 21
    dtype: torch.dtype = torch.float32


def rope(kind: str, **values: object) -> Options:
    """Rotary parameters in the spelling of transformers 5."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **values}}


PLAIN = rope("default")
FACTORS = {"short_factor": [1.0, 1.5, 2.0], "long_factor": [1.0, 3.0, 8.0]}
LONG = rope("longrope", factor=4.0, original_max_position_embeddings=16, **FACTORS)
# The sequence itself is short; padded to a multiple of four it would be long.
SHORT = rope("longrope", factor=4.0, original_max_position_embeddings=22, **FACTORS)
ONE_LABEL: Options = {"num_labels": 1}

CASES: Mapping[str, Case] = {
    "llama_yarn": Case(
        "llama", rope("yarn", factor=4.0, original_max_position_embeddings=16), PLAIN
    ),
    "llama_linear": Case("llama", rope("linear", factor=4.0), PLAIN, time=13),
    "llama_dynamic": Case(
        "llama", {**rope("dynamic", factor=2.0), "max_position_embeddings": 10}, PLAIN
    ),
    "llama_longrope_long": Case("llama", LONG, PLAIN),
    "llama_longrope_short": Case("llama", SHORT, PLAIN),
    "llama_biases": Case("llama", {"attention_bias": True, "mlp_bias": True}, time=13),
    "llama_head_dim": Case("llama", {"head_dim": 12}),
    "llama_mqa": Case("llama", {"num_key_value_heads": 1}),
    "llama_mha": Case("llama", {"num_key_value_heads": 4}, time=13),
    "llama_gelu": Case(
        "llama", {"hidden_act": "gelu"}, {"hidden_act": "silu"}, time=14
    ),
    "mistral_window": Case(
        "mistral", {"sliding_window": 5}, {"sliding_window": None}, time=22
    ),
    "mistral_f16": Case(
        "mistral", {"sliding_window": 9}, {"sliding_window": None}, dtype=torch.float16
    ),
    "qwen2_window": Case(
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
        {"use_sliding_window": False, "layer_types": None},
        time=22,
    ),
    "qwen3_tied": Case(
        "qwen3", {"tie_word_embeddings": True, "head_dim": 16, "intermediate_size": 28}
    ),
    "qwen3_biases_bf16": Case(
        "qwen3", {"attention_bias": True}, time=13, dtype=torch.bfloat16
    ),
    "gemma_mqa": Case("gemma", {"num_key_value_heads": 1, "head_dim": 16}),
    "gemma2_caps": Case(
        "gemma2",
        {
            "sliding_window": 5,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
            "query_pre_attn_scalar": 2,
        },
        {"attn_logit_softcapping": None},
        time=22,
    ),
    "gemma2_window_bf16": Case(
        "gemma2",
        {"sliding_window": 4, "num_key_value_heads": 1},
        {"sliding_window": 64},
        dtype=torch.bfloat16,
    ),
    "llama_value": Case("llama", ONE_LABEL, head="value"),
    "llama_score": Case("llama", ONE_LABEL, head="score", time=13),
    "qwen2_value": Case(
        "qwen2", ONE_LABEL, head="value", time=13, dtype=torch.bfloat16
    ),
    "qwen2_score": Case("qwen2", ONE_LABEL, head="score"),
}


def config_of(case: Case, options: Options) -> PreTrainedConfig:
    """A tiny configuration of the family."""
    return AutoConfig.for_model(case.family, **{**SIZES, **options})


def draw_weights(model: PreTrainedModel, generator: torch.Generator) -> None:
    """Layers have outputs of spread one; no norm or bias is at its neutral value."""
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if "norm" in name:
            weight.data.add_(noise, alpha=0.2)
        elif weight.dim() == 1:
            weight.data.copy_(noise * 0.3)
        elif "embed" in name:
            weight.data.copy_(
                noise * (0.6 if "gemma" in model.config.model_type else 1.0)
            )
        elif "lm_head" in name:
            weight.data.copy_(noise * 0.4)
        else:
            weight.data.copy_(noise * 1.5 / weight.shape[1] ** 0.5)


def load(
    case: Case, folder: Path, config: PreTrainedConfig | None = None
) -> PreTrainedModel:
    """The saved model, afresh: dynamic rope remembers the longest sequence it saw."""
    return (
        MODELS[case.head]
        .from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation="eager"
        )
        .eval()
    )


@torch.no_grad()
def left_padded(
    case: Case, folder: Path, ids: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Row by row: the length dynamic rope sees is the row's own. 0 at padding."""
    rows = []
    for row, valid in zip(ids, mask, strict=True):
        start = int((valid == 0).sum())
        positions = (valid.cumsum(0) - 1).clamp(min=0)[None]
        made = load(case, folder)(
            row[None], attention_mask=valid[None], position_ids=positions
        )
        made.logits[:, :start] = 0
        rows.append(made.logits)
    return torch.cat(rows)


@torch.no_grad()
def greedy(case: Case, folder: Path, prompt: torch.Tensor, count: int) -> torch.Tensor:
    """The next tokens of largest logit, each from a whole forward pass."""
    model = load(case, folder)
    ids = prompt
    for _ in range(count):
        chosen = model(ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, chosen], dim=1)
    return ids[:, -count:]


def gradients(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The gradients by parameter, as the reference calls them: by the names of a checkpoint."""
    grads = {name: weight.grad for name, weight in model.named_parameters()}
    known = {name: grad for name, grad in grads.items() if grad is not None}
    return {
        f"grad.{name}": grad
        for name, grad in revert_weight_conversion(model, known).items()
    }


def language_reference(
    case: Case, folder: Path, ids: torch.Tensor
) -> dict[str, torch.Tensor]:
    """What `npm run parity` compares."""
    model = load(case, folder)
    logits = model(ids, use_cache=False).logits
    logprobs = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[
        ..., 0
    ]
    loss = -logprobs.mean()
    loss.backward()
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "logits": logits.detach(),
        "logprobs": logprobs.detach(),
        "loss": loss.detach()[None],
        "logits_leftpad": left_padded(case, folder, ids, mask),
        "greedy8": greedy(case, folder, ids[:1], 8),
        **gradients(model),
    }


def head_reference(
    case: Case, folder: Path, ids: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The head at every position; a value's loss leaves the last one out."""
    model = load(case, folder)
    outputs = model.score(model.model(ids).last_hidden_state)[..., 0]
    counted = outputs if case.head == "score" else outputs[:, :-1]
    loss = counted.square().mean() / 2
    loss.backward()
    expected = outputs[:, -1:] if case.head == "score" else outputs[..., None]
    torch.testing.assert_close(model(ids).logits, expected)
    return {
        "input_ids": ids,
        "outputs": outputs.detach(),
        "loss": loss.detach()[None],
        **gradients(model),
    }


def check_that_it_matters(case: Case, folder: Path, ids: torch.Tensor) -> None:
    """Without its options the case must give other outputs."""
    if case.without is None:
        return
    changed = load(case, folder, config_of(case, {**case.options, **case.without}))
    with torch.no_grad():
        difference = (
            (changed(ids).logits - load(case, folder)(ids).logits).abs().max().item()
        )
    assert difference > 0.05, (
        f"{folder.name}: without {case.without} outputs move by {difference} only"
    )


def make(name: str, case: Case, out: Path) -> None:
    """Write one folder."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = MODELS[case.head].from_config(config_of(case, case.options))
    draw_weights(model, generator)
    folder = out / name
    model.to(case.dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(3, VOCAB, (2, case.time), generator=generator)
    check_that_it_matters(case, folder, ids)
    make_tensors = language_reference if case.head == "lm" else head_reference
    tensors = {
        key: value.contiguous()
        for key, value in make_tensors(case, folder, ids).items()
    }
    save_file(tensors, folder / "reference.safetensors")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size // 1000} KB")


def main(arguments: list[str]) -> None:
    """Write the folders that are named, or all."""
    out, *names = arguments
    for name in names or CASES:
        make(name, CASES[name], Path(out))


if __name__ == "__main__":
    main(sys.argv[1:])
