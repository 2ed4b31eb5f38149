/**
 * Runs that die: the moments of a run at which it is killed, and a reward service by which they are known.
 *
 * The service scores in this process, so it knows how far the sampling of a step is. Everything else is seen from the
 * changes in the run folder. Moments are drawn from a seed; what the machine makes of a few milliseconds is its own.
 */
import { once } from "node:events";
import { watch } from "node:fs";
import { mkdir, readdir } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { json as readJson } from "node:stream/consumers";
import { Random } from "../src/util/random.ts";
import type { Yard } from "./rl-yard.ts";
import { type Child, pause } from "./sandbox.ts";

/** Scores the share of sevens, and counts the responses of training prompts: those with an index below 16. */
export class RewardService {
  readonly #server: Server;
  #scored = 0;
  #waiting: { readonly count: number; resolve(): void }[] = [];

  private constructor(server: Server) {
    this.#server = server;
    server.on("request", async (request, response) => {
      const { response: text, extra_info: info } = (await readJson(request)) as Asked;
      const share = text.split("7").length - 1;
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ score: share / 6, acc: share > 0 ? 1 : 0 }));
      if (info.index < 16) this.#count();
    });
  }

  static async open(): Promise<RewardService> {
    const server = createServer();
    const service = new RewardService(server);
    await once(server.listen(0, "127.0.0.1"), "listening");
    return service;
  }

  /** The keys with which a run asks this service. */
  get keys(): string[] {
    const address = this.#server.address();
    const port = typeof address === "object" ? address?.port : 0;
    return [`reward_model.service.url=http://127.0.0.1:${port}`, "reward_model.service.protocol=json"];
  }

  /** Responses of training prompts since the last `restart`. */
  get scored(): number {
    return this.#scored;
  }

  restart(): void {
    this.#scored = 0;
    this.#waiting = [];
  }

  /** When so many have been scored. */
  async reached(count: number): Promise<void> {
    await new Promise<void>((resolve) => this.#waiting.push({ count, resolve }));
  }

  #count(): void {
    this.#scored++;
    for (const { count, resolve } of this.#waiting) if (count === this.#scored) resolve();
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** The body that the protocol `json` sends: `rewards/service.ts`. */
type Asked = { readonly response: string; readonly extra_info: { readonly index: number } };

type Scene = { readonly folder: string; readonly service: RewardService; readonly random: Random };

/** Responses that the yard's keys score in a step. */
const perStep = 16;

/** How to wait, in a run that has just been started, for a moment of a kind. */
const moments = {
  starting: ({ random }) => pause(random.uniform() * 1000),
  sampling: ({ service, random }) => service.reached(perStep * random.int(2) + 1 + random.int(perStep - 1)),
  updating: async ({ service, random }) => {
    await service.reached(perStep * (1 + random.int(2)));
    await pause(random.uniform() * 20);
  },
  saving: async ({ folder, service, random }) => {
    await service.reached(perStep); // what an earlier kill left has been cleared away by now
    await changed(folder, /^\.global_step_\d+\.[0-9a-f]{8}\.tmp$/, 1 + random.int(2));
    await pause(random.uniform() * 10);
  },
  logging: async ({ folder, random }) => {
    await changed(folder, /^(metrics|rollouts)\.jsonl$/, 1 + random.int(4));
    await pause(random.uniform() * 3);
  },
  pruning: async ({ folder, random }) => {
    await changed(folder, /^latest_checkpointed_iteration\.txt$/, 1 + random.int(2));
    await pause(random.uniform() * 3);
  },
} satisfies Record<string, (scene: Scene) => Promise<void>>;

export type Moment = keyof typeof moments;

/** When a file of that name in the folder has changed so many times. */
async function changed(folder: string, name: RegExp, count: number): Promise<void> {
  let seen = 0;
  await new Promise<void>((resolve) => {
    const watcher = watch(folder, { persistent: false }, (_, file) => {
      if (!name.test(file ?? "") || ++seen < count) return;
      watcher.close();
      resolve();
    });
  });
}

export type Killed = {
  readonly moment: Moment;
  /** The signal that ended it, or its exit code. */
  readonly ended: Awaited<Child["ended"]>;
  readonly said: string;
  /** Responses of the step that were scored when it died: neither none nor all of them is in the middle of sampling. */
  readonly scored: number;
  /** Whether a checkpoint was left that is half written, or half deleted. */
  readonly hasLeftover: boolean;
};

type Order = {
  readonly keys: readonly string[];
  readonly service: RewardService;
  readonly moments: readonly Moment[];
  readonly seed: number;
};

/** Start the run again and again and kill it each time; a run that is done before the moment comes is not killed. */
export async function killAgainAndAgain(yard: Yard, run: string, order: Order): Promise<Killed[]> {
  const { service, keys } = order;
  const folder = yard.path(run);
  await mkdir(folder);
  const random = new Random(order.seed);
  const killed: Killed[] = [];
  for (const moment of order.moments) {
    service.restart();
    const child = yard.startSft(run, ...keys);
    await Promise.race([moments[moment]({ folder, service, random }), child.ended]);
    child.process.kill("SIGKILL");
    const scored = service.scored % perStep;
    const ended = await child.ended;
    const hasLeftover = (await readdir(folder)).some((name) => /^\.global_step_.*\.tmp$/.test(name));
    killed.push({ moment, ended, said: child.said, scored, hasLeftover });
  }
  return killed;
}
