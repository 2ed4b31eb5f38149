"""What verl itself answers: reads cases from standard input, one JSON object per line, and writes one line each.

A case is a golden case without outputs: `function`, `version`, `inputs`. The outputs have the form of golden files.
An error of verl is `{"error": class}`, a number that is not finite is the text "not finite", and a case that takes
longer than a minute is `{"timeout": true}`. Tensors are float64, so a difference is one of formulas, not of rounding.
`fuzz.ts` starts this file with one version of verl and what it imports on PYTHONPATH.
"""

import ast
import contextlib
import json
import logging
import math
import os
import signal
import sys
import warnings
from functools import partial
from pathlib import Path

# ruff: noqa: E402
# Every answer is a line of standard output; what verl prints, also while it is imported, goes to standard error.
ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
warnings.filterwarnings("ignore")

import numpy as np
import torch
import transformers

# verl 0.7 imports a class that transformers 5 has under another name; nothing here uses it.
if not hasattr(transformers, "AutoModelForVision2Seq"):
    transformers.AutoModelForVision2Seq = transformers.AutoModelForImageTextToText

import verl
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo import core_algos, metric_utils, rollout_corr_helper
from verl.utils import reward_score, seqlen_balancing
from verl.utils.metric import reduce_metrics
from verl.utils.reward_score import (
    geo3k,
    gsm8k,
    math_dapo,
    math_reward,
    math_verify,
    prime_math,
    search_r1_like_qa_em,
)
from verl.utils.torch_functional import masked_mean
from verl.workers.config import ActorConfig, PolicyLossConfig

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
logging.disable(logging.CRITICAL)


def rows(value):
    return torch.tensor(value, dtype=torch.float64)


def labels(value):
    return np.array(value, dtype=object)


# ---------------------------------------------------------------- algorithms


def advantages(name, inputs, _version):
    made = {"token_level_rewards": rows, "response_mask": rows, "values": rows, "reward_baselines": rows}
    made |= {"old_log_probs": rows, "sum_pi_squared": rows, "rollout_is_weights": rows, "index": labels}
    made |= {"config": OmegaConf.create}
    components = inputs.get("reward_components")
    given = {key: made.get(key, lambda it: it)(value) for key, value in inputs.items() if key != "reward_components"}
    if components is not None:
        mask = given["response_mask"]
        given["non_tensor_batch"] = {key: np.array(value) for key, value in components.items()}
        attention = torch.cat([torch.ones(len(mask), 1), mask], dim=1).long()
        given["batch"] = {"prompts": torch.zeros(len(mask), 1), "attention_mask": attention}
    found, returns = core_algos.get_adv_estimator_fn(name)(**given)
    return {"advantages": found, "returns": returns}


def with_slope(values, loss_of):
    """A loss and its gradient, at a kink the slopes on both sides of it.

    At an edge of `clamp` and where the sides of `maximum` are equal, torch takes a mean, also where both sides have the
    same slope. Those are the places where the three gradients differ.
    """
    loss, slope = slope_at(rows(values), loss_of)
    _, below = slope_at(rows(values) - 1e-7, loss_of)
    _, above = slope_at(rows(values) + 1e-7, loss_of)
    low, high = torch.minimum(below, above), torch.maximum(below, above)
    spread = torch.maximum(high, slope) - torch.minimum(low, slope)
    return loss, marked(slope, spread > 1e-6 + 1e-5 * (low.abs() + high.abs()), low, high)


def slope_at(x, loss_of):
    torch.manual_seed(1)  # clip_cov drops the same tokens
    x = x.clone().requires_grad_()
    loss = loss_of(x)
    (slope,) = torch.autograd.grad(loss[0] if isinstance(loss, tuple) else loss, x, allow_unused=True)
    return loss, torch.zeros_like(x) if slope is None else slope


def marked(slope, is_kink, low, high):
    if slope.dim() == 0:
        return {"between": [low, high]} if is_kink else slope
    return [marked(*parts) for parts in zip(slope, is_kink, low, high, strict=True)]


