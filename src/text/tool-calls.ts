/**
 * Tool calls in the text of a reply, in the format of Hermes and Qwen: `<tool_call>{"name": …, "arguments":
 * {…}}</tool_call>`, parsed while the text arrives.
 *
 * A call event comes when its name and the beginning of its arguments have arrived; its arguments follow as the model
 * writes them, and may not be complete JSON. Text that is not a valid call stays text: nothing is lost. The law: the
 * joined events do not depend on how the text was split into pieces. `callsRule` is the grammar of the format, for replies
 * that must be calls.
 */
import { choice, literal, type Rule, repeat, sequence } from "./grammar/rule.ts";
import { overlap } from "./stream.ts";

export const openTag = "<tool_call>";
export const closeTag = "</tool_call>";

/** A function that may be called, and the rule of its arguments. */
export type CallableTool = { readonly name: string; readonly arguments: Rule };

/** The replies that are calls of these functions, from one to `most`, as the chat templates of this format write them. */
export function callsRule(tools: readonly CallableTool[], most: number): Rule {
  const calls = tools.map(({ name, arguments: argument }) =>
    sequence(
      literal(`${openTag}\n{"name": ${JSON.stringify(name)}, "arguments": `),
      argument,
      literal(`}\n${closeTag}`),
    ),
  );
  const call = choice(calls);
  return sequence(call, repeat(sequence(literal("\n"), call), 0, most - 1));
}

/** A piece of a reply: text, a new call, or more of the arguments of the last call. */
export type ReplyEvent =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "call"; readonly index: number; readonly name: string }
  | { readonly kind: "arguments"; readonly index: number; readonly text: string };

export class ReplyReader {
  #calls = 0;
  /** Text that is held back: it may be the beginning of a tag, or space that is dropped before a call. */
  #text = "";
  #call: CallReader | null = null;
  #events: ReplyEvent[] = [];

  /** Read more of the reply. */
  push(piece: string): ReplyEvent[] {
    this.#read(piece);
    return this.#flush();
  }

  /** The reply is over. */
  end(): ReplyEvent[] {
    if (this.#call !== null) this.#close(this.#call);
    if (this.#calls === 0 || this.#text.trim() !== "") this.#emit(this.#text);
    this.#text = "";
    return this.#flush();
  }

  #read(piece: string): void {
    let rest = piece;
    while (rest !== "") rest = this.#call === null ? this.#readText(rest) : this.#readCall(this.#call, rest);
  }

  /** Emit text up to a call; returns the text after the opening tag. */
  #readText(piece: string): string {
    const text = this.#text + piece;
    const at = text.indexOf(openTag);
    const before = at >= 0 ? text.slice(0, at) : text.slice(0, text.length - overlap(text, openTag));
    const plain = before.trimEnd();
    this.#emit(plain);
    this.#text = at >= 0 ? "" : text.slice(plain.length);
    if (at < 0) return "";
    this.#call = new CallReader(before.slice(plain.length));
    return text.slice(at + openTag.length);
  }

  #readCall(call: CallReader, piece: string): string {
    const used = call.read(piece);
    this.#report(call);
    if (call.state === "open") return "";
    this.#close(call);
    return piece.slice(used);
  }

  #report(call: CallReader): void {
    if (call.name === null || call.ready === null) return;
    if (!call.isAnnounced) this.#events.push({ kind: "call", index: this.#calls++, name: call.name });
    call.isAnnounced = true;
    if (call.ready !== "") this.#events.push({ kind: "arguments", index: this.#calls - 1, text: call.ready });
    call.ready = "";
  }

  #close(call: CallReader): void {
    this.#call = null;
    if (call.isWhole && call.state !== "broken") call.ready ??= "{}"; // a function without arguments
    this.#report(call);
    if (!call.isAnnounced) this.#emit(call.raw);
  }

  #emit(text: string): void {
    if (text !== "") this.#events.push({ kind: "text", text });
  }

  #flush(): ReplyEvent[] {
    return this.#events.splice(0);
  }
}

