import { expect, test } from "vitest";
import { ClientGone } from "./request-error.ts";
import { RequestLimiter } from "./request-limiter.ts";

const limits = { maxPrompts: 3, timeoutMs: 10_000 };
const client = () => new AbortController();
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

test("a request gets a 429 if the maximum number of prompts is reached", async () => {
  const limiter = new RequestLimiter(limits);
  const one = await limiter.acquire(1, client().signal);
  const two = await limiter.acquire(5, client().signal); // a request that finds room comes in with all its prompts
  await expect(limiter.acquire(1, client().signal)).rejects.toMatchObject({ status: 429, code: "rate_limit_exceeded" });
  one.release();
  one.release(); // releasing twice counts once
  await expect(limiter.acquire(1, client().signal)).rejects.toMatchObject({ status: 429 });
  two.release();
  (await limiter.acquire(1, client().signal)).release();
  expect(limiter.size).toBe(0);
});

test("a permit ends with its client", async () => {
  const limiter = new RequestLimiter(limits);
  const gone = client();
  const permit = await limiter.acquire(1, gone.signal);
  gone.abort();
  expect(permit.signal.reason).toBeInstanceOf(ClientGone);
  await expect(limiter.acquire(1, gone.signal)).rejects.toBeInstanceOf(ClientGone);
});

test("a permit ends with the time limit", async () => {
  const permit = await new RequestLimiter({ ...limits, timeoutMs: 5 }).acquire(1, client().signal);
  await pause(20);
  expect(permit.signal.reason).toMatchObject({ status: 504 });
});

test("a limiter that stops refuses with 503 and waits for held permits", async () => {
  const limiter = new RequestLimiter(limits);
  const permit = await limiter.acquire(1, client().signal);
  let isStopped = false;
  const stopped = limiter.stop(10_000).then(() => {
    isStopped = true;
  });
  await expect(limiter.acquire(1, client().signal)).rejects.toMatchObject({ status: 503 });
  await pause(5);
  expect({ isStopped, isAborted: permit.signal.aborted }).toEqual({ isStopped: false, isAborted: false });
  permit.release();
  await stopped;
});

test("after the deadline held permits are aborted", async () => {
  const limiter = new RequestLimiter(limits);
  const permit = await limiter.acquire(1, client().signal);
  permit.signal.addEventListener("abort", () => permit.release());
  await limiter.stop(5);
  expect(permit.signal.reason).toMatchObject({ status: 503 });
});

test("exclusive work waits for held permits, and new requests wait for it", async () => {
  const limiter = new RequestLimiter(limits);
  const order: string[] = [];
  const first = await limiter.acquire(1, client().signal);
  const work = limiter.runExclusive(async () => {
    order.push(`work with ${limiter.size} inside`);
    await pause(10);
    order.push("work done");
  });
  const second = limiter.acquire(1, client().signal).then((permit) => {
    order.push("second inside");
    permit.release();
  });
  const impatient = client();
  const third = limiter.acquire(1, impatient.signal).catch((error) => order.push(error.name));
  impatient.abort();
  await third;
  order.push("first leaves");
  first.release();
  await Promise.all([work, second]);
  expect(order).toEqual(["ClientGone", "first leaves", "work with 0 inside", "work done", "second inside"]);
});

test("exclusive work that fails does not close the limiter", async () => {
  const limiter = new RequestLimiter(limits);
  await expect(limiter.runExclusive(() => Promise.reject(new Error("no such folder")))).rejects.toThrow(
    "no such folder",
  );
  (await limiter.acquire(1, client().signal)).release();
});
