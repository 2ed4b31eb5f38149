#!/usr/bin/env bash
# PPO that samples from another process: `trainyard serve` gets the weights after each update, and rollout correction
# makes up for what its log-probs differ. Save, resume, and a reward function of the user. Takes seconds with the model it makes.
#
#   examples/e2e/rollout-server.sh
#   MODEL=… DATA=… examples/e2e/rollout-server.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"${launch[@]}" serve "$MODEL" --port=0 --allow-reload >"$work/serve.log" 2>&1 &
server=$!
until url=$(grep -o -m1 'http://127[^/]*' "$work/serve.log"); do
  kill -0 "$server" || fail "the server has ended: $(cat "$work/serve.log")"
  sleep 0.1
done
echo "ok: a server is there: $url"

remote=("actor_rollout_ref.rollout.base_url=[$url/v1]" algorithm.rollout_correction.preset=decoupled_token_is)
check_resuming "${remote[@]}" ${reward[@]+"${reward[@]}"}
check "the actor learns at every step" metric unbroken actor/grad_norm above 0
check "samples are of the weights after each update: log-probs agree" \
  metric unbroken training/rollout_probs_diff_max below 0.001
check "also in the run that went on" metric resumed training/rollout_probs_diff_max below 0.001
check "importance weights are those of one policy" metric unbroken rollout_corr/rollout_is_mean below 1.01
check "no weights for the server are left behind" test ! -e "$work/unbroken/rollout_weights"
check_custom_function "${remote[@]}"
