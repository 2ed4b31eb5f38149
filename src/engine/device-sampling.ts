/**
 * Which models can be sampled from on a device.
 *
 * Decoding is one operation per layer, onnxruntime's GroupQueryAttention. On WebGPU it ignores two of its settings: the
 * cap of the scores, and the positions of the tokens (it counts them from the length, so it always reads the first
 * table of rotations). Results would be wrong without an error, so such models are refused before anything is sampled.
 * Training is not affected: it computes attention from smaller operations.
 */
import { type ModelConfig, positionRegime, positionsOf } from "../models/config.ts";
import type { Device } from "../runtime/devices.ts";
import { UserError } from "../util/errors.ts";

/** Refuse a model that would be sampled from wrongly; no sequence has more than `limit` tokens. */
export function checkSampling(config: ModelConfig, device: Device, limit = Number.POSITIVE_INFINITY): void {
  if (device !== "webgpu") return;
  const maxLength = Math.min(limit, config.maxPositions);
  const capped = config.layers.find(({ attention }) => attention.softcap !== null);
  if (capped !== undefined) {
    throw new UserError(
      `This ${config.family} model caps its attention scores at ${capped.attention.softcap} (\`attn_logit_softcapping\`), ` +
        "and onnxruntime ignores the cap when it samples on the device `webgpu`, so the responses would be wrong. " +
        `${WAY_OUT}.`,
    );
  }
  const longest = longestOfFirstRegime(config, maxLength);
  if (longest === maxLength) return;
  throw new UserError(
    `This ${config.family} model rotates positions differently in sequences of more than ${longest} tokens (\`rope_scaling\`), ` +
      `and sequences may have up to ${maxLength} tokens here. onnxruntime cannot mix both kinds when it samples on the ` +
      `device \`webgpu\`, so the responses would be wrong. ${WAY_OUT}, or let prompt and response together have at most ` +
      `${longest} tokens (\`actor_rollout_ref.rollout.max_model_len\`).`,
  );
}

const WAY_OUT = "Sample on another device (`trainer.device=cpu`)";

/** The greatest length up to `maxLength` whose rotations are those of a sequence of one token. */
function longestOfFirstRegime(config: ModelConfig, maxLength: number): number {
  const schemes = positionsOf(config);
  const first = positionRegime(schemes, 1);
  let [same, beyond] = [1, maxLength + 1];
  while (beyond - same > 1) {
    const middle = Math.floor((same + beyond) / 2);
    if (positionRegime(schemes, middle) === first) same = middle;
    else beyond = middle;
  }
  return same;
}
