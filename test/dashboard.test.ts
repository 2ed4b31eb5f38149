/** The dashboard in Chromium: what people see, how fast, and that nothing in a run can take the page over. */
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type RunningDashboard, startDashboard } from "../src/dashboard/server.ts";
import type { NewGroup } from "../src/run/rollouts.ts";
import { claimRun } from "../src/run/run.ts";
import { setLevel } from "../src/util/log.ts";
import { configOf, writeRun, writeStep } from "./dashboard-yard.ts";

const executable = [
  process.env.CHROMIUM ?? "",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path !== "" && existsSync(path));

/** Others at work on the machine are not the dashboard's doing: what was measured is printed in any case. */
const slack = (): number => (loadavg()[0]! > availableParallelism() ? 3 : 1);

/** In the page: note the moment when the first screen of charts is on it. */
function markDrawn(): void {
  const observer = new MutationObserver(() => {
    if (document.querySelector(".chart .uplot canvas") === null) return;
    observer.disconnect();
    requestAnimationFrame(() => performance.mark("drawn"));
  });
  observer.observe(document, { childList: true, subtree: true });
}

const desktop = { width: 1440, height: 900 };
const phone = { width: 375, height: 812 };
const tabs = ["curves", "timeline", "rollouts", "validation", "config"];

const hostile = `<img src=x onerror="window.taken=1"><script>window.taken=1</script>"'><svg onload=window.taken=1>`;
const hostileGroups = (): NewGroup[] => [
  {
    prompt: hostile,
    truth: { [hostile]: hostile },
    source: hostile,
    episodes: [0, 1].map((score) => ({
      response: hostile,
      tokens: [hostile, "<b>", "</div>"],
      logprobs: [-1, -1, -1],
      advantages: [score, 0, 0],
      score,
      extra: { [hostile]: hostile },
    })),
  },
];

/** An answer in two turns of the policy, with the output of a tool between them. */
const toolGroups = (): NewGroup[] => [
  {
    prompt: "What is 2 + 3?",
    truth: "5",
    source: "sums",
    episodes: [
      {
        response: "add(2, 3)5It is 5.",
        tokens: ["add", "(2, 3)", "5", "It is", " 5."],
        logprobs: [-1, -1, 0, -1, -1],
        advantages: [1, 1, 0, 1, 1],
        score: 1,
        extra: {},
        turns: [
          { role: "assistant", start: 0, end: 2, finish_reason: "tool_calls" },
          { role: "tool", start: 2, end: 3 },
          { role: "assistant", start: 3, end: 5, finish_reason: "stop" },
        ],
        drawn: [1, 1, 0, 1, 1],
      },
    ],
  },
];

/** As many validation prompts as are shown, of which every tenth is answered wrong. */
const manyGroups = (): NewGroup[] =>
  Array.from({ length: 200 }, (_, i) => {
    const answer = { response: "yes", tokens: ["yes"], logprobs: [-1], score: i % 10 === 0 ? 0 : 1, extra: {} };
    return { prompt: `prompt ${i} of many`, truth: null, source: "many", episodes: [answer] };
  });

