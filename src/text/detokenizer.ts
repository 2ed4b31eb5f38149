/**
 * From tokens back to text, one token at a time: the decoders of a tokenizer.json as a chain of small stages.
 *
 * The rules are exactly those of Hugging Face's Rust `tokenizers`: a run of byte-fallback tokens that is not UTF-8 as a
 * whole becomes one U+FFFD per byte; byte-level text is decoded with the maximal-subpart rule. A stage holds back only
 * what a later token could still change, so the pieces that it has returned are final.
 */

/** Takes the next piece (`null` at the end) and returns the pieces that are now final. */
export type Stage = (piece: string | null) => readonly string[];

/** The `decoder` entry of a tokenizer.json. */
export type DecoderJson = {
  readonly type: string;
  readonly decoders?: readonly DecoderJson[];
  readonly pattern?: { readonly String?: string; readonly Regex?: string };
  readonly content?: string;
  readonly start?: number;
  readonly stop?: number;
  readonly replacement?: string;
  readonly prepend_scheme?: string;
  readonly add_prefix_space?: boolean;
};

/**
 * A function that makes a new chain for this decoder, or `null` if one of its parts cannot work token by token.
 *
 * `atStart: false` skips the rules for the beginning of a text (the space that is stripped there).
 */
export function decoderChain(decoder: DecoderJson | null): ((atStart: boolean) => Stage) | null {
  if (decoder === null) return (atStart) => joinWithSpaces(atStart);
  const makers: ((atStart: boolean) => Stage)[] = [];
  let isFused = false; // the output of Fuse or ByteLevel is a single token for the stages after it
  for (const part of decoder.type === "Sequence" ? (decoder.decoders ?? []) : [decoder]) {
    const maker = stageOf(part, isFused);
    if (maker === null) return null;
    makers.push(maker);
    isFused ||= part.type === "Fuse" || part.type === "ByteLevel";
  }
  return (atStart) => compose(makers.map((make) => make(atStart)));
}

/**
 * The bytes of a token in the middle of a text, or null if they depend on the tokens around it. The space that some
 * decoders strip at the beginning of a text is part of them.
 */
export function pieceBytes(decoder: DecoderJson | null): ((piece: string) => Uint8Array) | null {
  if (decoder === null || decoderChain(decoder) === null) return null;
  const parts = decoder.type === "Sequence" ? (decoder.decoders ?? []) : [decoder];
  if (parts.some(({ type }) => type === "ByteLevel")) return bytesOf;
  const hasFallback = parts.some(({ type }) => type === "ByteFallback");
  return (piece) => {
    const byte = hasFallback ? byteOf(piece) : null;
    if (byte !== null) return Uint8Array.of(byte);
    let text = piece;
    for (const { type, pattern, content = "", replacement = "▁" } of parts) {
      if (type === "Replace") text = text.replaceAll(pattern?.String ?? "", content);
      if (type === "Metaspace") text = text.replaceAll(replacement, " ");
    }
    return utf8Encoder.encode(text);
  };
}

function stageOf(part: DecoderJson, isFused: boolean): ((atStart: boolean) => Stage) | null {
  const { content = "", start = 0, stop = 0 } = part;
  switch (part.type) {
    case "ByteLevel":
      return isFused ? null : byteLevel;
    case "ByteFallback":
      return isFused ? null : byteFallback;
    case "Fuse":
      return () => perPiece((piece) => piece);
    case "Replace": {
      const from = part.pattern?.String;
      // After a Fuse a longer pattern could match across two pieces.
      if (from === undefined || from === "" || (isFused && [...from].length > 1)) return null;
      return () => perPiece((piece) => piece.replaceAll(from, content));
    }
    case "Strip":
      if (!isFused) return () => perPiece((piece) => strip(piece, { content, start, stop }));
      return stop > 0 ? null : (atStart) => stripOnce(content, atStart ? start : 0);
    case "Metaspace":
      return isFused ? null : (atStart) => metaspace(part, atStart);
    default:
      return null;
  }
}

