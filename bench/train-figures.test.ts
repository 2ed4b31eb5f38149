import { describe, expect, test } from "vitest";
import { figure, figureLine, median } from "./figures.ts";
import { readProfile } from "./profile.ts";
import { withSection } from "./results.ts";
import { compare, remarkOn, shareFigures } from "./train-figures.ts";
import type { Step } from "./train-job.ts";
import type { Outcome } from "./turns.ts";

const measured = { bench: "train", label: "minimind2-small 8x256 train", tokens: 2048, warmUp: 1 };

function outcome(name: string, seconds: readonly number[], change: Partial<Step> = {}): Outcome<Step> {
  const answers = seconds.map((s) => ({ seconds: s, loss: 2, gradNorm: 3, peakBytes: 1e9, ...change }));
  return { name, answers, versions: {}, failure: null };
}

describe("a ratio", () => {
  test("is above 1 where ours is better, for what should be large and for what should be small", () => {
    const peer = { name: "torch-eager", value: 2 };
    expect(figure("train", { what: "tokens/s", unit: "", isMore: true }, 4, peer).ratio).toBe(2);
    expect(figure("train", { what: "step time", unit: "", isMore: false }, 1, peer).ratio).toBe(2);
  });

  test("is null in a line without a peer", () => {
    const line = figureLine(figure("train", { what: "step time", unit: "s", isMore: false }, 1.23456, null));
    const rest = { peer: null, theirs: null, ratio: null };
    expect(JSON.parse(line)).toEqual({ bench: "train", what: "step time", unit: "s", ours: 1.235, ...rest });
  });
});

test("the median of an even number of values lies between the two in the middle", () => {
  expect(median([9, 1, 3])).toBe(3);
  expect(median([9, 1, 3, 4])).toBe(3.5);
});

describe("a comparison", () => {
  test("leaves the warm-up out of the times", () => {
    const figures = compare(measured, [outcome("ours", [100, 2, 4]), outcome("torch-eager", [100, 4, 4])], () => {});
    expect(figures.map(({ what, ours, ratio }) => [what.replace(measured.label, "…"), ours, ratio])).toEqual([
      ["tokens/s … (best)", 1024, 2],
      ["tokens/s … (median)", 2048 / 3, 4 / 3],
      ["step time … (best)", 2, 2],
      ["step time … (median)", 3, 4 / 3],
      ["peak memory …", 1000, 1],
    ]);
  });

  test.each([
    { name: "a loss that is off by a five-hundredth", change: { loss: 2.004 } },
    { name: "a gradient norm that is off by a twentieth", change: { gradNorm: 3.15 } },
    { name: "a loss that is not a number", change: { loss: Number.NaN } },
  ])("stops at $name", ({ change }) => {
    const sides = [outcome("ours", [1, 1], change), outcome("torch-eager", [1, 1])];
    expect(() => compare(measured, sides, () => {})).toThrow(/At step 1 .* torch-eager/);
  });

  test("goes on without a peer that ended early, and says so", () => {
    const notes: string[] = [];
    const broken = { ...outcome("torch-compile", [1]), failure: "no compiler" };
    const sides = [outcome("ours", [1, 1]), outcome("torch-eager", [1, 1]), broken];
    const figures = compare(measured, sides, (note) => notes.push(note));
    expect(new Set(figures.map(({ peer }) => peer))).toEqual(new Set(["torch-eager"]));
    expect(notes.join()).toContain("torch-compile could not be measured");
  });
});

test("a remark says whether the aim was met, and names the aim when it was not", () => {
  const remark = (what: string, peer: string, ours: number, theirs: number) =>
    remarkOn(
      figure("train", { what, unit: "", isMore: what.startsWith("tokens") }, ours, { name: peer, value: theirs }),
    );
  expect(remark("tokens/s minimind2-small 8x256 train (best)", "torch-eager", 116, 100)).toMatch(/met$/);
  expect(remark("tokens/s minimind2-small 8x256 train (best)", "torch-eager", 114, 100)).toBe("below the aim of 1.15");
  expect(remark("peak memory minimind2-small 8x256 train", "torch-compile", 84, 100)).toMatch(/met$/);
  expect(remark("peak memory minimind2-small 8x256 train", "torch-compile", 90, 100)).toMatch(/above the aim of 0.85$/);
  expect(remark("peak memory qwen2.5-0.5b 2x256 train", "torch-eager", 14001, 9)).toBe("above the aim of 14000 MB");
  expect(remark("step time minimind2-small 8x256 train (best)", "torch-eager", 1, 2)).toBe("");
});

test("the first four shares make up the whole step", () => {
  const shares = {
    run: 1.8,
    graph: 1.75,
    products: { seconds: 1.5, flops: 2e11 },
    copies: 0.1,
    optimizer: 0.2,
    plain: { shape: "1x1x1", flopsPerSecond: 1.5e11 },
    operations: [],
  };
  const figures = shareFigures(shares, () => {}).slice(0, 4);
  expect(figures.reduce((total, { ours }) => total + ours, 0)).toBeCloseTo(100);
});

test("a profile's products are counted per run, whichever operand is transposed", () => {
  const kernel = (ts: number, op: string, left: number[], result: number[]) => ({
    cat: "Node",
    name: `${op}_kernel_time`,
    ts,
    dur: 10,
    args: { op_name: op, input_type_shape: [{ float: left }], output_type_shape: [{ float: result }] },
  });
  const run = (ts: number) => ({ cat: "Session", name: "model_run", ts, dur: 100, args: {} });
  const events = [
    kernel(1, "Gemm", [2, 3], [2, 5]),
    kernel(20, "FusedMatMul", [7, 3, 2], [7, 2, 5]),
    run(0),
    kernel(201, "Add", [2, 3], [2, 3]),
    run(200),
  ];
  const [first, second] = readProfile(JSON.stringify(events));
  expect(first?.products).toEqual({ seconds: 20e-6, flops: 2 * 2 * 3 * 5 * (1 + 7) });
  expect(second?.products.flops).toBe(0);
  expect(second?.operations.get("Add")).toBeCloseTo(10e-6);
});

test("a section of results.md replaces its older self and leaves the others alone", () => {
  const text = withSection(withSection("# Title\n", "train", "## train\nold"), "rollout", "## rollout\nkept");
  expect(withSection(text, "train", "## train\nnew")).toBe("# Title\n\n## train\nnew\n\n## rollout\nkept\n");
});
