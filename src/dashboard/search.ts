/**
 * Search for text in a run's rollouts, newest first, a part of the file at a time.
 *
 * Lines are searched as raw text, ignoring case, and only those that may contain the text are parsed. A call ends after
 * 200 ms with what it has found, and says where the next call continues.
 */
import { parseRollouts, type RolloutEntry, type Rollouts, type RolloutsReader } from "../run/rollouts.ts";
import type { SearchHit, SearchPage } from "./api.ts";

const budgetMs = 200;
const mostHits = 40;
const around = 60;
const blockBytes = 1 << 20;

/** Search from the line that starts before the offset `before`; null for the end of the file. */
export async function searchRollouts(
  rollouts: RolloutsReader,
  text: string,
  before: number | null,
): Promise<SearchPage> {
  const wanted = text.toLowerCase();
  const written = JSON.stringify(text).slice(1, -1).toLowerCase();
  const lines = newestFirst(rollouts).filter(({ start }) => before === null || start < before);
  const hits: SearchHit[] = [];
  const begin = performance.now();
  for (let done = 0; done < lines.length; ) {
    const block = blockAt(lines, done);
    for (const [i, line] of (await rollouts.readTexts(block)).entries()) {
      const small = line.toLowerCase();
      if (!small.includes(written) && !small.includes(wanted)) continue;
      hits.push(...hitsIn(parseRollouts(line), wanted));
      if (hits.length >= mostHits) return pageOf(hits, lines, done + i + 1);
    }
    done += block.length;
    if (performance.now() - begin > budgetMs) return pageOf(hits, lines, done);
  }
  return pageOf(hits, lines, lines.length);
}

const pageOf = (hits: readonly SearchHit[], lines: readonly RolloutEntry[], done: number): SearchPage => ({
  hits,
  left: lines.length - done,
  next: done < lines.length ? lines[done - 1]!.start : null,
});

/** The lines that are read together: about a megabyte, or one line that is longer. */
function blockAt(lines: readonly RolloutEntry[], from: number): RolloutEntry[] {
  let end = from + 1;
  for (let bytes = lines[from]!.bytes; end < lines.length && bytes < blockBytes; end++) bytes += lines[end]!.bytes;
  return lines.slice(from, end);
}

function newestFirst(rollouts: RolloutsReader): RolloutEntry[] {
  return [...rollouts.entries("train"), ...rollouts.entries("val")].sort((a, b) => b.start - a.start);
}

function hitsIn(line: Rollouts | null, wanted: string): SearchHit[] {
  if (line === null) return [];
  const { step, kind, groups } = line;
  return groups.flatMap(({ prompt, truth, episodes }, group) => {
    const shared = [prompt, typeof truth === "string" ? truth : JSON.stringify(truth)];
    const own = shared.flatMap((text) => excerptOf(text, wanted)).slice(0, 1);
    return [
      ...own.map((found) => ({ step, kind, group, episode: null, score: null, ...found })),
      ...episodes.flatMap(({ response, score }, episode) =>
        excerptOf(response, wanted).map((found) => ({ step, kind, group, episode, score, ...found })),
      ),
    ];
  });
}

/** The text around the first match, on one line; none if there is no match. */
function excerptOf(text: string, wanted: string): { excerpt: string; at: number }[] {
  const place = text.toLowerCase().indexOf(wanted);
  if (place < 0) return [];
  const start = Math.max(0, place - around);
  const excerpt = text.slice(start, place + wanted.length + around).replace(/\s/g, " ");
  return [{ excerpt, at: place - start }];
}
