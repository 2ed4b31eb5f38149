/**
 * The Ray engine on several hosts, each with a network address of its own: what runs on one runs on two, what is cut off
 * is named, and what only one of them sees is refused. The commands are a user's, started on the first host.
 *
 * TRAINYARD_TEST_PYTHON names an interpreter that has python/requirements.txt.
 */
import { randomBytes } from "node:crypto";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { pythonFolder } from "../../src/engine/ray/shim.ts";
import { canMakeHosts, type Host, Hosts } from "../hosts.ts";
import { hasRay } from "../ray-yard.ts";
import { Yard } from "../rl-yard.ts";
import { checksums } from "../sandbox.ts";

const SECONDS = 1000;

/** So that a node that is gone is noticed in seconds; Ray's own settings take a minute. */
const quick = {
  RAY_health_check_initial_delay_ms: "1000",
  RAY_health_check_period_ms: "500",
  RAY_health_check_timeout_ms: "3000",
  RAY_health_check_failure_threshold: "3",
};

const reward = `export default ({ response }) => (response.split("7").length - 1) / 6;\n`;
const variables = "ray_kwargs.ray_init.runtime_env.env_vars";

/** Steps enough to do something to a host in the middle of one. */
const steps = 12;
// A worker takes all processors of a host, so that there is one on each.
const onTwo = ["trainer.nnodes=2", "trainer.threads=2", `${variables}.OMP_NUM_THREADS=1`];
const onOne = ["trainer.n_gpus_per_node=2", "trainer.threads=1"];

const name = "runs on several hosts (where network namespaces can be made and Ray is installed)";
describe.skipIf(!(canMakeHosts && hasRay))(name, { timeout: 180 * SECONDS }, () => {
  let hosts: Hosts;
  let first: Host;
  let second: Host;
  let yard: Yard;

  beforeAll(async () => {
    process.env.RAY_AUTH_TOKEN ??= randomBytes(20).toString("hex"); // of the cluster and of those who join it
    yard = await Yard.make();
    await writeFile(yard.path("reward.mjs"), reward);
    hosts = await Hosts.make();
    [first, second] = [await hosts.add(), await hosts.add()];
    await second.hide(pythonFolder); // the package has to be sent
    await first.startRay(2, quick);
    await second.startRay(2, quick, first);
  }, 120 * SECONDS);
  afterAll(async () => {
    await hosts?.end();
    yard?.remove();
  });

  const start = (run: string, keys: readonly string[], env = {}) => {
    const all = [
      "trainer.engine=ray",
      `trainer.total_training_steps=${steps}`,
      "trainer.save_freq=1",
      "trainer.ray_wait_register_center_timeout=100",
      `custom_reward_function.path=${yard.path("reward.mjs")}`,
    ];
    return first.trainyard(yard.args(run, [...all, ...keys]), { RAY_ADDRESS: first.rayAddress, ...env });
  };

  /** What is to be the same: metrics, and weights and moments to the last byte. */
  const outcome = async (run: string) => {
    // What is left out holds the folder's name.
    const { "optimizer/.metadata": _, ...files } = await checksums(yard.path(run, `global_step_${steps}`, "actor"));
    return { metrics: await yard.metrics(run), files };
  };

  /** What of trainyard still runs when a node has had time to hear that it was given up. */
  const leftovers = async (seconds: number, ...others: readonly Host[]) => {
    const found = () => [first, second, ...others].flatMap((host) => host.leftovers());
    const end = performance.now() + seconds * SECONDS;
    while (found().length > 0 && performance.now() < end) await sleep(100);
    return found();
  };

  test("end as one with as many workers on one host does", async () => {
    const onOneHost = start("one-host", onOne);
    expect(await onOneHost.ended, onOneHost.said).toBe(0);
    // As `ray job submit` starts it, with a variable that has a default.
    const job = JSON.stringify({ runtime_env: { env_vars: { NCCL_DEBUG: "INFO" } } });
    const onTwoHosts = start("two-hosts", onTwo, { RAY_JOB_CONFIG_JSON_ENV_VAR: job });
    expect(await onTwoHosts.ended, onTwoHosts.said).toBe(0);
    expect(await outcome("two-hosts")).toEqual(await outcome("one-host"));
    const modes = ["config.json", "model.safetensors"].map(async (file) => {
      return (await stat(yard.path("two-hosts", `global_step_${steps}`, "actor", file))).mode;
    });
    expect(new Set(await Promise.all(modes)).size).toBe(1); // whoever reads the one may read the other
    expect(await leftovers(10)).toEqual([]);
  });

  test.each<{ what: string; hidden?: string; keys?: readonly string[]; message: RegExp }>([
    { what: "a model that one does not see", hidden: "model", message: /model does not exist on the machine host-2/ },
    {
      what: "a run folder that is another one there",
      hidden: "refused",
      message: /refused is another folder on the machine host-2.*disk that all machines share/,
    },
    {
      what: "an interface that they do not have",
      keys: [`${variables}.GLOO_SOCKET_IFNAME=none0`],
      message: /Worker [01] on the machine host-[12] cannot reach the others.*none0.*Nodes must reach each other/,
    },
    {
      what: "an address that does not answer",
      keys: ["ray_kwargs.ray_init.address=10.77.0.99:6379", "trainer.ray_wait_register_center_timeout=4"],
      message: /could not be reached at 10\.77\.0\.99:6379 within 4 s.*this machine is one of its nodes/,
    },
  ])("are refused with one message: $what", async ({ hidden, keys = [], message }) => {
    const folder = yard.path(hidden ?? "nothing");
    await mkdir(folder, { recursive: true });
    await second.hide(folder);
    const child = start("refused", [...onTwo, ...keys]);
    expect(await child.ended).toBe(2);
    expect(child.said).toMatch(message);
    expect(await leftovers(10)).toEqual([]);
    await second.show(folder);
  });

  test("go on when another joins in place of one that was cut off, which is named, and end as if nothing had been", async () => {
    const child = start("broken", onTwo);
    const latest = () => readFile(yard.path("broken", "latest_checkpointed_iteration.txt"), "utf8").catch(() => "0");
    while (child.isRunning && Number(await latest()) < 2) await sleep(10);
    await second.cutOff();
    const begun = performance.now();
    await child.saying(/was lost/);
    expect(performance.now() - begun).toBeLessThan(40 * SECONDS);
    expect(child.said).toMatch(/Worker [01] \(process \d+ on host-2\) was lost: /);
    expect(Number(await latest())).toBeLessThan(steps);

    await second.reconnect();
    const third = await hosts.add();
    await third.startRay(2, quick, first);
    expect(await child.ended, child.said).toBe(0);
    expect(child.said).toMatch(/Resuming from .*global_step_/);
    expect(await outcome("broken")).toEqual(await outcome("two-hosts"));

    expect(await leftovers(60, third)).toEqual([]);
  });
});