describe.skipIf(executable === undefined)(
  "the dashboard (skipped where there is no Chromium; CHROMIUM names one)",
  () => {
    let root: string;
    let browser: Browser;
    let dashboard: RunningDashboard;
    const open: { stop(): Promise<void> }[] = [];
    const troubles: string[] = [];

    beforeAll(async () => {
      setLevel("quiet");
      root = await mkdtemp(join(tmpdir(), "trainyard-browser-"));
      await writeRun(join(root, "sums", "long"), { steps: 10_000, validateEvery: 50 });
      await writeRun(join(root, "sums", "short"), { steps: 120, total: 200, seed: 2, lr: 3e-6, pace: 0.4 });
      await writeRun(join(root, "sick"), {
        steps: 100,
        pace: 0,
        rolloutsEvery: 0,
        change: () => ({ "actor/ppo_kl": 0.4 }),
      });
      await writeRun(join(root, "hostile <b>run"), {
        steps: 20,
        groups: hostileGroups,
        validateEvery: 1000,
        change: () => ({ [hostile]: 1, [`val-core/${hostile}/acc/mean@1`]: 1 }),
      });
      await writeRun(join(root, "sums", "many"), { steps: 3, validateEvery: 1, valGroups: manyGroups });
      await writeRun(join(root, "tools"), { steps: 2, groups: toolGroups, validateEvery: 1000 });
      dashboard = await startDashboard({ folder: root });
      browser = await chromium.launch({ ...(executable && { executablePath: executable }), args: ["--no-sandbox"] });
    });
    afterEach(async () => {
      for (const it of open.splice(0).reverse()) await it.stop();
      expect(troubles.splice(0)).toEqual([]);
    });
    afterAll(async () => {
      setLevel("info");
      await browser.close();
      await rm(root, { recursive: true });
    });

    async function start(folder = root): Promise<RunningDashboard> {
      const dashboard = await startDashboard({ folder });
      open.push(dashboard);
      return dashboard;
    }

    /** A page of its own; whatever goes wrong in it is kept. */
    async function newPage(options: BrowserContextOptions = {}): Promise<Page> {
      const context = await browser.newContext({ viewport: desktop, ...options });
      open.push({ stop: () => context.close() });
      const page = await context.newPage();
      page.on("pageerror", (error) => troubles.push(String(error.stack ?? error)));
      page.on("console", (message) => {
        if (message.type() === "error") troubles.push(message.text());
      });
      return page;
    }

    const ready: Readonly<Record<string, string>> = {
      curves: ".chart .uplot",
      timeline: ".lane",
      rollouts: ".tokens .t, .group .empty",
      validation: ".cell, .validation .empty",
      config: ".keys td",
    };

    async function show(page: Page, url: string, run: string, tab = "curves"): Promise<void> {
      await page.goto(`${url}/#/run/${encodeURIComponent(run)}/${tab}`);
      await page
        .locator(ready[tab] ?? "main")
        .first()
        .waitFor();
    }

    test("10,000 steps load in under a second, from a server that has read nothing yet", async () => {
      const took: number[] = [];
      for (let i = 0; i < 3; i++) {
        const { url, stop } = await startDashboard({ folder: join(root, "sums", "long") });
        const page = await newPage();
        await page.addInitScript(markDrawn);
        await show(page, url, ".");
        took.push(await page.evaluate(() => performance.getEntriesByName("drawn")[0]?.startTime ?? Number.NaN));
        await page.context().close();
        await stop();
      }
      console.info(`10,000 steps loaded in ${took.map(Math.round).join(", ")} ms`);
      expect(Math.min(...took)).toBeLessThan(1000 * slack());
    });

    test("an interaction takes less than 100 ms on 10,000 steps", async () => {
      const { url } = await start(join(root, "sums"));
      const page = await newPage();
      /** From an event to the frame that shows what came of it, the best of five. */
      const measure = async (selector: string, event: "input" | "change" | "click", values: readonly string[]) =>
        await page.evaluate(
          async ([query, name, all]) => {
            const times: number[] = [];
            for (const value of all) {
              const element = document.querySelector(query);
              const begin = performance.now();
              if (element instanceof HTMLInputElement || element instanceof HTMLSelectElement) element.value = value;
              element?.dispatchEvent(new Event(name, { bubbles: true }));
              await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
              times.push(performance.now() - begin);
            }
            return Math.min(...times);
          },
          [selector, event, values] as const,
        );
      const took: Record<string, number> = {};
      await show(page, url, "long");
      took.smoothing = await measure("#smoothing", "input", ["0.1", "0.9", "0.3", "0.99", "0.6"]);
      took["metric search"] = await measure("#metric-search", "input", ["loss", "actor", "", "rollout", ""]);
      await page.locator(".uplot").first().waitFor();
      took.zoom = await zoomTime(page);
      await show(page, url, "long", "rollouts");
      took["colour of tokens"] = await measure("[data-value=entropy]", "click", ["", "", "", "", ""]);
      took["order of responses"] = await measure(".rollouts select", "change", [
        "best",
        "worst",
        "sampled",
        "best",
        "worst",
      ]);
      await show(page, url, "long", "timeline");
      took["step of the timeline"] = await page.evaluate(async () => {
        const bars = document.querySelector(".bars");
        const times: number[] = [];
        for (const x of [100, 400, 700, 900, 200]) {
          const begin = performance.now();
          const box = bars?.getBoundingClientRect();
          const at = { clientX: (box?.left ?? 0) + x, clientY: (box?.top ?? 0) + 50, bubbles: true };
          bars?.dispatchEvent(new PointerEvent("pointermove", at));
          await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          times.push(performance.now() - begin);
        }
        return Math.min(...times);
      });
      console.info(
        Object.entries(took)
          .map(([what, ms]) => `${what} ${ms.toFixed(0)} ms`)
          .join(", "),
      );
      for (const [what, ms] of Object.entries(took)) expect([what, ms < 100 * slack()]).toEqual([what, true]);
    });

    /** Drag over a chart until the button that undoes it is there. */
    async function zoomTime(page: Page): Promise<number> {
      const box = await page.locator(".u-over").first().boundingBox();
      if (box === null) throw new Error("there is no chart");
      await page.mouse.move(box.x + 80, box.y + 40);
      await page.mouse.down();
      await page.mouse.move(box.x + 200, box.y + 60, { steps: 3 });
      const begin = performance.now();
      await page.mouse.up();
      await page.getByText("Reset zoom").waitFor();
      return performance.now() - begin;
    }

    test("a live run is on the page within two seconds, and so is one that resumes from an earlier step", async () => {
      const dir = join(root, "live");
      const story = { steps: 50, total: 50, rolloutsEvery: 1 };
      const claim = await claimRun(dir);
      const run = await claim.begin(configOf(story));
      try {
        for (let step = 1; step <= 3; step++) await writeStep(run, step, story);
        await run.saveCheckpoint(3, async () => {}, {});
        const { url } = await start(dir);
        const page = await newPage();
        await show(page, url, ".");
        await page.getByText("step 3 / 50").waitFor();
        expect(await page.locator(".pill.live").textContent()).toBe("live");
        const seen = async (step: number) => {
          const begin = performance.now();
          await page.getByText(`step ${step} / 50`).waitFor({ timeout: 5000 });
          expect(performance.now() - begin).toBeLessThan(2000);
        };
        for (let step = 4; step <= 6; step++) await writeStep(run, step, story);
        await seen(6);
        const lastValue = () => page.locator("[title='perf/throughput'] strong").textContent();
        await claim.close();
        const again = await claimRun(dir);
        const resumed = await again.begin(configOf(story));
        await writeStep(resumed, 4, { ...story, change: () => ({ "perf/throughput": 12_345 }) });
        await seen(4);
        await expect.poll(lastValue).toBe("12,345");
        await again.close();
        await page.locator(".pill.stopped").waitFor({ timeout: 3000 });
      } finally {
        await claim.close().catch(() => {});
        await rm(dir, { recursive: true });
      }
    });

    test("no text of a run becomes markup, wherever it is shown", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await page.goto(url);
      await page.locator(".run-row .name").first().waitFor();
      expect(await page.getByText("hostile <b>run").count()).toBe(1);
      for (const tab of tabs) {
        await show(page, url, "hostile <b>run", tab);
        if (tab === "rollouts") {
          expect(await page.locator(".tokens").first().textContent()).toBe(`${hostile}<b></div>`);
          await page.locator(".tokens .t").first().hover();
          await page.getByLabel("Find text in all rollouts").fill("<script>");
          await page.keyboard.press("Enter");
          await page.locator(".hit-row").first().click();
        }
        if (tab === "curves") {
          await page.getByLabel("Find a metric").fill("<img");
          await page.locator(`.chart h3`, { hasText: hostile }).first().waitFor();
        }
        await page.waitForTimeout(100);
        const found = await page.evaluate(() => ({
          taken: "taken" in window,
          images: document.querySelectorAll("img:not(.brand img)").length,
          bold: document.querySelectorAll("h1 b, .name b, .tokens b, pre *").length,
          scripts: document.querySelectorAll("body script, body svg:not(.spark)").length,
        }));
        expect([tab, found]).toEqual([tab, { taken: false, images: 0, bold: 0, scripts: 0 }]);
      }
    });

    test("markup that a script would put in is refused by the browser itself", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await page.goto(url);
      const refused = await page.evaluate(() => {
        try {
          document.body.innerHTML = "<img src=x onerror=window.taken=1>";
          return false;
        } catch {
          return true;
        }
      });
      expect(refused).toBe(true);
      troubles.splice(0); // the browser's own word on it
    });

    test.each([
      ["a phone", phone],
      ["a desktop", desktop],
    ])("no view is wider than the screen of %s", async (_, viewport) => {
      const { url } = dashboard;
      const page = await newPage({ viewport });
      const excess = () =>
        page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      await page.goto(url);
      await page.locator(".run-row .name").first().waitFor();
      expect(["overview", await excess()]).toEqual(["overview", 0]);
      for (const run of ["sums/long", "sick", "hostile <b>run"]) {
        for (const tab of tabs) {
          await show(page, url, run, tab);
          expect([run, tab, await excess()]).toEqual([run, tab, 0]);
        }
      }
    });

    test.each(["light", "dark"] as const)("text is readable in %s", async (colorScheme) => {
      const { url } = dashboard;
      const page = await newPage({ colorScheme });
      await show(page, url, "sick");
      /** WCAG's contrast of the text of an element on the first background behind it. */
      const contrasts = await page.evaluate(() => {
        const numbers = (color: string) => (color.match(/[\d.]+/g) ?? []).map(Number);
        const luminance = (color: string) => {
          const [r = 0, g = 0, b = 0] = numbers(color)
            .slice(0, 3)
            .map((it) => it / 255)
            .map((it) => (it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const isClear = (color: string) => numbers(color)[3] === 0;
        const behind = (element: Element): string => {
          const color = getComputedStyle(element).backgroundColor;
          return isClear(color) && element.parentElement !== null ? behind(element.parentElement) : color;
        };
        const of = (selector: string) => {
          const element = document.querySelector(selector);
          if (element === null) return 0;
          const [a, b] = [luminance(getComputedStyle(element).color), luminance(behind(element))];
          return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        };
        const all = [
          "h1 .own",
          ".tile .label",
          ".tile strong",
          ".chart h3",
          ".facts",
          ".pill",
          ".tabs a",
          ".warning strong",
        ];
        return { background: luminance(behind(document.body)), low: all.filter((it) => of(it) < 4.5) };
      });
      expect(contrasts.low).toEqual([]);
      expect(contrasts.background < 0.5).toBe(colorScheme === "dark");
    });

    test("runs are chosen in the overview, overlaid, and their configs compared", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await page.goto(url);
      await page.getByLabel("Compare sums/long").check();
      await page.getByLabel("Compare sums/short").check();
      await page.getByText("Compare 2 runs").click();
      const reward = page.locator("[data-chart=Reward]");
      await reward.locator(".uplot").waitFor();
      expect(await reward.locator(".label").allTextContents()).toEqual(["sums/long", "sums/short"]);
      await expect.poll(() => reward.locator(".value").allTextContents()).not.toContain("–");
      await page.getByRole("link", { name: "Config" }).click();
      await page.locator(".keys tbody tr").first().waitFor();
      const rows = await page.locator(".keys tbody tr").allTextContents();
      expect(rows.map((row) => row.replace(/[^a-z_.].*/, ""))).toEqual([
        "actor_rollout_ref.actor.optim.lr",
        "trainer.seed",
        "trainer.total_training_steps",
      ]);
      await page.getByText("All keys").click();
      expect(await page.locator(".keys tbody tr").count()).toBeGreaterThan(rows.length);
    });

    test("the config shows first what was set", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await show(page, url, "sums/short", "config");
      const keys = async () => (await page.locator(".keys tbody th").allTextContents()).sort();
      expect(await keys()).toEqual([
        "actor_rollout_ref.actor.optim.lr",
        "actor_rollout_ref.actor.optim.lr_warmup_steps",
        "actor_rollout_ref.model.path",
      ]);
      await page.getByText("All keys").click();
      expect((await keys()).length).toBeGreaterThan(10);
    });

    test("warnings say what was seen and what to try", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await show(page, url, "sick");
      expect(await page.locator(".pill.warned").textContent()).toBe("2 warnings");
      await page.getByText("Updates move the policy too far").click();
      const card = page.locator(".warning", { hasText: "Updates move" });
      expect(await card.textContent()).toMatch(
        /0\.4 nats per token.*What to try.*actor_rollout_ref\.actor\.optim\.lr/s,
      );
      expect(await card.locator("li").first().isVisible()).toBe(true);
    });

    test("any metric is found by a part of its name", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await show(page, url, "sums/short");
      await page.getByRole("button", { name: "rollout_corr/chi2_token" }).click();
      await page.locator('[data-chart="rollout_corr/chi2_token"] .uplot').waitFor();
      expect(await page.locator(".chart").count()).toBe(1);
      await page.getByLabel("Find a metric").fill("is nowhere");
      await page.getByText("No metric found").waitFor();
    });

    test("rollouts are shown by step and group, coloured, ordered and found", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await show(page, url, "sums/long", "rollouts");
      await page.getByText("step 10,000", { exact: true }).waitFor();
      await page.getByLabel("Find text in all rollouts").fill("So the answer is 60.");
      await page.keyboard.press("Enter");
      const hit = page.locator(".hit-row", { hasText: "train step" }).first();
      const step = /step ([\d,]*\d)/.exec((await hit.textContent()) ?? "")?.[1];
      await hit.click();
      await page.locator("output", { hasText: `step ${step}` }).waitFor();
      await expect.poll(() => page.locator(".t.hit").count()).toBeGreaterThan(0);

      await page.getByLabel("Order of responses").selectOption("best");
      const scores = (await page.locator(".responses .score").allTextContents()).map(Number);
      expect(scores).toEqual([...scores].sort((a, b) => b - a));

      const background = (locator: string) =>
        page
          .locator(locator)
          .first()
          .evaluate((element) => getComputedStyle(element).backgroundColor);
      await page.getByRole("button", { name: "Plain" }).click();
      expect(await background(".t.p5, .t.p4, .t.p3")).toBe("rgba(0, 0, 0, 0)");
      await page.getByRole("button", { name: "Log-prob" }).click();
      expect(await background(".t.p5, .t.p4, .t.p3")).not.toBe("rgba(0, 0, 0, 0)");
      await page.locator(".t").first().hover();
      expect(await page.locator(".tip").textContent()).toMatch(/probability\d+%log-prob-?[\d.]+.*entropy/);
    });

    test("an episode of several turns shows the role of each, and mutes what the policy did not draw", async () => {
      const page = await newPage();
      await show(page, dashboard.url, "tools", "rollouts");
      expect(await page.locator(".tokens .role").allTextContents()).toEqual(["assistant", "tool", "assistant"]);
      expect(await page.locator(".t.given").allTextContents()).toEqual(["5"]);
      expect(await page.locator(".t.up4").count()).toBe(4);
      const colour = (selector: string) =>
        page
          .locator(selector)
          .first()
          .evaluate((element) => getComputedStyle(element).color);
      expect(await colour(".t.given")).not.toBe(await colour(".t.up4"));
      await page.locator(".t.given").hover();
      expect(await page.locator(".tip").textContent()).toContain("tool, not drawn by the policy");
    });

    test("validation shows a prompt's responses from the first step to the last", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await show(page, url, "sums/long", "validation");
      expect(await page.locator(".matrix tbody tr").count()).toBe(6);
      await page.locator(".matrix tbody tr").nth(3).locator(".cell").nth(2).click();
      await page.locator(".at-step.chosen").waitFor();
      const steps = await page.locator(".at-step > h3").allTextContents();
      expect([steps.length, steps[0], steps.at(-1)]).toEqual([24, "Step 10,000", "Step 50"]);
    });

    test("validation shows responses beside the prompts, however many there are, and finds the wrong ones", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await show(page, url, "sums/many", "validation");
      expect(await page.locator(".matrix tbody tr").count()).toBe(200);
      await page.locator(".matrix tbody tr").nth(150).locator("th button").click();
      const card = page.locator(".history .prompt", { hasText: "prompt 150 " });
      await card.waitFor();
      const { top, height } = await card.evaluate((element) => ({
        top: element.getBoundingClientRect().top,
        height: innerHeight,
      }));
      expect(top).toBeGreaterThanOrEqual(0);
      expect(top).toBeLessThan(height / 2);
      await page.getByText("Wrong at the newest step").click();
      expect(await page.locator(".matrix tbody tr").count()).toBe(20); // every tenth answer is wrong
    });

    test("the timeline says which colour is which phase, each with its own", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await show(page, url, "sums/long", "timeline");
      const keys = page.locator(".timeline .legend .key");
      expect(await keys.allTextContents()).toContain("Update actor");
      const colours = await keys
        .locator(".swatch")
        .evaluateAll((swatches) => swatches.map((it) => getComputedStyle(it).backgroundColor));
      expect(new Set(colours).size).toBe(colours.length);
    });

    test("descriptions of charts are whole", async () => {
      const { url } = dashboard;
      const page = await newPage();
      await show(page, url, "sums/long", "curves");
      const isCut = (element: Element) => element.scrollWidth > element.clientWidth;
      for (const text of await page.locator(".chart .meaning, .chart h3").all())
        expect(await text.evaluate(isCut)).toBe(false);
    });

    test("the page says when the dashboard is gone", async () => {
      const dashboard = await startDashboard({ folder: join(root, "sick") });
      const page = await newPage();
      await show(page, dashboard.url, ".");
      await dashboard.stop();
      await page.getByText("The dashboard does not answer").waitFor({ timeout: 8000 });
      troubles.splice(0); // refused connections
    });
  },
);
