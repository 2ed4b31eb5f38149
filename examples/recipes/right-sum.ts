/** Whether a response is the sum that the row asks for. */
import { defineReward } from "trainyard/reward";

export const compute_score = defineReward(({ response, groundTruth }) => response === groundTruth);