/** Reads the JSON between two tags, character by character: it parses the keys of the outermost object, values stay raw. */
class CallReader {
  state: "open" | "closed" | "broken" = "open";
  isAnnounced = false;
  name: string | null = null;
  /** Arguments that are not emitted yet; null until they begin. */
  ready: string | null = null;
  /** The whole text, with the space before the tag: it is emitted as text if this is not a call. */
  raw: string;
  /** The outermost object is closed. */
  isWhole = false;

  /** 0 outside the object, 1 between its keys, more inside a value. */
  #depth = 0;
  #isInString = false;
  #isEscaped = false;
  #tag = "";
  #key: string | null = null;
  #isValue = false;
  #token = "";

  constructor(space: string) {
    this.raw = space + openTag;
  }

  /** Read until the call ends or breaks; returns how many characters were used. */
  read(piece: string): number {
    let i = 0;
    while (i < piece.length && this.state === "open") {
      const char = piece[i++]!;
      this.raw += char;
      this.#step(char);
    }
    return i;
  }

  #step(char: string): void {
    if (this.#tag !== "" || (char === "<" && !this.#isInString)) this.#readTag(char);
    else if (this.#isInString) this.#readString(char);
    else if (this.#depth > 1) this.#readNested(char);
    else this.#readTop(char);
  }

  /** A `<` outside a string can only be the closing tag; otherwise this is not JSON. */
  #readTag(char: string): void {
    const tag = this.#tag + char;
    if (closeTag.startsWith(tag)) {
      this.#tag = tag;
      if (tag === closeTag) this.state = "closed";
      return;
    }
    for (const kept of this.#tag) this.#keep(kept);
    this.#tag = "";
    this.#fail();
    if (this.state === "open") this.#step(char);
  }

  #readString(char: string): void {
    this.#keep(char);
    if (this.#isEscaped) this.#isEscaped = false;
    else if (char === "\\") this.#isEscaped = true;
    else if (char === '"') {
      this.#isInString = false;
      if (this.#depth === 1) this.#endToken();
    }
  }

  #readNested(char: string): void {
    this.#keep(char);
    if (char === '"') this.#isInString = true;
    else if (char === "{" || char === "[") this.#depth++;
    else if ((char === "}" || char === "]") && --this.#depth === 1) this.#endToken();
  }

  #readTop(char: string): void {
    if (/\s/.test(char)) return;
    if (this.#depth === 0) {
      if (char === "{" && !this.isWhole) this.#depth = 1;
      else this.#fail();
    } else if (char === "," || char === "}") {
      if (this.#token !== "") this.#endToken(); // a number, true, false or null
      this.#isValue = false;
      if (char === "}") this.#depth = 0;
      this.isWhole = char === "}";
    } else if (char === ":") this.#isValue = true;
    else if (char === '"') {
      this.#isInString = true;
      this.#keep(char);
    } else if (!this.#isValue) this.#fail();
    else {
      if (char === "{" || char === "[") this.#depth = 2;
      if (char === "{" && this.#isArguments()) this.ready ??= "";
      this.#keep(char);
    }
  }

  #isArguments(): boolean {
    return this.#isValue && (this.#key === "arguments" || this.#key === "parameters");
  }

  /** Arguments are emitted as they come; anything else is kept until it is complete. */
  #keep(char: string): void {
    if (this.#isArguments() && this.ready !== null) this.ready += char;
    else this.#token += char;
  }

  #endToken(): void {
    const token = this.#token;
    this.#token = "";
    if (!this.#isValue) this.#key = readJson(token);
    else if (this.#key === "name") {
      this.name = readJson(token);
      if (!this.name) this.#fail();
    } else if (this.#isArguments() && token !== "") this.ready = token === "null" ? "{}" : (readJson(token) ?? token);
  }

  /** With a name and arguments it is a call, even if the rest is not valid. */
  #fail(): void {
    if (this.name === null || this.ready === null) this.state = "broken";
  }
}

/** The value of a JSON string; null if it is not one. */
function readJson(token: string): string | null {
  try {
    const value: unknown = JSON.parse(token);
    return typeof value === "string" ? value : null;
  } catch {
    return null;
  }
}
