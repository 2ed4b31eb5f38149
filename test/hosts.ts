/**
 * Hosts with a network between them, for tests: each has an address, a hostname, processes, shared memory and Ray's
 * temporary folder of its own, and sees the disk of this machine unless a folder is hidden from it.
 *
 * They are namespaces of Linux, and so is the switch between them. Nothing of them has a name outside, and each is held
 * by a process that ends with the test's: several tests can have theirs at once, and nothing stays behind.
 */
import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { python } from "./ray-yard.ts";
import { Child } from "./sandbox.ts";

const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));
const execute = promisify(execFile);

const apart = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
const makeBridge = "ip link add bridge type bridge && ip link set bridge up";

/** Whether hosts can be made here: it takes Linux, the rights of root, util-linux and iproute2. */
export const canMakeHosts: boolean =
  process.platform === "linux" && spawnSync("unshare", [...apart, "bash", "-c", makeBridge]).status === 0;

type Variables = Readonly<Record<string, string>>;

/** Namespaces, and the process that holds them until it, or this one, ends. */
class Place {
  readonly #holder: ChildProcess;

  private constructor(holder: ChildProcess) {
    this.#holder = holder;
  }

  static async make(setUp: string): Promise<Place> {
    // The first process of a host is the parent of all that have lost theirs, and bash looks after them.
    const script = `set -e; ${setUp}; echo ready; while read -r _; do :; done`;
    const holder = spawn("unshare", [...apart, "bash", "-c", script], { stdio: ["pipe", "pipe", "inherit"] });
    await Promise.race([once(holder.stdout, "data"), once(holder, "exit")]);
    if (holder.exitCode !== null) throw new Error(`a host could not be made: exit code ${holder.exitCode}`);
    return new Place(holder);
  }

  get pid(): number {
    return this.#holder.pid!;
  }

  get #processes(): string {
    return `/proc/${this.pid}/ns/pid_for_children`;
  }

  /** A command with what makes it run here. */
  entering(...command: readonly string[]): string[] {
    const spaces = ["--net", "--uts", "--ipc", "--mount", `--pid=${this.#processes}`];
    return ["nsenter", `--target=${this.pid}`, ...spaces, ...command];
  }

  /** Run a command to its end. */
  async run(command: readonly string[], env: Variables = {}): Promise<void> {
    const [enter = "", ...rest] = this.entering(...command);
    await execute(enter, rest, { env: { ...process.env, ...env }, timeout: 120_000 });
  }

  /** The command lines of the processes that run here. */
  commands(): string[] {
    const own = readlinkSync(this.#processes);
    return readdirSync("/proc").flatMap((pid) => {
      try {
        const isHere = /^\d+$/.test(pid) && readlinkSync(`/proc/${pid}/ns/pid`) === own;
        return isHere ? [readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")] : [];
      } catch {
        return []; // it has ended
      }
    });
  }

  /** End all processes; settles when they are gone. */
  async end(): Promise<void> {
    if (this.#holder.exitCode !== null || this.#holder.signalCode !== null) return;
    this.#holder.stdin?.end();
    await once(this.#holder, "exit");
  }
}

/** One host. */
export class Host {
  readonly name: string;
  readonly address: string;
  readonly #place: Place;
  readonly #plug: (...where: string[]) => Promise<void>;

  constructor(name: string, address: string, place: Place, plug: (...where: string[]) => Promise<void>) {
    this.name = name;
    this.address = address;
    this.#place = place;
    this.#plug = plug;
  }

  /** Start a command of trainyard. */
  trainyard(args: readonly string[], env: Variables = {}): Child {
    const all = { TRAINYARD_PYTHON: python, HF_HUB_OFFLINE: "1", ...env };
    const variables = Object.entries(all).map(([name, value]) => `${name}=${value}`);
    return new Child(this.#place.entering("env", ...variables, process.execPath, launcher, ...args), "/");
  }

  /** Start a node of Ray: the first of a cluster, or one more of the cluster of `head`. */
  async startRay(cpus: number, env: Variables, head?: Host): Promise<void> {
    const first = ["--head", "--port=6379", "--include-dashboard=false"];
    const place = head === undefined ? first : [`--address=${head.rayAddress}`];
    const sizes = [`--num-cpus=${cpus}`, `--object-store-memory=${100 << 20}`];
    const options = [`--node-ip-address=${this.address}`, "--disable-usage-stats"];
    const command = [python, "-m", "ray.scripts.scripts", "start", ...place, ...sizes, ...options];
    // Hosts share their memory with all that runs on this machine: how much there is, is not for Ray to say.
    const own = { RAY_AUTH_MODE: "token", RAY_worker_niceness: "0", RAY_memory_monitor_refresh_ms: "0" };
    await this.#place.run(command, { ...own, ...env });
  }

  /** Where a cluster is joined whose first node this is. */
  get rayAddress(): string {
    return `${this.address}:6379`;
  }

  /** Let all packets to and from it vanish. */
  cutOff(): Promise<void> {
    return this.#plug("nomaster");
  }

  reconnect(): Promise<void> {
    return this.#plug("master", "bridge");
  }

  /** Let it see an empty folder in place of one of this machine. */
  async hide(folder: string): Promise<void> {
    await this.#place.run(["mount", "-t", "tmpfs", "none", folder]);
  }

  /** Undo `hide`. */
  async show(folder: string): Promise<void> {
    await this.#place.run(["umount", folder]);
  }

  /** What of trainyard runs on it. */
  leftovers(): string[] {
    return this.#place.commands().filter((line) => /^ray::(Worker|VllmServer)Actor|trainyard/.test(line));
  }

  /** Every process ends at once, as in a power cut. */
  end(): Promise<void> {
    return this.#place.end();
  }
}

/** Hosts on one network. */
export class Hosts {
  readonly #hub: Place;
  readonly #all: Host[] = [];

  private constructor(hub: Place) {
    this.#hub = hub;
  }

  static async make(): Promise<Hosts> {
    return new Hosts(await Place.make(makeBridge));
  }

  /** One more host. */
  async add(): Promise<Host> {
    const number = this.#all.length + 1;
    const [name, address, wire] = [`host-${number}`, `10.77.0.${number}`, `wire${number}`];
    mkdirSync("/tmp/ray", { recursive: true });
    const setUp = [
      "mount -t tmpfs none /tmp/ray",
      "mount -t tmpfs none /dev/shm",
      `hostname ${name}`,
      "ip link set lo up",
      // As installers of Debian write it: by its name a host finds itself at an address where no other one does.
      `printf '127.0.0.1 localhost\\n127.0.1.1 ${name}\\n' > /dev/shm/hosts`,
      "mount --bind /dev/shm/hosts /etc/hosts",
    ];
    const place = await Place.make(setUp.join(" && "));
    const plug = (...where: string[]) => this.#hub.run(["ip", "link", "set", wire, "up", ...where]);
    const host = new Host(name, address, place, plug);
    this.#all.push(host);
    // Only in the hub's network: the host is named by its process, as it is seen from here.
    const wiring = ["ip", "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", `${place.pid}`];
    await execute("nsenter", [`--target=${this.#hub.pid}`, "--net", ...wiring]);
    await host.reconnect();
    await place.run(["ip", "address", "add", `${address}/24`, "dev", "eth0"]);
    await place.run(["ip", "link", "set", "eth0", "up"]);
    return host;
  }

  /** End all of them. */
  async end(): Promise<void> {
    await Promise.all(this.#all.map((host) => host.end()));
    await this.#hub.end();
  }
}
