/**
 * The container of a `.wandb` file: LevelDB's log format with a header of its own.
 *
 * The file is divided into blocks of 32 KiB; a record that does not fit in the rest of a block is continued in the next, in
 * pieces that say whether they are the whole, the first, a middle or the last one. Unlike LevelDB's, a checksum is a
 * plain CRC-32. https://github.com/google/leveldb/blob/main/doc/log_format.md
 */
import { crc32 } from "node:zlib";

const BLOCK = 32768;
const PIECE_HEADER = 7;

const whole = 1;
const first = 2;
const middle = 3;
const last = 4;

/** The header of every file: a name, a magic number and version 0. */
export const wandbHeader: Uint8Array = Uint8Array.of(...Buffer.from(":W&B"), 0xe1, 0xbe, 0);

/** The bytes of a record that begins at `offset` of its file. */
export function frameRecord(record: Uint8Array, offset: number): Uint8Array {
  const parts: Uint8Array[] = [];
  let room = BLOCK - (offset % BLOCK);
  if (room < PIECE_HEADER) {
    parts.push(new Uint8Array(room)); // too little for a piece: zeros
    room = BLOCK;
  }
  for (let done = 0, isFirst = true; ; isFirst = false, room = BLOCK) {
    const data = record.subarray(done, done + room - PIECE_HEADER);
    done += data.length;
    const isLast = done === record.length;
    parts.push(piece(isFirst ? (isLast ? whole : first) : isLast ? last : middle, data));
    if (isLast) return Buffer.concat(parts);
  }
}

function piece(type: number, data: Uint8Array): Uint8Array {
  const bytes = Buffer.alloc(PIECE_HEADER + data.length);
  bytes.writeUInt32LE(crc32(data, crc32(Uint8Array.of(type))), 0);
  bytes.writeUInt16LE(data.length, 4);
  bytes[6] = type;
  bytes.set(data, PIECE_HEADER);
  return bytes;
}
