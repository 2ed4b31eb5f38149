#!/usr/bin/env bash
# PPO with a reward model (REWARD_MODEL: a sequence classifier with one label): save, resume, and a reward function of the user
# in the model's place. Takes seconds with the models it makes.
#
#   examples/e2e/model-reward.sh
#   MODEL=… DATA=… REWARD_MODEL=… examples/e2e/model-reward.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -n "${REWARD_MODEL:-}" ] || [ -d "$work/tiny" ] || fail "REWARD_MODEL names the reward model"
model=(reward_model.enable=true "reward_model.model.path='${REWARD_MODEL:-$work/tiny/reward-model}'")
check_resuming "${model[@]}"
check_same_weights
check "the actor learns at every step" metric unbroken actor/grad_norm above 0
check "scores differ, so the model has read the responses" metric unbroken critic/advantages/max above 0
check_custom_function