def policy_loss(name, inputs, _version):
    config = dict(inputs["config"])
    policy = config.pop("policy_loss", {})
    if name == "bypass_mode":  # 0.7 has no field for the correction, and takes such a config too
        actor = OmegaConf.create({"clip_ratio_c": 3.0, "policy_loss": policy, **config})
    else:
        policy = PolicyLossConfig(**policy)
        actor = ActorConfig(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, policy_loss=policy, **config)
    is_reinforce = name.startswith("reinforce")
    compute = core_algos.compute_policy_loss_reinforce if is_reinforce else core_algos.get_policy_loss_fn(name)
    old, mask = rows(inputs["old_log_prob"]), rows(inputs["response_mask"])
    weights = inputs.get("rollout_is_weights")

    def in_mode(mode):
        drawn = {}
        with first_result(torch, "nonzero", drawn), first_result(torch, "randperm", drawn):
            (loss, metrics), slope = with_slope(
                inputs["log_prob"],
                lambda log_prob: compute(
                    **{"rollout_log_prob" if is_reinforce else "old_log_prob": old},
                    log_prob=log_prob,
                    advantages=rows(inputs["advantages"]),
                    response_mask=mask.clone(),
                    loss_agg_mode=mode,
                    config=actor,
                    rollout_is_weights=None if weights is None else rows(weights),
                ),
            )
        answer = {"loss": loss, "grad_log_prob": slope, "metrics": metrics}
        if name == "clip_cov":
            candidates = drawn["nonzero"]
            count = max(int(policy.clip_cov_ratio * mask.sum().item()), 1)
            dropped = candidates[drawn["randperm"][:count]] if len(candidates) > 0 else candidates
            answer |= {"candidates": candidates, "dropped": dropped}
        return answer

    return {mode: in_mode(mode) for mode in inputs["modes"]}


@contextlib.contextmanager
def first_result(module, name, results):
    """Keep the first result of a function while the body runs."""
    original = getattr(module, name)

    def recording(*args, **kwargs):
        result = original(*args, **kwargs)
        results.setdefault(name, result)
        return result

    setattr(module, name, recording)
    try:
        yield
    finally:
        setattr(module, name, original)


GLOBAL = ("dp_size", "batch_num_tokens", "global_batch_size", "loss_scale_factor")


def aggregated(inputs, _version):
    info = {key: inputs[key] for key in GLOBAL if key in inputs}
    mask = rows(inputs["loss_mask"])

    def in_mode(mode):
        loss, slope = with_slope(inputs["loss_mat"], lambda x: core_algos.agg_loss(x, mask, mode, **info))
        return {"loss": loss, "grad_loss_mat": slope}

    return {mode: in_mode(mode) for mode in inputs["modes"]}


def value_loss(inputs, _version):
    info = {key: inputs[key] for key in GLOBAL if key in inputs}
    returns, values, mask = (rows(inputs[key]) for key in ("returns", "values", "response_mask"))

    def in_mode(mode):
        (loss, fraction), slope = with_slope(
            inputs["vpreds"],
            lambda vpreds: core_algos.compute_value_loss(
                vpreds, returns, values, mask, inputs["cliprange_value"], mode, **info
            ),
        )
        return {"vf_loss": loss, "vf_clipfrac": fraction, "grad_vpreds": slope}

    return {mode: in_mode(mode) for mode in inputs["modes"]}


def entropy_loss(inputs, _version):
    mask = rows(inputs["response_mask"])

    def in_mode(mode):
        loss, slope = with_slope(inputs["logits"], lambda logits: core_algos.compute_entropy_loss(logits, mask, mode))
        return {"loss": loss, "grad_logits": slope}

    return {mode: in_mode(mode) for mode in inputs["modes"]}


def kl_penalty(inputs, _version):
    reference = rows(inputs["ref_logprob"])

    def of_kind(kind):
        found = {}

        def total(logprob):
            found["kl"] = core_algos.kl_penalty(logprob, reference, kind)
            return found["kl"].sum()

        try:
            _, slope = with_slope(inputs["logprob"], total)
        except NotImplementedError as error:
            return type(error).__name__
        return {"kl": found["kl"], "grad_logprob_of_sum": slope}

    return {kind: of_kind(kind) for kind in inputs["kinds"]}


