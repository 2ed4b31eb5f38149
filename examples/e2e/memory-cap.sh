#!/usr/bin/env bash
# PPO on one device that may not have more than MEMORY_MB: passes are cut small, so that memory does not grow with the
# batch. Save, resume, and a reward function of the user. Takes seconds with the model it makes.
#
#   examples/e2e/memory-cap.sh
#   MEMORY_MB=4000 MODEL=… DATA=… examples/e2e/memory-cap.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

limit=${MEMORY_MB:-500}
small=(
  actor_rollout_ref.actor.use_dynamic_bsz=true actor_rollout_ref.actor.ppo_max_token_len_per_gpu=64
  critic.ppo_max_token_len_per_gpu=64 actor_rollout_ref.rollout.max_num_seqs=8
)
launch=("$here/capped.sh" "$limit" "$node" "--max-old-space-size=$((limit / 2))" "$root/bin/trainyard.js")
check_resuming "${small[@]}" ${reward[@]+"${reward[@]}"}
check_same_weights
grep -h "had at most" "$work"/*.log | sed 's/^/    /' || true # the kernel, where it holds the cap, does not tell
check_custom_function "${small[@]}"

too_small() { ! "$here/capped.sh" 40 "$node" "$root/bin/trainyard.js" doctor >"$work/capped.log" 2>&1; }
check "a cap that is too small ends a program, so the cap is one" too_small
