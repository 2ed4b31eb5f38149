/**
 * Arrays in shared memory, by name, that every run uses again. They grow to the largest size asked for, so many batches
 * need no more memory than the largest one.
 */

export class Scratch {
  readonly #buffers = new Map<string, SharedArrayBuffer>();

  /** `length` floats; they still hold the values of the last use. */
  floats(name: string, length: number): Float32Array<SharedArrayBuffer> {
    return new Float32Array(this.#buffer(name, length * 4), 0, length);
  }

  ints(name: string, length: number): Int32Array<SharedArrayBuffer> {
    return new Int32Array(this.#buffer(name, length * 4), 0, length);
  }

  #buffer(name: string, bytes: number): SharedArrayBuffer {
    let buffer = this.#buffers.get(name);
    if (buffer === undefined || buffer.byteLength < bytes) {
      buffer = new SharedArrayBuffer(bytes);
      this.#buffers.set(name, buffer);
    }
    return buffer;
  }
}
