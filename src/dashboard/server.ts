/**
 * The running dashboard: listens until it is stopped. It reads run folders and writes nothing.
 */
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { messageOf } from "../util/errors.ts";
import { listen } from "../util/listen.ts";
import { createApp } from "./app.ts";
import { checkHoldsRuns } from "./find-runs.ts";

type DashboardOptions = {
  /** A run folder, or a folder that holds runs at any depth. */
  readonly folder: string;
  /** The host to listen on; 127.0.0.1 if absent. */
  readonly host?: string;
  /** 0, the default, stands for any free port. */
  readonly port?: number;
};

export type RunningDashboard = {
  readonly url: string;
  stop(): Promise<void>;
};

/** Start the dashboard for the runs of a folder. */
export async function startDashboard(options: DashboardOptions): Promise<RunningDashboard> {
  const { folder, host = "127.0.0.1", port = 0 } = options;
  await checkHoldsRuns(folder);
  const app = createApp({ folder, host });
  const listener = getRequestListener((request) => app.fetch(request), {
    overrideGlobalObjects: false,
    errorHandler: (error) => Response.json({ error: messageOf(error) }, { status: 400 }),
  });
  const server = createServer((incoming, outgoing) => void listener(incoming, outgoing));
  const bound = await listen(server, host, port);
  app.warm().catch(() => {}); // the request that needs it will report the error
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${bound}`,
    async stop() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections(); // browsers keep theirs open, and stopping must not wait for them
      await closed;
    },
  };
}
