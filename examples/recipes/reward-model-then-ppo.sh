#!/usr/bin/env bash
# A reward model from preferences, then PPO against it (model-reward.ts), then the truth: how many sums are right.
#
#   examples/recipes/reward-model-then-ppo.sh                                   the whole run
#   examples/recipes/reward-model-then-ppo.sh trainer.total_training_steps=2    a smoke test: arguments are keys of both runs
#
# Expect `val/accuracy` of the reward model to be about 0.93, and `test_score` of the answers, the share of right sums, to be
# about 0.89 where it was 0.30, within two minutes on 2 cores. OUT names another folder for what it makes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-checkpoints/recipes/preferences}

npx node examples/recipes/make-pairs.ts "$out"
npx trainyard reward model.path=examples/quickstart/model data.train_files="$out/pairs.jsonl" data.val_size=400 \
  data.max_length=24 data.train_batch_size=128 optim.lr=5e-4 optim.lr_scheduler_type=cosine trainer.total_epochs=3 \
  trainer.default_local_dir="$out/reward" trainer.resume_mode=disable "$@"
npx trainyard export "$out/reward" --to "$out/model" --force
npx trainyard ppo examples/recipes/model-reward.ts reward_model.model.path="$out/model" \
  trainer.default_local_dir="$out/ppo" trainer.resume_mode=disable "$@"

npx trainyard export "$out/ppo" --to "$out/actor" --force
npx trainyard generate model.path="$out/actor" data.path=examples/quickstart/test.jsonl data.n_samples=1 \
  data.output_path="$out/answers.jsonl" rollout.temperature=0 rollout.prompt_length=16 rollout.response_length=6
npx trainyard eval data.path="$out/answers.jsonl" custom_reward_function.path=examples/recipes/right-sum.ts