def kl_controller(inputs, _version):
    if "horizon" in inputs:
        control = core_algos.AdaptiveKLController(inputs["init_kl_coef"], inputs["target_kl"], inputs["horizon"])
    else:
        control = core_algos.FixedKLController(inputs["kl_coef"])
    values = []
    for kl, steps in zip(inputs["current_kl"], inputs["n_steps"], strict=True):
        control.update(kl, steps)
        values.append(control.value)
    return {"value_after_each_update": values}


def one_function(module_path, name, names):
    """A function of a module that cannot be imported as a whole without many more packages."""
    source = (Path(verl.__file__).parent / module_path).read_text(encoding="utf-8")
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name]
    exec(compile(ast.Module(body=found, type_ignores=[]), module_path, "exec"), names)
    return names[name]


PENALIZE = one_function(
    "trainer/ppo/ray_trainer.py",
    "apply_kl_penalty",
    {"DataProto": DataProto, "core_algos": core_algos, "masked_mean": masked_mean, "torch": torch},
)


def apply_kl_penalty(inputs, _version):
    names = ("response_mask", "token_level_scores", "old_log_probs", "ref_log_prob")
    data = DataProto.from_dict(tensors={name: rows(inputs[name]) for name in names})
    control = core_algos.get_kl_controller(OmegaConf.create(inputs["kl_ctrl"]))
    data, metrics = PENALIZE(data, control, inputs["kl_penalty"])
    return {
        "token_level_rewards": data.batch["token_level_rewards"],
        "metrics": metrics,
        "kl_coef_after": control.value,
    }


def compute_rewards(inputs, _version):
    tensors = [rows(inputs[key]) for key in ("token_level_scores", "old_log_prob", "ref_log_prob")]
    return {"rewards": core_algos.compute_rewards(*tensors, inputs["kl_ratio"])}


def pf_ppo(inputs, _version):
    """Its weights are those it gives to `torch.multinomial`."""
    seen = {}
    original = torch.multinomial

    def recording(weights, count, replacement):
        seen["weights"] = weights
        seen["draw"] = original(weights, count, replacement=replacement)
        return seen["draw"]

    data = DataProto.from_dict(
        tensors={"token_level_scores": rows(inputs["token_level_scores"])}, non_tensors={"uid": labels(inputs["uid"])}
    )
    torch.multinomial = recording
    try:
        drawn = core_algos.compute_pf_ppo_reweight_data(data, inputs["reweight_method"], inputs["weight_pow"])
    finally:
        torch.multinomial = original
    return {
        "sampling_weights": seen["weights"],
        "example_draw": seen["draw"],
        "resampled_uid_for_example_draw": list(drawn.non_tensor_batch["uid"]),
    }


# ---------------------------------------------------------------- rollout correction

LOGPROBS = ("old_log_prob", "rollout_log_prob", "response_mask", "log_prob")


def correction(inputs, _version):
    given = {key: rows(value) if key in LOGPROBS else value for key, value in inputs.items()}
    weights, mask, metrics = rollout_corr_helper.compute_rollout_correction_and_rejection_mask(**given)
    answer = {"modified_response_mask": mask, "metrics": metrics}
    return answer if weights is None else answer | {"rollout_is_weights": weights.batch["rollout_is_weights"]}


def off_policy(compute, inputs, _version):
    return compute(**{key: rows(value) for key, value in inputs.items()})


# ---------------------------------------------------------------- metrics


def data_metrics(inputs, _version):
    tensors = {}
    for key in ("token_level_scores", "token_level_rewards", "advantages", "returns", "values", "response_mask"):
        if key in inputs:
            tensors[key] = rows(inputs[key])
    tensors["responses"] = torch.tensor(inputs["responses"])
    tensors["attention_mask"] = torch.tensor(inputs["attention_mask"])
    tensors["prompts"] = tensors["attention_mask"][:, : -tensors["responses"].shape[1]]
    turns = {key: np.array(inputs[key]) for key in ("__num_turns__", "tool_call_counts") if key in inputs}
    return metric_utils.compute_data_metrics(DataProto.from_dict(tensors, turns), inputs["use_critic"])


