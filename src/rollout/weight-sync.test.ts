import { afterEach, describe, expect, test } from "vitest";
import { type Answer, CallRecorder } from "../../test/call-recorder.ts";
import { UserError } from "../util/errors.ts";
import { factsOf, loadWeights, type ServerFacts, type ServerKind } from "./weight-sync.ts";

const open: CallRecorder[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) await server.close();
});

async function serve(kind: ServerKind, answers: Readonly<Record<string, Answer>>) {
  const recorder = await CallRecorder.open(answers);
  open.push(recorder);
  return { recorder, server: { url: `${recorder.url}/v1`, kind, apiKey: "k", setting: "base_url", isUsers: true } };
}

const ok: Answer = { body: {} };
const weights = { folder: "/run/rollout_weights/3", version: "a-3", model: "m", token: 7 };
const vllm: Readonly<Record<string, Answer>> = {
  "/pause?mode=wait&clear_cache=false": { body: { status: "paused" } },
  "/collective_rpc": { body: { results: [null] } },
  "/reset_prefix_cache": { body: { success: true } },
  "/update_weight_version": { body: { success: true } },
  "/resume": { body: { status: "resumed" } },
  "/weight_info": { body: { weight_version: "a-3" } },
  "/v1/completions": { body: { choices: [] } },
};
const sglang: Readonly<Record<string, Answer>> = {
  "/update_weights_from_disk": { body: { success: true, message: "done", num_paused_requests: 0 } },
  "/generate": drawnWith({ weight_version: "a-3", weight_versions: [{ version: "a-3", start: 0, end: 1 }] }),
};

function drawnWith(versions: object): Answer {
  return { body: { text: "", output_ids: [5], meta_info: { completion_tokens: 1, ...versions } } };
}

