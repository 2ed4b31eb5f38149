import { expect, test } from "vitest";
import { Gate } from "./gate.ts";
import { ClientGone } from "./refusal.ts";

const limits = { maxPrompts: 3, timeoutMs: 10_000 };
const client = () => new AbortController();
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

test("a request is refused with 429 once as many prompts are under way as there may be", async () => {
  const gate = new Gate(limits);
  const one = await gate.enter(1, client().signal);
  const two = await gate.enter(5, client().signal); // a request that finds room comes in with all its prompts
  await expect(gate.enter(1, client().signal)).rejects.toMatchObject({ status: 429, code: "rate_limit_exceeded" });
  one.leave();
  one.leave(); // leaving twice counts once
  await expect(gate.enter(1, client().signal)).rejects.toMatchObject({ status: 429 });
  two.leave();
  (await gate.enter(1, client().signal)).leave();
  expect(gate.size).toBe(0);
});

test("a ticket ends with its client", async () => {
  const gate = new Gate(limits);
  const gone = client();
  const ticket = await gate.enter(1, gone.signal);
  gone.abort();
  expect(ticket.signal.reason).toBeInstanceOf(ClientGone);
  await expect(gate.enter(1, gone.signal)).rejects.toBeInstanceOf(ClientGone);
});

test("a ticket ends with the time limit", async () => {
  const ticket = await new Gate({ ...limits, timeoutMs: 5 }).enter(1, client().signal);
  await pause(20);
  expect(ticket.signal.reason).toMatchObject({ status: 504 });
});

test("a gate that stops refuses with 503 and waits for those inside", async () => {
  const gate = new Gate(limits);
  const ticket = await gate.enter(1, client().signal);
  let isStopped = false;
  const stopped = gate.stop(10_000).then(() => {
    isStopped = true;
  });
  await expect(gate.enter(1, client().signal)).rejects.toMatchObject({ status: 503 });
  await pause(5);
  expect({ isStopped, isAborted: ticket.signal.aborted }).toEqual({ isStopped: false, isAborted: false });
  ticket.leave();
  await stopped;
});

test("after the deadline those inside are ended", async () => {
  const gate = new Gate(limits);
  const ticket = await gate.enter(1, client().signal);
  ticket.signal.addEventListener("abort", () => ticket.leave());
  await gate.stop(5);
  expect(ticket.signal.reason).toMatchObject({ status: 503 });
});

test("work that must be alone waits for those inside, and those who come wait for it", async () => {
  const gate = new Gate(limits);
  const order: string[] = [];
  const first = await gate.enter(1, client().signal);
  const work = gate.alone(async () => {
    order.push(`work with ${gate.size} inside`);
    await pause(10);
    order.push("work done");
  });
  const second = gate.enter(1, client().signal).then((ticket) => {
    order.push("second inside");
    ticket.leave();
  });
  const impatient = client();
  const third = gate.enter(1, impatient.signal).catch((error) => order.push(error.name));
  impatient.abort();
  await third;
  order.push("first leaves");
  first.leave();
  await Promise.all([work, second]);
  expect(order).toEqual(["ClientGone", "first leaves", "work with 0 inside", "work done", "second inside"]);
});

test("work that must be alone and goes wrong does not close the gate", async () => {
  const gate = new Gate(limits);
  await expect(gate.alone(() => Promise.reject(new Error("no such folder")))).rejects.toThrow("no such folder");
  (await gate.enter(1, client().signal)).leave();
});