def timing_metrics(inputs, _version):
    mask = torch.tensor(inputs["attention_mask"])
    width = inputs["response_length"]
    tensors = {"responses": mask[:, -width:], "prompts": mask[:, :-width], "attention_mask": mask}
    tensors["response_mask"] = mask[:, -width:]
    return metric_utils.compute_timing_metrics(DataProto.from_dict(tensors), inputs["timing_raw"])


def throughput(inputs, _version):
    data = DataProto(meta_info={"global_token_num": inputs["global_token_num"]})
    return metric_utils.compute_throughout_metrics(data, inputs["timing_raw"], inputs["n_gpus"])


def bootstrap(inputs, _version):
    reduces = [{"mean": np.mean, "max": np.max, "min": np.min}[name] for name in inputs["reduce_fns"]]
    data, size, seed = inputs["data"], inputs["subset_size"], inputs["seed"]
    found = metric_utils.bootstrap_metric(data, size, reduces, inputs["n_bootstrap"], seed)
    np.random.seed(seed)
    draws = [np.random.choice(len(data), size=size, replace=True) for _ in range(5)]
    return {"mean_std_per_fn": found, "first_5_index_draws": draws}


def validation(inputs, _version):
    names = ("data_sources", "sample_uids", "infos_dict", "seed")
    return metric_utils.process_validation_metrics(*(inputs[name] for name in names))


def majority(inputs, _version):
    return {"maj_val": metric_utils.calc_maj_val(inputs["data"], inputs["vote_key"], inputs["val_key"])}


# ---------------------------------------------------------------- balancing


def parts(divide, inputs, _version):
    found = divide(inputs["seqlen_list"], inputs["k_partitions"], inputs["equal_size"])
    sums = [sum(inputs["seqlen_list"][i] for i in part) for part in found]
    return {"partitions": found, "partition_sums": sums, "sorted_sums": sorted(sums)}


def unbalance(inputs, _version):
    return seqlen_balancing.log_seqlen_unbalance(inputs["seqlen_list"], inputs["partitions"], inputs["prefix"])


def workload(inputs, _version):
    return {"workload": seqlen_balancing.calculate_workload(torch.tensor(inputs["seqlen_list"]))}


# ---------------------------------------------------------------- scorers


def score_gsm8k(inputs, _version):
    response, truth = inputs["solution_str"], inputs["ground_truth"]

    def by(method):
        return {
            "extracted": gsm8k.extract_solution(response, method),
            "score": gsm8k.compute_score(response, truth, method),
            "score_format0.1": gsm8k.compute_score(response, truth, method, format_score=0.1),
        }

    return {method: by(method) for method in ("strict", "flexible")}


def score_math_reward(inputs, _version):
    response, truth = inputs["solution_str"], inputs["ground_truth"]
    box = math_reward.last_boxed_only_string(response)
    answer = {"score": math_reward.compute_score(response, truth), "last_boxed": box}
    with contextlib.suppress(Exception):
        content = None if box is None else math_reward.remove_boxed(box)
        stripped = [None if it is None else math_reward.strip_string(it) for it in (content, truth)]
        answer["stripped_pred_gt"] = stripped
    return answer


def score_math_dapo(inputs, version):
    response, truth = inputs["solution_str"], inputs["ground_truth"]
    scored = math_dapo.compute_score(response, truth)
    if not version.startswith("0.7"):
        return {"default": scored}
    return {
        "minerva": scored,
        "strict_box": math_dapo.compute_score(response, truth, strict_box_verify=True),
        "normalized_ground_truth": math_dapo.normalize_final_answer(truth),
    }


def score_search_qa(inputs, _version):
    response, truth = inputs["solution_str"], inputs["ground_truth"]
    targets = truth["target"] if isinstance(truth["target"], list) else [truth["target"]]
    return {
        "em": search_r1_like_qa_em.compute_score(response, truth),
        "em_format0.2": search_r1_like_qa_em.compute_score(response, truth, format_score=0.2),
        "subem": search_r1_like_qa_em.compute_score_subem(response, truth),
        "extracted": search_r1_like_qa_em.extract_solution(response),
        "normalized_targets": [search_r1_like_qa_em.normalize_answer(it) for it in targets],
    }


