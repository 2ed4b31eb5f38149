#!/usr/bin/env bash
# Fine-tuning first, then RL: the model of the quickstart imitates right answers to 64 sums, then GRPO takes it further.
#
#   examples/recipes/sft-then-rl.sh                                   the whole run
#   examples/recipes/sft-then-rl.sh trainer.total_training_steps=2    a smoke test: arguments are keys of both runs
#
# Expect `val-core/sums/acc/mean@1` to begin at 0.66, where it was 0.30 without the first run, and to rise to about 0.95,
# within a minute on 2 cores.
# OUT names another folder for what it makes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-checkpoints/recipes/demonstrations}

npx node examples/recipes/make-demonstrations.ts "$out"
npx trainyard sft model.path=examples/quickstart/model data.train_files="$out/answers.jsonl" \
  data.messages_key=messages data.train_batch_size=16 optim.lr=5e-5 trainer.total_epochs=2 \
  trainer.default_local_dir="$out/sft" trainer.resume_mode=disable "$@"
npx trainyard export "$out/sft" --to "$out/model" --force
npx trainyard ppo examples/recipes/grpo.ts actor_rollout_ref.model.path="$out/model" \
  trainer.default_local_dir="$out/rl" trainer.resume_mode=disable "$@"
