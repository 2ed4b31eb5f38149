# Sourced by the scripts beside it: a model and prompts unless they are given, runs, and checks.
#
#   MODEL   a Hugging Face folder or hub id            DATA    a file of prompts
#   REWARD  a file with `compute_score`; without it the built-in scorer of the rows' data source
#   LR      the actor's learning rate; 1e-6, and 1e-2 for the small model
#   OUT     a folder that stays; without it everything is made in a temporary one and removed
#
# Arguments of a script are keys for all its runs.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
node=$root/node_modules/.bin/node
[ -x "$node" ] || node=node
launch=("$node" "$root/bin/trainyard.js")
keys=("$@")

work=${OUT:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ -n "${OUT:-}" ] || rm -rf "$work"
}
trap finish EXIT

if [ -z "${MODEL:-}" ] || [ -z "${DATA:-}" ]; then "$node" "$here/make-tiny-model.ts" "$work/tiny"; fi
[ -n "${DATA:-}" ] || REWARD=${REWARD:-$here/rewards.ts}
[ -n "${MODEL:-}" ] || LR=${LR:-1e-2}
MODEL=${MODEL:-$work/tiny/model}
DATA=${DATA:-$work/tiny/train.jsonl}
reward=()
[ -z "${REWARD:-}" ] || reward=("custom_reward_function.path='$REWARD'" reward_model.num_workers=1)

fail() {
  echo "not ok: $1" >&2
  exit 1
}

# check WHAT COMMAND…: say what holds, or end.
check() {
  local what=$1
  shift
  "$@" || fail "$what"
  echo "ok: $what"
}

# ppo RUN KEY=VALUE…: train; what it says goes to RUN.log, and is shown where it fails.
ppo() {
  local run=$1 code=0
  shift
  echo "    trainyard ppo … $*"
  "${launch[@]}" ppo "actor_rollout_ref.model.path='$MODEL'" "data.train_files='$DATA'" \
    data.train_batch_size=8 data.max_prompt_length=16 data.max_response_length=8 \
    actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.optim.lr="${LR:-1e-6}" algorithm.adv_estimator=gae \
    trainer.save_freq=2 trainer.logger=[console] "trainer.default_local_dir='$work/$run'" \
    ${keys[@]+"${keys[@]}"} "$@" >"$work/$run.log" 2>&1 || code=$?
  [ $code = 0 ] || cat "$work/$run.log" >&2
  return $code
}

metric() { "$node" "$here/metric.ts" "$work/$1" "${@:2}"; }

# Save, resume in the same folder, and compare with a run that was not stopped.
check_resuming() {
  check "two steps are taken" ppo resumed trainer.total_training_steps=2 "$@"
  check "the second is saved" test -f "$work/resumed/global_step_2/actor/model.safetensors"
  check "the same folder takes two more" ppo resumed trainer.total_training_steps=4 "$@"
  check "which resume from the checkpoint" grep -q "Resuming from .*/global_step_2" "$work/resumed.log"
  check "four steps are taken in one go" ppo unbroken trainer.total_training_steps=4 "$@"
}
check_same_weights() {
  check "both end with the same weights, byte for byte" \
    cmp -s "$work/resumed/global_step_4/actor/model.safetensors" "$work/unbroken/global_step_4/actor/model.safetensors"
}

# A function of one's own is called, and what it gives is what is learnt from.
check_custom_function() {
  check "a step is taken with a function of one's own" ppo custom trainer.total_training_steps=1 "$@" \
    "custom_reward_function.path='$here/rewards.ts'" custom_reward_function.name=congratulate
  check "it has said so" grep -q "Congratulations: your own reward function was called" "$work/custom.log"
  check "each response has the 0.1 that it gives" metric custom critic/score/max is 0.1
  check "and no other" metric custom critic/score/min is 0.1
}
