/**
 * numpy's legacy random numbers: MT19937 (Matsumoto & Nishimura, 1998) seeded as `np.random.seed(seed)` seeds it, and
 * the whole numbers that `np.random.choice(n, size, replace=True)` draws from it.
 *
 * Only for what has to equal numpy's draws, such as verl's bootstrap; everything else uses `util/random.ts`.
 */
import { invariant } from "../../util/errors.ts";

const WORDS = 624;
const MIDDLE = 397;

export class MersenneTwister {
  readonly #words = new Uint32Array(WORDS);
  #position = WORDS;

  /** `seed` is a whole number in [0, 2^32), as numpy demands. */
  constructor(seed: number) {
    invariant(
      Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32,
      `a seed is a whole number below 2^32, not ${seed}`,
    );
    this.#words[0] = seed;
    for (let i = 1; i < WORDS; i++) {
      const previous = this.#words[i - 1]!;
      this.#words[i] = Math.imul(1812433253, previous ^ (previous >>> 30)) + i;
    }
  }

  /** A whole number in [0, 2^32). */
  bits(): number {
    if (this.#position === WORDS) this.#refill();
    let word = this.#words[this.#position++]!;
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  }

  /** A whole number in [0, below): the low bits of a word, drawn again while they are too large. */
  int(below: number): number {
    invariant(below >= 1 && below <= 2 ** 31, `there is nothing to draw below ${below}`);
    const largest = below - 1;
    if (largest === 0) return 0; // numpy uses no word up for a choice of one
    const mask = 2 ** (32 - Math.clz32(largest)) - 1;
    for (;;) {
      const drawn = this.bits() & mask;
      if (drawn <= largest) return drawn;
    }
  }

  #refill(): void {
    const words = this.#words;
    for (let i = 0; i < WORDS; i++) {
      const mixed = (words[i]! & 0x80000000) | (words[(i + 1) % WORDS]! & 0x7fffffff);
      words[i] = words[(i + MIDDLE) % WORDS]! ^ (mixed >>> 1) ^ (mixed & 1 ? 0x9908b0df : 0);
    }
    this.#position = 0;
  }
}
