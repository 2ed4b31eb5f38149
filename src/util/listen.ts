/** Start a server on a port, or explain why it cannot be started. */
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { codeOf, UserError } from "./errors.ts";

/** Listen; returns the port. Port 0 stands for any free one. */
export async function listen(server: Server, host: string, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(explainListen(error, host, port)));
    server.listen(port, host, resolve);
  });
  server.removeAllListeners("error");
  return (server.address() as AddressInfo).port; // a server that listens on a port has such an address
}

function explainListen(error: Error, host: string, port: number): Error {
  const reasons: Readonly<Record<string, string>> = {
    EADDRINUSE: `another program listens on port ${port} already. Choose another with --port, or --port 0 for any`,
    EACCES: `this account may not listen on port ${port}. Choose one above 1023 with --port`,
    EADDRNOTAVAIL: "this machine has no such address. Choose 127.0.0.1, 0.0.0.0 or one of its own with --host",
    ENOTFOUND: "this name has no address. Choose 127.0.0.1, 0.0.0.0 or an address of this machine with --host",
  };
  const reason = reasons[codeOf(error)];
  return reason === undefined ? error : new UserError(`Cannot listen on ${host}:${port}: ${reason}.`, { cause: error });
}
