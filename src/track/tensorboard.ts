/**
 * TensorBoard event files: metrics as scalars, the config and validation samples as text.
 *
 * Field numbers are those of tensorboard/compat/proto (event, summary, tensor). Each start of a run writes a new
 * file. The file of a resumed run tells TensorBoard to drop the steps after its start, which are repeated.
 */
import { hostname } from "node:os";
import { join } from "node:path";
import { Message } from "../util/protobuf.ts";
import { AppendFile, fileOutbox } from "./append-file.ts";
import type { Sample } from "./samples.ts";
import { tfRecord } from "./tfrecord.ts";
import type { TrackContext, Tracker } from "./tracker.ts";

/** Files of this process so far; TensorBoard reads them in the order of their names. */
let opened = 0;

export async function openTensorboard(context: TrackContext): Promise<Tracker> {
  const { config, startStep } = context;
  const now = Math.floor(Date.now() / 1000);
  const name = `events.out.tfevents.${String(now).padStart(10, "0")}.${hostname()}.${process.pid}.${opened++}`;
  const beginning = [event(0, new Message().string(3, "brain.Event:2"))]; // the version of the format
  if (startStep !== null) {
    const sessionStart = new Message().int(1, 1);
    beginning.push(event(startStep + 1, new Message().message(7, sessionStart)));
  }
  const fence = "```";
  beginning.push(text(startStep ?? 0, "config", `${fence}json\n${JSON.stringify(config, null, 2)}\n${fence}`));
  const file = await AppendFile.create(join(tensorboardDir(context), name), Buffer.concat(beginning));
  const outbox = fileOutbox("tensorboard", file);
  return {
    log(step, data) {
      const summary = new Message();
      for (const [tag, value] of Object.entries(data)) {
        summary.message(1, new Message().string(1, tag).float(2, value));
      }
      outbox.put(event(step, new Message().message(5, summary)));
    },
    logSamples: (step, samples) => outbox.put(text(step, "val/generations", samplesText(step, samples))),
    async close() {
      await outbox.close();
      await file.close();
    },
  };
}

/** TENSORBOARD_DIR, or `tensorboard_log/{project}/{experiment}` in the working directory. */
export function tensorboardDir({
  project,
  experiment,
  env,
}: Pick<TrackContext, "project" | "experiment" | "env">): string {
  return env.TENSORBOARD_DIR || join("tensorboard_log", project, experiment);
}

/** A record of the file: its time, its step, and one field of `Event` with the content. */
function event(step: number, what: Message): Uint8Array {
  const wallTime = Buffer.alloc(9);
  wallTime[0] = 1 * 8 + 1; // field 1, a double; a message is its fields one after another
  wallTime.writeDoubleLE(Date.now() / 1000, 1);
  return tfRecord(Buffer.concat([wallTime, new Message().int(2, step).finish(), what.finish()]));
}

/** A text, which TensorBoard renders as Markdown. */
function text(step: number, tag: string, markdown: string): Uint8Array {
  const dataTypeString = 7;
  const shape = new Message().message(2, new Message().int(1, 1)); // one dimension of size 1
  const tensor = new Message().int(1, dataTypeString).message(2, shape).string(8, markdown);
  const metadata = new Message().message(1, new Message().string(1, "text"));
  const value = new Message().string(1, `${tag}/text_summary`).message(8, tensor).message(9, metadata);
  return event(step, new Message().message(5, new Message().message(1, value)));
}

/** Samples as Markdown; text of the model is in a code block, so that none of it is read as Markdown. */
function samplesText(step: number, samples: readonly Sample[]): string {
  const block = (content: string) => content.replace(/^/gm, "    ");
  return samples
    .map(
      ({ input, output, score }, i) =>
        `### Step ${step}, sample ${i + 1}: score ${score}\n\n**input**\n\n${block(input)}\n\n**output**\n\n${block(output)}\n`,
    )
    .join("\n---\n\n");
}
