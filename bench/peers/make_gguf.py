"""Write a Llama checkpoint as a GGUF file, in float32 or with its matrices as Q8_0: FOLDER FILE f32|q8_0.

The file has no vocabulary: the bench speaks in token ids.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def main(folder: Path, file: Path, kind: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        raise SystemExit(f"{folder} is a {config['model_type']} model; only llama is written here")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            add(writer, name, tensor.astype(np.float32), kind, {"q_proj": heads, "k_proj": kv_heads})
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer: gguf.GGUFWriter, name: str, tensor: np.ndarray, kind: str, heads: dict[str, int]) -> None:
    for projection, count in heads.items():
        # llama.cpp turns neighbouring pairs, Hugging Face the two halves of a head.
        if projection in name:
            shape = (count, 2, tensor.shape[0] // count // 2, *tensor.shape[1:])
            tensor = tensor.reshape(shape).swapaxes(1, 2).reshape(tensor.shape)
    own = own_name(name)
    if own is None:
        return
    if kind == "q8_0" and tensor.ndim == 2:
        q8 = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(own, gguf.quants.quantize(tensor, q8), raw_dtype=q8)
    else:
        writer.add_tensor(own, tensor)


def own_name(name: str) -> str | None:
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    if not name.startswith("model.layers."):
        return None
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
