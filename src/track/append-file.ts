/**
 * A file that only grows, in complete pieces: each is written where the last complete one ended.
 *
 * If the disk took only half of a piece, the next try overwrites that half, so readers never see it twice. One process
 * writes. Nothing is flushed to the disk, because a tracker's file can be written again.
 */
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { dirname } from "node:path";
import { explainWrite } from "../util/files.ts";
import { Outbox } from "./outbox.ts";

export class AppendFile {
  readonly path: string;
  readonly #file: FileHandle;
  #end: number;

  private constructor(path: string, file: FileHandle, end: number) {
    this.path = path;
    this.#file = file;
    this.#end = end;
  }

  /** Open a file that starts with `kept`, whatever was in it before. */
  static async create(path: string, kept: Uint8Array): Promise<AppendFile> {
    try {
      await mkdir(dirname(path), { recursive: true });
      const file = await open(path, "w");
      const created = new AppendFile(path, file, 0);
      await created.append(kept);
      return created;
    } catch (error) {
      throw explainWrite(path, error);
    }
  }

  /** Where the next piece begins. */
  get end(): number {
    return this.#end;
  }

  /** Write a piece after the last complete one. */
  async append(piece: Uint8Array): Promise<void> {
    for (let done = 0; done < piece.length; ) {
      const { bytesWritten } = await this.#file.write(piece, done, piece.length - done, this.#end + done);
      done += bytesWritten;
    }
    this.#end += piece.length;
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}

/** An outbox whose items are pieces of the file. */
export function fileOutbox(name: string, file: AppendFile): Outbox<Uint8Array> {
  return new Outbox<Uint8Array>({
    name: `${name} (${file.path})`,
    sizeOf: (piece) => piece.length,
    send: async (piece) => {
      await file.append(piece);
      return undefined;
    },
  });
}
