#!/usr/bin/env bash
# PPO with a function as the reward: save, resume, and a reward function of the user. Takes seconds with the model it makes.
#
#   examples/e2e/function-reward.sh
#   MODEL=Qwen/Qwen2.5-0.5B-Instruct DATA=gsm8k/train.parquet examples/e2e/function-reward.sh data.max_prompt_length=512
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

check_resuming ${reward[@]+"${reward[@]}"}
check_same_weights
check "the actor learns at every step" metric unbroken actor/grad_norm above 0
check "the critic learns at every step" metric unbroken critic/grad_norm above 0
check_custom_function
