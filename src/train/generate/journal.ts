/**
 * Finished rows of a generation, kept beside its output until all rows are done.
 *
 * The first line holds the settings that the responses depend on; a journal of other settings is refused, with the names
 * and values that differ. Each further line is one row under a key made from its prompt, so rows may be added, removed or
 * moved in between. A line counts once it is on the disk; half a line, which a kill may leave at the end, does not.
 */
import { type FileHandle, open, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { messageOf, UserError } from "../../util/errors.ts";
import { explainWrite, syncDirectory } from "../../util/files.ts";

/** One row with its responses. */
const Entry = z.object({
  key: z.string(),
  responses: z.array(z.string()),
  /** Tokens of all responses. */
  tokens: z.number(),
  /** Responses that ended because the limit of tokens was reached. */
  cut: z.number(),
});
export type JournalEntry = z.infer<typeof Entry>;

const Header = z.object({ settings: z.record(z.string(), z.unknown()) });

/** What the responses depend on, by the names of config keys where there is one. */
export type Settings = Readonly<Record<string, unknown>>;

const newline = 10;

export class Journal {
  readonly path: string;
  /** The rows that were there when it was opened. */
  readonly entries: ReadonlyMap<string, JournalEntry>;
  readonly #file: FileHandle;
  #isClosed = false;
  #pending: string[] = [];
  #written: Promise<void> = Promise.resolve();

  private constructor(path: string, file: FileHandle, entries: ReadonlyMap<string, JournalEntry>) {
    this.path = path;
    this.#file = file;
    this.entries = entries;
  }

  /** Open the journal at `path`, whose folder exists, or begin one. */
  static async open(path: string, settings: Settings): Promise<Journal> {
    let file: FileHandle | null = null;
    try {
      file = await open(path, "a+");
      const bytes = await file.readFile();
      const whole = bytes.lastIndexOf(newline) + 1;
      if (whole < bytes.length) await file.truncate(whole);
      const entries = whole === 0 ? new Map<string, JournalEntry>() : read(path, bytes.subarray(0, whole), settings);
      if (whole === 0) {
        await file.writeFile(`${JSON.stringify({ settings })}\n`);
        await file.sync();
        await syncDirectory(dirname(path));
      }
      return new Journal(path, file, entries);
    } catch (error) {
      await file?.close();
      throw explainWrite(path, error);
    }
  }

  /** Add a row. When this returns, the row survives a power cut. Rows that are added together share one flush. */
  async append(entry: JournalEntry): Promise<void> {
    this.#pending.push(`${JSON.stringify(entry)}\n`);
    this.#written = this.#written.then(() => this.#flush());
    await this.#written;
  }

  async #flush(): Promise<void> {
    if (this.#pending.length === 0) return;
    const text = this.#pending.join("");
    this.#pending = [];
    try {
      await this.#file.appendFile(text);
      await this.#file.datasync();
    } catch (error) {
      throw explainWrite(this.path, error);
    }
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#file.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Close and delete it: its rows are in the output now. */
  async remove(): Promise<void> {
    await this.close();
    await rm(this.path, { force: true });
  }
}

function read(path: string, bytes: Buffer, settings: Settings): Map<string, JournalEntry> {
  const entries = new Map<string, JournalEntry>();
  let line = 0;
  for (let start = 0; start < bytes.length; line++) {
    const end = bytes.indexOf(newline, start);
    const text = bytes.toString("utf8", start, end);
    if (line === 0) checkSettings(path, parse(Header, path, text, line).settings, settings);
    else {
      const entry = parse(Entry, path, text, line);
      entries.set(entry.key, entry);
    }
    start = end + 1;
  }
  return entries;
}

function parse<T>(schema: z.ZodType<T>, path: string, text: string, line: number): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    throw new UserError(
      `${path}, line ${line + 1} is not what \`trainyard generate\` writes (${messageOf(error).split("\n")[0]}). ` +
        "Remove the line, or delete the file to start over.",
      { cause: error },
    );
  }
}

function checkSettings(path: string, before: Settings, now: Settings): void {
  const names = new Set([...Object.keys(before), ...Object.keys(now)]);
  // What was written is JSON; a default such as -0 or undefined must not look like a change.
  const plain: Settings = JSON.parse(JSON.stringify(now));
  const changed = [...names].filter((name) => !isDeepStrictEqual(before[name], plain[name]));
  if (changed.length === 0) return;
  const show = (value: unknown) => (value === undefined ? "not set" : JSON.stringify(value));
  const listed = changed.slice(0, 4).map((name) => `\`${name}\` was ${show(before[name])} and is ${show(plain[name])}`);
  throw new UserError(
    `${path} holds the finished rows of a run with other settings: ${listed.join(", ")}${changed.length > 4 ? ", …" : ""}. ` +
      "Go on with the same settings, delete that file to start over, or choose another `data.output_path`.",
  );
}
