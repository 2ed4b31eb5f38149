/**
 * Outputs written straight into our buffers.
 *
 * onnxruntime-node fills tensors given as fetches in place, and afterwards copies every output once more into fresh
 * memory for the result object. It converts outputs in the order of the model and throws at one that is not a tensor;
 * all fetched buffers are filled by then. So every model's first output is an empty sequence, it is fetched first, and
 * exactly that error is expected. If a release ends this, results can be copied (`copy`), which is slower.
 */
import type { InferenceSession, Tensor } from "onnxruntime-node";
import { SEQUENCE } from "../onnx/writer.ts";
import { messageOf } from "../util/errors.ts";

export type CopyMode = "zero-copy" | "copy";
type Feeds = Record<string, Tensor>;

/** The error of onnxruntime-node 1.30 at a sequence. */
export const EXPECTED_ERROR = "Non tensor type is temporarily not supported.";

/** Run, with every output written into the tensor given for it. */
export async function runInto(session: InferenceSession, feeds: Feeds, fetches: Feeds, mode: CopyMode): Promise<void> {
  if (mode === "zero-copy") {
    try {
      await session.run(feeds, { [SEQUENCE]: null, ...fetches });
    } catch (error) {
      if (messageOf(error) !== EXPECTED_ERROR) throw error;
    }
    return;
  }
  const results = await session.run(feeds, Object.keys(fetches));
  for (const [name, tensor] of Object.entries(fetches)) {
    const made = results[name]!.data as Float32Array; // the dtype is the fetch's own: both come from the program
    (tensor.data as Float32Array).set(made);
  }
}