function compose(stages: readonly Stage[]): Stage {
  if (stages.length === 1) return stages[0]!;
  return (piece) => {
    let pieces: readonly string[] = piece === null ? [] : [piece];
    for (const stage of stages) {
      const changed = pieces.flatMap((each) => stage(each));
      pieces = piece === null ? [...changed, ...stage(null)] : changed;
    }
    return pieces;
  };
}

/** A stage without state. */
function perPiece(change: (piece: string) => string): Stage {
  return (piece) => (piece === null ? [] : [change(piece)]);
}

/** A tokenizer without a decoder joins its tokens with spaces. */
function joinWithSpaces(atStart: boolean): Stage {
  let isFirst = atStart;
  return (piece) => {
    if (piece === null) return [];
    const separator = isFirst ? "" : " ";
    isFirst = false;
    return [separator + piece];
  };
}

function metaspace(part: DecoderJson, atStart: boolean): Stage {
  const { replacement = "▁", prepend_scheme = part.add_prefix_space === false ? "never" : "always" } = part;
  let isFirst = atStart && prepend_scheme !== "never";
  return perPiece((piece) => {
    const space = isFirst ? "" : " ";
    isFirst = false;
    return piece.replaceAll(replacement, space);
  });
}

function strip(piece: string, rule: { content: string; start: number; stop: number }): string {
  let from = 0;
  let to = piece.length;
  while (from < rule.start && piece[from] === rule.content) from++;
  while (piece.length - to < rule.stop && to > from && piece[to - 1] === rule.content) to--;
  return piece.slice(from, to);
}

/** Strip up to `count` characters from the beginning of the whole text. */
function stripOnce(content: string, count: number): Stage {
  let left = count;
  return perPiece((piece) => {
    let from = 0;
    while (left > 0 && from < piece.length) {
      if (piece[from] !== content) left = 0;
      else {
        from++;
        left--;
      }
    }
    return from === 0 ? piece : piece.slice(from);
  });
}

const utf8Encoder = new TextEncoder();

/** Tokens such as `<0xE4>` are bytes; a run of them is text if it is UTF-8, and one U+FFFD per byte if not. */
function byteFallback(): Stage {
  const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let run: number[] = [];
  const flush = (): string => {
    const bytes = Uint8Array.from(run);
    run = [];
    try {
      return utf8.decode(bytes);
    } catch {
      return "\ufffd".repeat(bytes.length);
    }
  };
  return (piece) => {
    const byte = piece === null ? null : byteOf(piece);
    if (byte !== null) {
      run.push(byte);
      return [];
    }
    const pieces = run.length > 0 ? [flush()] : [];
    if (piece !== null) pieces.push(piece);
    return pieces;
  };
}

function byteOf(piece: string): number | null {
  return piece.length === 6 && /^<0x[0-9A-Fa-f]{2}>$/.test(piece) ? Number.parseInt(piece.slice(3, 5), 16) : null;
}

/** GPT-2's printable characters for the 256 bytes, from character code to byte; -1 for other characters. */
const byteOfChar: Int16Array = (() => {
  const table = new Int16Array(512).fill(-1);
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    table[isPrintable ? byte : next++] = byte;
  }
  return table;
})();

/** The bytes of a byte-level token; a token with any other character (an added token) is UTF-8 text. */
function bytesOf(piece: string): Uint8Array {
  const bytes = new Uint8Array(piece.length);
  for (let i = 0; i < piece.length; i++) {
    const byte = byteOfChar[piece.charCodeAt(i)] ?? -1;
    if (byte < 0) return utf8Encoder.encode(piece);
    bytes[i] = byte;
  }
  return bytes;
}

function byteLevel(): Stage {
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  let isBetweenCharacters = true;
  return (piece) => {
    if (piece === null) return isBetweenCharacters ? [] : [utf8.decode()];
    const bytes = bytesOf(piece);
    if (bytes.length === 0) return [];
    if (isBetweenCharacters && bytes.every((byte) => byte < 0x80)) return [String.fromCharCode(...bytes)];
    // An ASCII byte ends any incomplete character before it, so nothing is pending after it.
    isBetweenCharacters = bytes[bytes.length - 1]! < 0x80;
    return [utf8.decode(bytes, { stream: true })];
  };
}
