/** The part of WebAssembly that the interpreters are loaded with; Node's types do not have it. */

export type Imports = Readonly<Record<string, Readonly<Record<string, unknown>>>>;
type ImportEntry = { readonly module: string; readonly name: string; readonly kind: string };

export type Memory = { readonly buffer: ArrayBuffer; grow(pages: number): number };

/** Bytes of a page. */
export const PAGE = 65536;

export const wasm = WebAssembly as unknown as {
  compile(bytes: Uint8Array): Promise<object>;
  instantiate(source: unknown, imports?: Imports): Promise<unknown>;
  Module: { imports(module: object): readonly ImportEntry[] };
  Memory: { new (descriptor: { initial: number; maximum: number }): Memory; prototype: Memory };
};
