/** `trainyard dashboard`: serve the page that shows runs, until Ctrl-C or SIGTERM ends it with exit code 0. */
import { UserError } from "../util/errors.ts";
import { flagVerb } from "./flag-verb.ts";

const defaultFolder = "checkpoints";

export const verb = flagVerb({
  flags: {
    host: { kind: "text", value: "HOST", doc: "address to listen on; 0.0.0.0 for all (127.0.0.1)" },
    port: { kind: "count", least: 0, most: 65535, fallback: 7117, doc: "port to listen on; 0 for any that is free" },
  },
  help,
  async run({ flags: { host = "127.0.0.1", port }, words: [folder = defaultFolder, extra] }) {
    if (extra !== undefined)
      throw new UserError(`Both ${folder} and ${extra} are folders. Name one, or the folder that holds both.`);
    const { startDashboard } = await import("../dashboard/server.ts");
    const dashboard = await startDashboard({ folder, host, port });
    process.stdout.write(`The dashboard of ${folder} is at ${dashboard.url}\nCtrl-C stops it.\n`);
    await signalled();
    await dashboard.stop();
    return 0;
  },
});

function signalled(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => resolve());
  });
}

function help(options: string): string {
  return `trainyard dashboard: a page that shows runs, live and finished ones.

Usage: trainyard dashboard [RUN] [options]

  trainyard dashboard
  trainyard dashboard checkpoints/project/experiment --port 0

RUN is a run folder, or a folder that holds runs at any depth (${defaultFolder}). Nothing in it is changed.

Options
${options}
`;
}
