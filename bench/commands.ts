/** How the sides of a bench are started: ours on this Node, the peers on Pythons that are made on demand. */
import { join } from "node:path";
import { type Environment, ensureVenv } from "../scripts/venv.ts";
import type { Command } from "./side.ts";

export function ourCommand(file: string): Command {
  return { file: process.execPath, args: [join(import.meta.dirname, file)] };
}

export function peerCommand(python: string, file: string): Command {
  const env = { HF_HUB_OFFLINE: "1", TRANSFORMERS_VERBOSITY: "error", PYTHONWARNINGS: "ignore" };
  return { file: python, args: [join(import.meta.dirname, "peers", file)], env };
}

/** A Python with what the peer needs: one that the environment names, else our own. */
export function pythonOf(environment: Environment): string {
  const given = {
    torch: process.env.TRAINYARD_PYTHON || process.env.TRAINYARD_TEST_PYTHON,
    llama: process.env.TRAINYARD_LLAMA_PYTHON,
  };
  return given[environment] || ensureVenv(environment);
}
