/**
 * The engine of a run, chosen by `trainer.engine`, and what happens when it is lost: the Ray engine's workers can be
 * killed, hang or run out of memory, and all they held is gone with them.
 *
 * `onEngine` runs a whole training run. When its engine is lost, it opens another one and launches the run again from the
 * last checkpoint that was saved, as if the process had been restarted; before the first save, from where the run began.
 */
import { poolsOf } from "../config/ray/pool.ts";
import { type EngineConfig, raySettings, workerCount } from "../config/ray/ray.ts";
import type { Engine } from "../engine/contract.ts";
import { EngineLost } from "../engine/lost.ts";
import { type AnyModelConfig, readAnyConfig, readConfig } from "../models/config.ts";
import type { ResumeMode } from "../run/checkpoint.ts";
import { UserError } from "../util/errors.ts";
import { counted } from "../util/format.ts";
import { clearStatus, info, warn } from "../util/log.ts";
import { thisMachine } from "../util/machine.ts";
import type { TrainContext } from "./context.ts";

/**
 * The engine that a config names. TRAINYARD_PYTHON is the Python of Ray's workers, TRAINYARD_VLLM_PYTHON that of vLLM,
 * RAY_ADDRESS a cluster to join.
 */
async function openEngine(
  config: EngineConfig,
  { env, signal }: Pick<TrainContext, "env" | "signal">,
  isReplacing = false,
): Promise<Engine> {
  const { engine, device, threads } = config.trainer;
  if (engine === "embedded") {
    const { EmbeddedEngine } = await import("../engine/embedded/engine.ts");
    return new EmbeddedEngine({ device, threads });
  }
  const { RayEngine } = await import("../engine/ray/engine.ts");
  const { TRAINYARD_PYTHON: python, TRAINYARD_VLLM_PYTHON: vllmPython, RAY_ADDRESS: address } = env;
  const isJoining = address !== undefined && address !== "";
  const settings = raySettings(config, { cores: thisMachine().cores, isJoining });
  const where = settings.address ?? (isJoining ? address : null);
  const further = Object.entries(poolsOf(config)).map(
    ([pool, { nodes, perNode }]) => `, ${nodes * perNode} for the ${pool},`,
  );
  const cluster = where === null ? "a new Ray cluster" : `the Ray cluster at ${where}`;
  info(`Starting ${counted(workerCount(config), "worker")}${further.join("")} in ${cluster}.`);
  return new RayEngine({
    ...settings,
    isReplacing,
    signal,
    ...(where !== null && { address: where }),
    ...(python !== undefined && python !== "" && { python }),
    ...(vllmPython !== undefined && vllmPython !== "" && { vllmPython }),
    onProgress: info,
  });
}

/** The config.json of a model that a run is to train, or why it cannot: on Ray all of transformers' families can be. */
export function readTrainable({ trainer }: Pick<EngineConfig, "trainer">, folder: string): Promise<AnyModelConfig> {
  return trainer.engine === "ray" ? readAnyConfig(folder) : readConfig(folder);
}

/** One launch of a run: the engine it runs on, and where it starts. */
export type Launch = {
  readonly engine: Engine;
  readonly resumeMode: ResumeMode;
  /** Called when a checkpoint has been saved. */
  readonly onSaved: () => void;
};

type RunConfig = EngineConfig & { readonly trainer: { readonly resume_mode: ResumeMode } };

/** Run on the engine that a config names; if the engine is lost, launch again, up to `trainer.max_restarts` times. */
export async function onEngine(
  config: RunConfig,
  context: TrainContext,
  work: (launch: Launch) => Promise<void>,
): Promise<void> {
  const { max_restarts: most = 0, resume_mode: resumeMode } = config.trainer;
  let hasSaved = false;
  const onSaved = () => {
    hasSaved = true;
  };
  for (let restarts = 0; ; restarts++) {
    const engine = await openEngine(config, context, restarts > 0);
    try {
      return await work({ engine, resumeMode: hasSaved ? "auto" : resumeMode, onSaved });
    } catch (error) {
      const lost = lostBehind(error);
      if (lost === null) throw error;
      clearStatus();
      if (restarts >= most || context.signal.aborted) throw givenUp(lost, restarts, error);
      const from = hasSaved ? "the last checkpoint" : "where the run began";
      warn(`${lost.message} New workers resume from ${from} (restart ${restarts + 1} of ${most}).`);
    } finally {
      clearStatus();
      await engine.close();
    }
  }
}

function givenUp(lost: EngineLost, restarts: number, cause: unknown): UserError {
  const after = restarts === 0 ? "" : ` That was after ${counted(restarts, "restart")} (\`trainer.max_restarts\`).`;
  return new UserError(
    `${lost.message}${after} The same command resumes from the last checkpoint, or starts again if there is none.`,
    { cause },
  );
}

/** The loss of an engine that an error is about, however it was wrapped on its way. */
export function lostBehind(error: unknown): EngineLost | null {
  if (error instanceof EngineLost) return error;
  if (!(error instanceof Error)) return null;
  // What `await using` makes of an error and another one on the way out.
  const both = "suppressed" in error && "error" in error ? [error.suppressed, error.error] : [];
  for (const inner of [error.cause, ...both]) {
    const lost = lostBehind(inner);
    if (lost !== null) return lost;
  }
  return null;
}
