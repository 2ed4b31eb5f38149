/**
 * Calls of functions in the text of a reply, in the form of Hermes and Qwen: `<tool_call>{"name": …, "arguments":
 * {…}}</tool_call>`, found while the text still arrives.
 *
 * A call is announced when its name and the beginning of its arguments are there; its arguments then follow as the
 * model writes them, which is not always JSON to the end. What does not become a call stays text: nothing is lost.
 * The law: events, joined, do not depend on how the text was cut into pieces.
 */
import { overlap } from "./stream.ts";

export const openTag = "<tool_call>";
export const closeTag = "</tool_call>";

/** A piece of a reply: text, a new call, or more of the arguments of the last call. */
export type ReplyEvent =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "call"; readonly index: number; readonly name: string }
  | { readonly kind: "arguments"; readonly index: number; readonly text: string };

export class ReplyReader {
  #calls = 0;
  /** Text that has not been given out: the beginning of a tag perhaps, or space that is dropped before a call. */
  #text = "";
  #call: CallReader | null = null;
  #events: ReplyEvent[] = [];

  /** Read more of the reply. */
  push(piece: string): ReplyEvent[] {
    this.#read(piece);
    return this.#take();
  }

  /** The reply is over. */
  end(): ReplyEvent[] {
    if (this.#call !== null) this.#close(this.#call);
    if (this.#calls === 0 || this.#text.trim() !== "") this.#say(this.#text);
    this.#text = "";
    return this.#take();
  }

  #read(piece: string): void {
    let rest = piece;
    while (rest !== "") rest = this.#call === null ? this.#readText(rest) : this.#readCall(this.#call, rest);
  }

  /** Give out text up to a call; returns what is behind the opening tag. */
  #readText(piece: string): string {
    const text = this.#text + piece;
    const at = text.indexOf(openTag);
    const before = at >= 0 ? text.slice(0, at) : text.slice(0, text.length - overlap(text, openTag));
    const said = before.trimEnd();
    this.#say(said);
    this.#text = at >= 0 ? "" : text.slice(said.length);
    if (at < 0) return "";
    this.#call = new CallReader(before.slice(said.length));
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
    if (!call.isAnnounced) this.#say(call.raw);
  }

  #say(text: string): void {
    if (text !== "") this.#events.push({ kind: "text", text });
  }

  #take(): ReplyEvent[] {
    return this.#events.splice(0);
  }
}

/** Reads the JSON between two tags, character by character; the keys of the outermost object matter, values are raw. */
class CallReader {
  state: "open" | "closed" | "broken" = "open";
  isAnnounced = false;
  name: string | null = null;
  /** Arguments that have not been given out; null until they begin. */
  ready: string | null = null;
  /** All of it, with the space before the tag: what is said when this is no call. */
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
    this.#breakOff();
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
      else this.#breakOff();
    } else if (char === "," || char === "}") {
      if (this.#token !== "") this.#endToken(); // a number, true, false or null
      this.#isValue = false;
      if (char === "}") this.#depth = 0;
      this.isWhole = char === "}";
    } else if (char === ":") this.#isValue = true;
    else if (char === '"') {
      this.#isInString = true;
      this.#keep(char);
    } else if (!this.#isValue) this.#breakOff();
    else {
      if (char === "{" || char === "[") this.#depth = 2;
      if (char === "{" && this.#isArguments()) this.ready ??= "";
      this.#keep(char);
    }
  }

  #isArguments(): boolean {
    return this.#isValue && (this.#key === "arguments" || this.#key === "parameters");
  }

  /** Arguments are given out as they come; anything else is kept until it is whole. */
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
      if (!this.name) this.#breakOff();
    } else if (this.#isArguments() && token !== "") this.ready = token === "null" ? "{}" : (readJson(token) ?? token);
  }

  /** Once name and arguments are there it is a call, whatever is wrong with the rest of it. */
  #breakOff(): void {
    if (this.name === null || this.ready === null) this.state = "broken";
  }
}

/** The text that a JSON string stands for; null if it is none. */
function readJson(token: string): string | null {
  try {
    const value: unknown = JSON.parse(token);
    return typeof value === "string" ? value : null;
  } catch {
    return null;
  }
}
