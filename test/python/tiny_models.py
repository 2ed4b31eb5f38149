"""Makes small random models of any family of transformers, each with what transformers computes.

    python tiny_models.py OUT < configs.json

The request is {"name": {"model_type": ..., ...}}. Each folder of OUT holds a language model and
reference.safetensors, as make_reference.py writes it.
"""

import json
import sys
from pathlib import Path

import torch
from make_reference import Case, language_reference
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

TIME = 13


def make(folder: Path, model_type: str, **options: object) -> None:
    """Write one folder."""
    torch.manual_seed(1)
    config = AutoConfig.for_model(model_type, **options)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(3, config.vocab_size, (2, TIME))
    reference = language_reference(Case(model_type), folder, ids)
    save_file({key: value.contiguous() for key, value in reference.items()}, folder / "reference.safetensors")


if __name__ == "__main__":
    for name, given in json.load(sys.stdin).items():
        make(Path(sys.argv[1]) / name, **given)
