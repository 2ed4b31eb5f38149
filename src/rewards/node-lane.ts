/** A lane that is a Node process with one reward function loaded; `reward-process.ts` is what runs in it. */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { ownGroup, watch } from "./killable.ts";
import type { LaneEvent, OpenLane } from "./lane.ts";
import type { ProcessSettings } from "./reward-process.ts";

export function nodeLane(settings: ProcessSettings): OpenLane {
  const file = import.meta.url.endsWith(".ts") ? "./reward-process.ts" : "./reward-process.js";
  return (say) => {
    const child = fork(fileURLToPath(new URL(file, import.meta.url)), [], {
      ...ownGroup,
      execArgv: [`--max-old-space-size=${settings.memoryMb}`],
      serialization: "advanced", // rows keep their dates and big integers
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    const { stop } = watch({
      child,
      printed: [child.stdout, child.stderr],
      memoryMb: settings.memoryMb,
      onGone: (message) => say({ kind: "gone", message }),
    });
    let isStopped = false;
    child.on("message", (event) => isStopped || say(event as LaneEvent)); // only `reward-process.ts` sends
    const send = (message: object) => void child.send(message, () => {}); // if it cannot arrive, the process is gone
    send(settings);
    return {
      send,
      stop() {
        isStopped = true;
        return stop();
      },
    };
  };
}
