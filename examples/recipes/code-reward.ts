// GRPO with a sandbox: an answer is any JavaScript expression; it is run, and is right if it prints the sum.
//
//   npx trainyard ppo examples/recipes/code-reward.ts
//
// Expect `val-core/sums/acc/mean@1` to rise from 0.30 to about 0.95 in 40 steps, within a minute on 2 cores.
//
// Rows that hold their own test cases need no function: docs/code-rewards.md.
import { codeScorer, defineConfig, openSandbox } from "trainyard";
import grpo from "./grpo.ts";

const openScorer = async () => codeScorer(await openSandbox());
let scorer: ReturnType<typeof openScorer> | undefined; // one for each of the processes that score

export default defineConfig({
  ...grpo,
  custom_reward_function: async (sample) => {
    scorer ??= openScorer();
    const score = await scorer;
    const groundTruth = { language: "javascript", inputs: [""], outputs: [sample.groundTruth] };
    return score({ ...sample, response: `console.log(${sample.response})`, groundTruth });
  },
  trainer: { ...grpo.trainer, experiment_name: "code-reward" },
});
