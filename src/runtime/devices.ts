/** The device that a session runs on, and the error when it cannot be used. */
import type { InferenceSession } from "onnxruntime-node";
import { messageOf, UserError } from "../util/errors.ts";

export const devices = ["cpu", "webgpu", "cuda"] as const;
export type Device = (typeof devices)[number];

export type SessionSettings = { readonly device: Device; readonly threads: number };

/**
 * Session options for our programs. The three optimizers that are switched off would undo the forms of products that
 * `graph/lower.ts` chose; equal nodes are shared already. Memory patterns are off because they hold the peak of every
 * shape seen (1.5 times the memory of a training step, no gain in time).
 */
export function sessionOptions({ device, threads }: SessionSettings): InferenceSession.SessionOptions {
  return {
    executionProviders: device === "cpu" ? ["cpu"] : [device, "cpu"],
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    executionMode: "sequential",
    graphOptimizationLevel: "all",
    enableMemPattern: false,
    enableCpuMemArena: true,
    logSeverityLevel: 4,
    extra: {
      session: { force_spinning_stop: "1" }, // between runs the cores are free for other work, such as the optimizer
      optimization: {
        disable_specified_optimizers:
          "MatmulTransposeFusion;GemmTransposeFusion;TransposeOptimizer;CommonSubexpressionElimination",
      },
    },
  };
}

/** The error for a session that could not be made on a device. */
export function explainDevice(device: Device, error: unknown): Error {
  if (device === "cpu") return error instanceof Error ? error : new Error(messageOf(error));
  const remedy =
    device === "cuda"
      ? "the CUDA build of onnxruntime-node and its libraries"
      : "a graphics driver (Vulkan, Metal or D3D12)";
  return new UserError(
    `The device \`${device}\` cannot be used here (${reasonOf(error)}). Set \`trainer.device=cpu\`, or install ${remedy}.`,
    { cause: error },
  );
}

/** onnxruntime's message, without the location in its source at the beginning. */
function reasonOf(error: unknown): string {
  const words = messageOf(error).replace(/^\/\S.* was false\. /s, "");
  return words.split("\n")[0]!.trim().replace(/\.$/, "");
}
