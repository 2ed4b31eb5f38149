"""What transformers makes of saved folders, in one process: the import is slow.

    python logits.py < request.json

The request is {"ids": [[...]], "folders": [...], "out": "file.safetensors"}. Tensor
`i` of the output holds the float32 logits of folder `i`, of the class that its
config.json names. A folder that transformers loads only in part is an error.
"""

import json
import sys

import torch
import transformers
from safetensors.torch import save_file


@torch.no_grad()
def logits_of(folder: str, ids: torch.Tensor) -> torch.Tensor:
    """The logits of a folder's own architecture; every tensor must be in its place."""
    config = transformers.AutoConfig.from_pretrained(folder)
    (architecture,) = config.architectures
    model, report = getattr(transformers, architecture).from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        output_loading_info=True,
    )
    problems = {kind: names for kind, names in report.items() if names}
    if problems:
        raise SystemExit(
            f"{folder} ({architecture}) is loaded only in part: {problems}"
        )
    return model.eval()(ids).logits.contiguous()


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    ids = torch.tensor(request["ids"])
    folders = enumerate(request["folders"])
    save_file({str(i): logits_of(folder, ids) for i, folder in folders}, request["out"])


if __name__ == "__main__":
    main()
