/**
 * Seeded random numbers whose whole state is four integers, so that a run can stop and resume exactly.
 *
 * The generator is xoshiro128** (Blackman & Vigna, https://prng.di.unimi.it), seeded through SplitMix32.
 */

type RandomState = readonly [number, number, number, number];

export class Random {
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  /** `key` derives independent streams from one seed: `new Random(seed, "shuffle", epoch)`. */
  constructor(seed: number, ...key: readonly (string | number)[]) {
    let mixed = seed >>> 0;
    for (const char of key.length === 0 ? "" : `/${key.join("/")}`)
      mixed = (Math.imul(mixed, 31) + char.codePointAt(0)!) >>> 0;
    const next = () => {
      mixed = (mixed + 0x9e3779b9) >>> 0;
      let z = mixed;
      z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
      return (z ^ (z >>> 15)) >>> 0;
    };
    this.#a = next();
    this.#b = next();
    this.#c = next();
    this.#d = next();
  }

  static restore(state: RandomState): Random {
    const random = new Random(0);
    [random.#a, random.#b, random.#c, random.#d] = state;
    return random;
  }

  state(): RandomState {
    return [this.#a, this.#b, this.#c, this.#d];
  }

  /** A whole number in [0, 2^32). */
  bits(): number {
    const scrambled = Math.imul(this.#b, 5);
    const result = Math.imul((scrambled << 7) | (scrambled >>> 25), 9) >>> 0;
    const t = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= t;
    this.#d = (this.#d << 11) | (this.#d >>> 21);
    return result;
  }

  /** A number in [0, 1) with 53 random bits. */
  uniform(): number {
    const high = this.bits() >>> 5;
    const low = this.bits() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }

  /** A whole number in [0, below). */
  int(below: number): number {
    return Math.floor(this.uniform() * below);
  }

  /** A normally distributed number (Box-Muller; the second value is not used, so that there is no hidden state). */
  normal(mean = 0, std = 1): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return mean + std * radius * Math.cos(2 * Math.PI * this.uniform());
  }

  /** A permutation of 0 … n-1 (Fisher-Yates). */
  permutation(n: number): Uint32Array {
    const order = Uint32Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = this.int(i + 1);
      const kept = order[i]!;
      order[i] = order[j]!;
      order[j] = kept;
    }
    return order;
  }
}
