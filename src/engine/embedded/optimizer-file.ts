/** What the optimizer remembers, as a file beside a checkpoint: the two moments of AdamW, and the number of steps. */
import { mkdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { ParameterSpec } from "../../models/config.ts";
import { openForReading, readHeader, readTensor, writeSafetensors } from "../../models/safetensors.ts";
import type { Vectors } from "../../runtime/vectors.ts";
import { UserError } from "../../util/errors.ts";

const OPTIMIZER_FILE = "optimizer.safetensors";

/** torch's names for the moments. */
const moments = [
  { vector: "first", prefix: "exp_avg." },
  { vector: "second", prefix: "exp_avg_sq." },
] as const;

/** Parameters and their vectors; frozen parameters have no moments and are left out. */
type Optimized = { readonly specs: readonly ParameterSpec[]; readonly vectors: Vectors };

const trained = (specs: readonly ParameterSpec[]) => specs.filter(({ isTrained }) => isTrained);

/** Write the moments and the number of steps taken. */
export async function saveOptimizerFile(dir: string, { specs, vectors }: Optimized, steps: number): Promise<void> {
  vectors.allocate("first");
  vectors.allocate("second");
  await mkdir(dir, { recursive: true });
  const tensors = moments.flatMap(({ vector, prefix }) =>
    trained(specs).map(({ name, shape }) => ({ name: prefix + name, shape, data: () => vectors.view(vector, name) })),
  );
  const metadata = { format: "pt", step: String(steps) };
  await writeSafetensors(join(dir, OPTIMIZER_FILE), tensors, { dtype: "F32", metadata });
}

/** Read the moments into the vectors; the result is the number of steps taken. */
export async function loadOptimizerFile(dir: string, { specs, vectors }: Optimized): Promise<number> {
  const path = join(dir, OPTIMIZER_FILE);
  await checkOwner(dir);
  const file = await openForReading(path);
  try {
    const { tensors, metadata } = await readHeader(file, path);
    const steps = Number(metadata.step);
    if (!Number.isSafeInteger(steps) || steps < 0)
      throw new UserError(`${path} does not say how many steps it has seen (\`step\`); use another checkpoint.`);
    for (const { vector, prefix } of moments) {
      vectors.allocate(vector);
      for (const { name, shape } of trained(specs)) {
        const info = tensors.get(prefix + name);
        if (info === undefined)
          throw new UserError(`${path} has no tensor \`${prefix + name}\`; it belongs to another model.`);
        if (`${info.shape}` !== `${shape}`)
          throw new UserError(
            `${path}: \`${prefix + name}\` is [${info.shape}] where this model has [${shape}]; it belongs to another model.`,
          );
        await readTensor(file, info, vectors.view(vector, name));
      }
    }
    return steps;
  } finally {
    await file.close();
  }
}

/** Workers of Ray write their parts of the moments in PyTorch's format, which only they can read. */
async function checkOwner(dir: string): Promise<void> {
  const isOfRay = await stat(join(dir, ".metadata")).then(
    () => true,
    () => false,
  );
  if (!isOfRay) return;
  throw new UserError(
    `${dir} holds the optimizer state of trainer.engine=ray, which the embedded engine cannot read. Continue with ` +
      `trainer.engine=ray, or start a run in another folder with the model ${dirname(dir)}: its weights can be read.`,
  );
}