describe("new weights", () => {
  test("are loaded by vLLM while it is paused, and it samples a token with an empty cache", async () => {
    const { recorder, server } = await serve("vllm", vllm);
    await loadWeights(server, weights);
    expect(recorder.calls.map(({ path, body }) => [path, body])).toEqual([
      ["/pause?mode=wait&clear_cache=false", {}],
      ["/collective_rpc", { method: "reload_weights", kwargs: { weights_path: "/run/rollout_weights/3" } }],
      ["/reset_prefix_cache", {}],
      ["/update_weight_version", { new_version: "a-3" }],
      ["/resume", {}],
      ["/weight_info", undefined],
      ["/v1/completions", { model: "m", prompt: [7], max_tokens: 1, temperature: 0 }],
    ]);
    expect(new Set(recorder.calls.map(({ authorization }) => authorization))).toEqual(new Set(["Bearer k"]));
  });

  test("are loaded by SGLang through its own API, and it samples a token", async () => {
    const { recorder, server } = await serve("sglang", sglang);
    await loadWeights(server, weights);
    expect(recorder.calls.map(({ path, body }) => [path, body])).toEqual([
      ["/update_weights_from_disk", { model_path: "/run/rollout_weights/3", weight_version: "a-3", flush_cache: true }],
      ["/generate", { input_ids: [7], sampling_params: { max_new_tokens: 1, temperature: 0 } }],
    ]);
  });

  test("are loaded by `trainyard serve` in one call", async () => {
    const { recorder, server } = await serve("trainyard", { "/reload_weights": ok });
    await loadWeights(server, weights);
    expect(recorder.calls.map(({ path, body }) => [path, body])).toEqual([
      ["/reload_weights", { path: "/run/rollout_weights/3" }],
    ]);
  });

  test("are loaded without a version by servers that have none", async () => {
    const { "/update_weight_version": _, "/weight_info": __, ...older } = vllm;
    const { server } = await serve("vllm", older);
    await expect(loadWeights(server, weights)).resolves.toBeUndefined();
    const { server: sglangServer } = await serve("sglang", { ...sglang, "/generate": drawnWith({}) });
    await expect(loadWeights(sglangServer, weights)).resolves.toBeUndefined();
  });

  test("of SGLang have the version that its engine reports, not the one of its HTTP process", async () => {
    const versions = { weight_version: "default", weight_versions: [{ version: "a-3", start: 0, end: 1 }] };
    const { server } = await serve("sglang", { ...sglang, "/generate": drawnWith(versions) });
    await expect(loadWeights(server, weights)).resolves.toBeUndefined();
  });

  const refusals: readonly [string, ServerKind, Readonly<Record<string, Answer>>, RegExp][] = [
    ["a vLLM without its RL paths", "vllm", {}, /\/pause \(404\).*VLLM_SERVER_DEV_MODE=1/],
    [
      "a vLLM that cannot read the folder",
      "vllm",
      { ...vllm, "/collective_rpc": { status: 500, body: { error: { message: "Repo id must be in the form" } } } },
      /\/collective_rpc \(500\): Repo id must be.*same path/,
    ],
    [
      "a vLLM whose engine died while loading them",
      "vllm",
      { ...vllm, "/v1/completions": { status: 500, body: { error: { message: "EngineCore encountered an issue" } } } },
      /EngineCore encountered an issue/,
    ],
    [
      "a vLLM that another run updates",
      "vllm",
      { ...vllm, "/weight_info": { body: { weight_version: "b-9" } } },
      /got version a-3 and reports b-9/,
    ],
    [
      "an SGLang that cannot load them",
      "sglang",
      { ...sglang, "/update_weights_from_disk": { body: { success: false, message: "shapes differ" } } },
      /\/update_weights_from_disk: shapes differ/,
    ],
    [
      "an SGLang that cannot read the folder",
      "sglang",
      { ...sglang, "/update_weights_from_disk": { status: 400, body: { success: false, message: "Repo id must be" } } },
      /\/update_weights_from_disk \(400\): Repo id must be.*same path/,
    ],
    [
      "an SGLang that another run updates",
      "sglang",
      { ...sglang, "/generate": drawnWith({ weight_version: "b-9" }) },
      /got version a-3 and reports b-9/,
    ],
    ["a server that wants another key", "trainyard", { "/reload_weights": { status: 401, body: "no" } }, /key/],
  ];
  for (const [name, kind, answers, message] of refusals) {
    test(`are an error for ${name}`, async () => {
      const { server } = await serve(kind, answers);
      const loading = loadWeights(server, weights);
      await expect(loading).rejects.toThrow(UserError);
      await expect(loading).rejects.toThrow(message);
    });
  }

  test("that vLLM refuses do not stop it", async () => {
    const { recorder, server } = await serve("vllm", { ...vllm, "/collective_rpc": { status: 500, body: {} } });
    await expect(loadWeights(server, weights)).rejects.toThrow(UserError);
    expect(recorder.calls.at(-1)?.path).toBe("/resume");
  });

  test("wait while the cache of vLLM is in use", async () => {
    let asked = 0;
    const { server } = await serve("vllm", {
      ...vllm,
      "/reset_prefix_cache": () => ({ body: { success: ++asked > 2 } }),
    });
    await loadWeights(server, weights);
    expect(asked).toBe(3);
  });

  test("for a server that is gone are an error with its address", async () => {
    const { recorder, server } = await serve("vllm", vllm);
    await recorder.close();
    open.pop();
    await expect(loadWeights(server, weights)).rejects.toThrow(/\/pause.*does not answer: ECONNREFUSED/);
  });
});

describe("the settings of a server", () => {
  const info = { vllm_config: { model_config: { dtype: "torch.float32", logprobs_mode: "raw_logprobs" } } };
  const seeded = { dtype: "float32", enable_deterministic_inference: true };
  const nothing = { dtype: null, logprobsMode: null, usesSeeds: false };
  const cases: readonly [string, ServerKind, Readonly<Record<string, Answer>>, Partial<ServerFacts>][] = [
    [
      "vLLM",
      "vllm",
      { "/server_info?config_format=json": { body: info } },
      { dtype: "float32", logprobsMode: "raw_logprobs" },
    ],
    ["vLLM that does not tell", "vllm", {}, {}],
    ["SGLang", "sglang", { "/server_info": { body: { dtype: "bfloat16" } } }, { dtype: "bfloat16" }],
    [
      "SGLang that draws by seeds",
      "sglang",
      { "/server_info": { body: seeded } },
      { dtype: "float32", usesSeeds: true },
    ],
    ["older SGLang", "sglang", { "/get_server_info": { body: { dtype: "float32" } } }, { dtype: "float32" }],
    ["`trainyard serve`", "trainyard", {}, {}],
  ];
  for (const [name, kind, answers, facts] of cases) {
    test(`are read from ${name}`, async () => {
      const { server } = await serve(kind, answers);
      expect(await factsOf(server)).toEqual({ ...nothing, ...facts });
    });
  }
});
