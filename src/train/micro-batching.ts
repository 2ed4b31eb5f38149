import type { SftConfig } from "../config/sft/schema.ts";
import type { MicroBatching } from "../engine/contract.ts";

type MicroBatchKeys = Pick<SftConfig["data"], "use_dynamic_bsz" | "max_token_len_per_gpu" | "micro_batch_size_per_gpu">;

/** How the keys under `data.` cut a batch of a supervised run into micro-batches. */
export function microOf(data: MicroBatchKeys): MicroBatching {
  return data.use_dynamic_bsz ? { maxTokens: data.max_token_len_per_gpu } : { rows: data.micro_batch_size_per_gpu };
}
