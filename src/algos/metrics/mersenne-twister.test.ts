import { expect, test } from "vitest";
import { MersenneTwister } from "./mersenne-twister.ts";

const draws = (seed: number, below: number, count: number) => {
  const random = new MersenneTwister(seed);
  return Array.from({ length: count }, () => random.int(below));
};

test("the ten-thousandth word of seed 5489 is that of the C++ standard's mt19937", () => {
  const random = new MersenneTwister(5489);
  for (let i = 1; i < 10_000; i++) random.bits();
  expect(random.bits()).toBe(4123659995);
});

// np.random.seed(seed); np.random.choice(below, 10)
test.each([
  [42, 8, [6, 3, 4, 6, 2, 7, 4, 4, 6, 1]],
  [7, 5, [4, 1, 3, 3, 4, 1, 0, 1, 2, 2]],
  [0, 1000, [684, 559, 629, 192, 835, 763, 707, 359, 9, 723]],
])("seed %i draws below %i what numpy draws", (seed, below, expected) => {
  expect(draws(seed, below, 10)).toEqual(expected);
});

test("a choice of one uses no word up", () => {
  const random = new MersenneTwister(3);
  random.int(1);
  expect(random.int(100)).toBe(new MersenneTwister(3).int(100));
});

test("draws stay below their bound and reach all of it", () => {
  for (const below of [1, 2, 3, 8, 9]) {
    expect(new Set(draws(1, below, 500)), `below ${below}`).toEqual(
      new Set(Array.from({ length: below }, (_, i) => i)),
    );
  }
});