def score_geo3k(inputs, _version):
    response, truth = inputs["solution_str"], inputs["ground_truth"]
    return {
        "score": geo3k.compute_score(response, truth),
        "acc": geo3k.acc_reward(response, truth),
        "format": geo3k.format_reward(response),
    }


def score_prime_math(inputs, _version):
    return {"result": list(prime_math.compute_score(inputs["solution_str"], inputs["ground_truth"]))}


def score_math_verify(inputs, version):
    response, truth = inputs["solution_str"], inputs["ground_truth"]
    if version.startswith("0.7"):
        return {"score": math_verify.compute_score(response, truth)}
    # What 0.9 runs in another process, where signals work; they work here too.
    try:
        return {"score": math_verify._verify_in_subprocess("\\boxed{" + truth + "}", response)}
    except Exception:
        return {"score": 0.0}


def score_by_source(inputs, _version):
    given = (inputs["data_source"], inputs["solution_str"], inputs["ground_truth"])
    return {"score": reward_score.default_compute_score(*given)}


COMPUTES = {
    "agg_loss": aggregated,
    "compute_value_loss": value_loss,
    "compute_entropy_loss": entropy_loss,
    "kl_penalty": kl_penalty,
    "AdaptiveKLController": kl_controller,
    "FixedKLController": kl_controller,
    "apply_kl_penalty": apply_kl_penalty,
    "compute_rewards": compute_rewards,
    "compute_pf_ppo_reweight_data": pf_ppo,
    "compute_rollout_correction_and_rejection_mask": correction,
    "compute_offpolicy_metrics": partial(off_policy, rollout_corr_helper.compute_offpolicy_metrics),
    "compute_rollout_corr_metrics_from_logprobs": partial(
        off_policy, rollout_corr_helper.compute_rollout_corr_metrics_from_logprobs
    ),
    "compute_data_metrics": data_metrics,
    "compute_timing_metrics": timing_metrics,
    "compute_throughout_metrics": throughput,
    "bootstrap_metric": bootstrap,
    "calc_maj_val": majority,
    "process_validation_metrics": validation,
    "verl.utils.metric.reduce_metrics": lambda inputs, _version: reduce_metrics(inputs["metrics"]),
    "karmarkar_karp": partial(parts, seqlen_balancing.karmarkar_karp),
    "get_seqlen_balanced_partitions": partial(parts, seqlen_balancing.get_seqlen_balanced_partitions),
    "log_seqlen_unbalance": unbalance,
    "calculate_workload": workload,
    "gsm8k.compute_score": score_gsm8k,
    "math_reward.compute_score": score_math_reward,
    "math_dapo.compute_score": score_math_dapo,
    "search_r1_like_qa_em.compute_score": score_search_qa,
    "geo3k.compute_score": score_geo3k,
    "prime_math.compute_score": score_prime_math,
    "math_verify.compute_score": score_math_verify,
    "default_compute_score": score_by_source,
}


def compute(case):
    name, inputs, version = case["function"], case["inputs"], case["version"]
    if case["topic"] == "advantages":
        return advantages(name, inputs, version)
    if case["topic"] == "policy_losses":
        return policy_loss(name, inputs, version)
    return COMPUTES[name](inputs, version)


class Timeout(BaseException):
    """Longer than a minute."""


def overdue(_signal, _frame):
    raise Timeout


def answer(case):
    signal.signal(signal.SIGALRM, overdue)
    signal.alarm(60)
    try:
        return plain(compute(case))
    except Timeout:
        return {"timeout": True}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)[:300]}
    finally:
        signal.alarm(0)


def plain(value):
    """As JSON has it; whole floats are integers in golden files."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "not finite"
    return value


for line in sys.stdin:
    ANSWERS.write(json.dumps(answer(json.loads(line))) + "\n")
    ANSWERS.flush()
