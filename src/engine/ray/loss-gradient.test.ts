import { afterAll, describe, expect, test } from "vitest";
import { actorDefaults, actorLoss } from "../../algos/losses/actor-loss.ts";
import { batchScalars } from "../../algos/losses/aggregate.ts";
import { criticDefaults, valueLoss } from "../../algos/losses/value-loss.ts";
import { mul, stopGradient, sum } from "../../graph/ops.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { Random } from "../../util/random.ts";
import type { HeadName, TokenLoss, TokenRow } from "../contract.ts";
import { layOut } from "./layout.ts";
import { type Counted, LossGradients } from "./loss-gradient.ts";

const runtime = new Runtime({ threads: 1 });
afterAll(() => runtime.close());
const losses = new LossGradients(runtime);

const random = new Random(1);
const rows: TokenRow[] = [5, 9, 4].map((length) => {
  const list = (scale: number, from = 0) => Array.from({ length }, () => from + random.normal(0, scale));
  const extra = {
    advantages: list(1),
    oldLogprobs: list(0.3, -2),
    refLogprobs: list(0.3, -2),
    rolloutWeights: list(0.1, 1),
    oldValues: list(1),
    returns: list(1),
  };
  return { ids: Int32Array.from({ length }, () => random.int(9)), mask: list(1).map((v) => Number(v > -0.5)), extra };
});
const scalars = batchScalars(
  rows.map(({ mask }) => Array.from(mask)),
  9,
);

const policy = actorLoss({ ...actorDefaults, entropy_coeff: 0.1, use_kl_loss: true }, { hasRolloutWeights: true });
const odd: TokenLoss = {
  key: "odd",
  heads: ["logprobs", "entropy", "sumPiSquared"],
  build: ({ logprobs, entropy, sumPiSquared, mask }) => ({
    loss: sum(mul(mul(logprobs!, sumPiSquared!), mask)),
    metrics: { seen: sum(stopGradient(entropy!)) },
  }),
};

describe.each<TokenLoss>([policy, valueLoss(criticDefaults), odd])("the derivative of a loss: $key", (loss) => {
  const block = layOut(rows, [2, 0, 1], { heads: loss.heads, vocabSize: 9 })!;
  const outputs = Object.fromEntries(
    loss.heads.map((head) => [head, Float32Array.from(block.owners, () => random.normal(-2, 0.5))]),
  ) as Partial<Record<HeadName, Float32Array>>; // the heads of the loss
  const run = (changed: Counted) => losses.of(loss, block, { rows, outputs: { ...outputs, ...changed }, scalars });

  test("is the derivative of the loss with respect to each output", async () => {
    const { gradients } = await run({});
    for (const head of Object.keys(gradients) as HeadName[]) {
      for (const i of block.owners.keys()) {
        const at = async (by: number) => {
          const values = outputs[head]!.slice();
          values[i]! += by;
          return (await run({ [head]: values })).metrics.loss!;
        };
        const slope = ((await at(0.01)) - (await at(-0.01))) / 0.02;
        expect(Math.abs(gradients[head]![i]! - slope), `${head}, token ${i}`).toBeLessThan(2e-3);
      }
    }
  });

  test("is given for the heads that the loss depends on, and for no other", async () => {
    const gradHeads = await losses.gradHeads(loss);
    expect(gradHeads).toEqual(loss === odd ? ["logprobs", "sumPiSquared"] : loss.heads);
    expect(Object.keys((await run({})).gradients)).toEqual(gradHeads);
  });
});

test("a missing scalar of the loss is an error that names it", async () => {
  const block = layOut(rows, [0], { heads: policy.heads, vocabSize: 9 })!;
  const outputs = { logprobs: new Float32Array(block.owners.length), entropy: new Float32Array(block.owners.length) };
  await expect(losses.of(policy, block, { rows, outputs, scalars: {} })).rejects.toThrow(
    /needs the number batch_tokens/,
  );
});
