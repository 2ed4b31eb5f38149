import { describe, expect, test } from "vitest";
import { parseOverride } from "../../config/overrides.ts";
import { ppoSchema } from "../../config/ppo/schema.ts";
import { resolve } from "../../config/resolve.ts";
import { UserError } from "../../util/errors.ts";
import { type Best, betterBest, checkBest } from "./best.ts";

const name = "val-core/math/acc/mean@1";

describe("of validations in their order the best is", () => {
  const cases: readonly (readonly [what: string, values: readonly number[], step: number | null])[] = [
    ["the highest", [0.1, 0.7, 0.3], 1],
    ["the first of equals", [0.5, 0.5, 0.5], 0],
    ["a negative one where all are", [-3, -1, -2], 1],
    ["none that is no number", [Number.NaN, 0.2, Number.NaN, Number.POSITIVE_INFINITY], 1],
    ["nothing where none is a number", [Number.NaN], null],
  ];
  test.each(cases)("%s", (_, values, step) => {
    let best: Best | null = null;
    for (const [at, value] of values.entries())
      best = betterBest(name, { step: at, metrics: { [name]: value }, best }) ?? best;
    expect(best).toEqual(step === null ? null : { metric: name, step, value: values[step] });
  });
});

test("a best by another metric is no measure for this one", () => {
  const best = { metric: "val-core/math/length", step: 3, value: 512 };
  expect(betterBest(name, { step: 4, metrics: { [name]: 0.1 }, best })).toEqual({ metric: name, step: 4, value: 0.1 });
});

describe("a metric that no validation measures", () => {
  const metrics = { [name]: 1, "val-core/code/acc/mean@1": 0, "val-aux/math/length/mean@1": 3 };
  const find = (metric: string) => () => betterBest(metric, { step: 0, metrics, best: null });

  test("is refused with the nearest one", () => {
    expect(find("val-core/maths/acc/mean@1")).toThrow(
      new UserError(
        "`trainer.best_metric` is val-core/maths/acc/mean@1, which the validation does not measure. " +
          "Nearest: `val-core/math/acc/mean@1`, `val-core/code/acc/mean@1`.",
      ),
    );
  });

  test("and is near none is refused with the main ones", () => {
    expect(find("reward")).toThrow(
      /which the validation does not measure\. It measures: `val-core\/math\/acc\/mean@1`, `val-core\/code\/acc\/mean@1`\.$/,
    );
  });
});

describe("the best is looked for only where steps are validated", () => {
  const trainer = (...keys: readonly string[]) =>
    resolve(ppoSchema, [["data.train_files=a.jsonl", "actor_rollout_ref.model.path=m", ...keys].map(parseOverride)], {
      home: "/",
      env: {},
    }).config.trainer;
  const best = `trainer.best_metric=${name}`;
  const cases: readonly (readonly [keys: readonly string[], prompts: number, says: RegExp | null])[] = [
    [[best, "trainer.test_freq=5"], 4, null],
    [[], 0, null],
    [[best, "trainer.test_freq=5"], 0, /no step is validated: `data\.val_files` gives no prompt\. Name a file/],
    [[best], 4, /no step is validated: `trainer\.test_freq` is -1\. Set it/],
  ];
  test.each(cases)("%j with %d prompts", (keys, prompts, says) => {
    const check = () => checkBest(trainer(...keys), prompts);
    if (says === null) expect(check).not.toThrow();
    else expect(check).toThrow(says);
  });
});
