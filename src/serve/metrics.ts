/**
 * The metrics of the server as Prometheus text. Names are vLLM's with `trainyard:` instead of `vllm:`.
 *
 * Gauges and token counts come from the sampler; requests, finish reasons and durations are counted here.
 */
import type { SamplerStats } from "../rollout/request.ts";

/** Upper bounds in seconds; the last bucket is open. */
const bounds = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600];

class Histogram {
  readonly #counts = bounds.map(() => 0);
  #count = 0;
  #sum = 0;

  observe(seconds: number): void {
    this.#count++;
    this.#sum += seconds;
    const bucket = bounds.findIndex((bound) => seconds <= bound);
    if (bucket >= 0) this.#counts[bucket]!++;
  }

  lines(name: string, model: string): string[] {
    let sum = 0;
    const buckets = bounds.map((bound, i) => {
      sum += this.#counts[i]!;
      return `${name}_bucket{${model},le="${bound}"} ${sum}`;
    });
    return [
      ...buckets,
      `${name}_bucket{${model},le="+Inf"} ${this.#count}`,
      `${name}_sum{${model}} ${this.#sum}`,
      `${name}_count{${model}} ${this.#count}`,
    ];
  }
}

export type FinishedReason = "stop" | "length" | "abort" | "error";

export class Metrics {
  readonly timeToFirstToken = new Histogram();
  readonly endToEnd = new Histogram();
  readonly #answers = new Map<string, number>();
  readonly #finished = new Map<FinishedReason, number>();

  /** Count an HTTP answer; `handler` is the route, never the path of the client. */
  countAnswer(method: string, handler: string, status: number): void {
    const labels = `handler="${escapeLabel(handler)}",method="${escapeLabel(method)}",status="${status}"`;
    this.#answers.set(labels, (this.#answers.get(labels) ?? 0) + 1);
  }

  /** Count how a sample ended. */
  countFinished(reason: FinishedReason): void {
    this.#finished.set(reason, (this.#finished.get(reason) ?? 0) + 1);
  }

  /** The text of `/metrics`. */
  text(modelName: string, stats: SamplerStats): string {
    const model = `model_name="${escapeLabel(modelName)}"`;
    const one = (value: number) => (name: string) => [`${name}{${model}} ${value}`];
    const usage = stats.cacheTokens === 0 ? 0 : stats.cachedTokens / stats.cacheTokens;
    const rows: readonly (readonly [name: string, kind: string, help: string, lines: (name: string) => string[]])[] = [
      ["num_requests_running", "gauge", "Sequences that are being decoded.", one(stats.running)],
      ["num_requests_waiting", "gauge", "Sequences that are waiting.", one(stats.waiting)],
      ["kv_cache_usage_perc", "gauge", "Used share of the key-value cache, from 0 to 1.", one(usage)],
      ["num_preemptions_total", "counter", "Sequences that were preempted for lack of cache.", one(stats.preemptions)],
      ["prompt_tokens_total", "counter", "Prompt tokens.", one(stats.promptTokens)],
      ["prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.", one(stats.reusedTokens)],
      ["generation_tokens_total", "counter", "Sampled tokens.", one(stats.generatedTokens)],
      [
        "request_success_total",
        "counter",
        "Samples by finish reason.",
        (name) => [...this.#finished].map(([reason, n]) => `${name}{${model},finished_reason="${reason}"} ${n}`),
      ],
      [
        "http_requests_total",
        "counter",
        "HTTP requests by route and status.",
        (name) => [...this.#answers].map(([labels, n]) => `${name}{${labels}} ${n}`),
      ],
      [
        "time_to_first_token_seconds",
        "histogram",
        "From a request's arrival to its first token.",
        (name) => this.timeToFirstToken.lines(name, model),
      ],
      [
        "e2e_request_latency_seconds",
        "histogram",
        "From a request's arrival to its last token.",
        (name) => this.endToEnd.lines(name, model),
      ],
    ];
    return rows
      .flatMap(([short, kind, help, lines]) => {
        const name = `trainyard:${short}`;
        return [`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`, ...lines(name)];
      })
      .map((line) => `${line}\n`)
      .join("");
  }
}

function escapeLabel(label: string): string {
  return label.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
