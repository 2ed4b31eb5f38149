import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { correctionOf } from "./config.ts";
import { type CorrectionConfig, correctionPresets, presetConfig } from "./presets.ts";
import { criteria } from "./rejection.ts";

describe("a configuration", () => {
  test("without any key corrects nothing", () => {
    expect(correctionOf({})).toEqual({
      importance: null,
      rejections: [],
      vetoBelow: null,
      isBypass: false,
      lossType: "ppo_clip",
      version: "0.9",
    });
  });

  test("gives bounds to all options or to each of them", () => {
    const boundsOf = (rollout_rs: string, rollout_rs_threshold: string | number) =>
      correctionOf({ rollout_rs, rollout_rs_threshold }).rejections.map(({ bounds }) => [bounds.lower, bounds.upper]);
    expect(boundsOf("seq_sum_k2,seq_mean_k3", "0.3")).toEqual([
      [0, 0.3],
      [0, 0.3],
    ]);
    expect(boundsOf("token_k1, seq_max_k3", "0.5_4, 0.2")).toEqual([
      [Math.log(0.5), Math.log(4)],
      [0, 0.2],
    ]);
    expect(boundsOf("token_k1,token_k1", 2)).toEqual([[Math.log(0.5), Math.log(2)]]);
    expect(boundsOf("geometric", 1.25)).toEqual([[0.8, 1.25]]);
    expect(boundsOf("geometric", "0.9_1.1")).toEqual([[0.9, 1.1]]);
  });

  test("overrides its preset key by key", () => {
    const changed = correctionOf({ preset: "decoupled_geo_rs_seq_tis", rollout_is_threshold: 5 });
    const plain = correctionOf({ preset: "decoupled_geo_rs_seq_tis" });
    expect(changed).toEqual({ ...plain, importance: { ...plain.importance, upper: 5 } });
    expect(correctionOf({ preset: "bypass_pg_is", rollout_is: null }).importance).toBeNull();
  });

  const mistakes: readonly (readonly [CorrectionConfig | Record<string, unknown>, string])[] = [
    [{ rolout_is: "token" }, "The key `rollout_correction.rolout_is` does not exist. Use one of rollout_is"],
    [{ rollout_is: "sequense" }, '`rollout_correction.rollout_is` is "sequense". Use one of sequence'],
    [{ rollout_is: "token", rollout_is_threshold: null }, "`rollout_is_threshold` is null"],
    [{ rollout_is: "token", rollout_is_threshold: 0 }, "`rollout_correction.rollout_is_threshold` is 0. Give a number"],
    [{ rollout_is: "token", rollout_is_threshold: true }, "is true. Give a number above 0"],
    [{ rollout_is: "token", rollout_is_threshold: "" }, 'is "". Give a number above 0, or a pair'],
    [{ rollout_is: "token", rollout_is_threshold: "2_0.5" }, "allows ratios from 2 to 0.5, that is none"],
    [{ rollout_is: "token", rollout_is_threshold: "1_2_3" }, 'is "1_2_3". Give a number'],
    [{ rollout_is: "token", rollout_is_threshold: Number.NaN }, "Give a number above 0"],
    [{ rollout_is_batch_normalize: "yes" }, '`rollout_correction.rollout_is_batch_normalize` is "yes". Set it to true'],
    [{ rollout_rs: "seq_mean_k4", rollout_rs_threshold: 1 }, "Use one of seq_mean_k1, seq_mean_k2, seq_mean_k3"],
    [{ rollout_rs: "seq_max_k1", rollout_rs_threshold: 1 }, "seq_max_k2"],
    [{ rollout_rs: " , ", rollout_rs_threshold: 1 }, "names no option"],
    [{ rollout_rs: 3, rollout_rs_threshold: 1 }, "`rollout_correction.rollout_rs` is 3. Give names"],
    [{ rollout_rs: "token_k1" }, "`rollout_rs_threshold` is null"],
    [
      { rollout_rs: "token_k1,token_k2", rollout_rs_threshold: "1.1,2,3" },
      'has 3 entries, "1.1,2,3", for the 2 options',
    ],
    [{ rollout_rs: "token_k2", rollout_rs_threshold: "0.1_0.2" }, "has no lower bound"],
    [{ rollout_rs: "token_k2", rollout_rs_threshold: "low" }, 'is "low". Give a number'],
    [{ rollout_rs: "seq_sum_k1", rollout_rs_threshold: 0.9 }, "a single bound u means 1/u to u and must be at least 1"],
    [
      { rollout_rs: "geometric,token_k1", rollout_rs_threshold: 2 },
      "geometric is a level of verl 0.7 and stands alone",
    ],
    [{ rollout_rs: "token_k1", rollout_rs_threshold: 2, rollout_rs_threshold_lower: 0.5 }, "token_k1 does not use"],
    [{ rollout_rs: "token", rollout_rs_threshold: "0.5_2", rollout_rs_threshold_lower: 0.5 }, "Give one of the two"],
    [
      { rollout_token_veto_threshold: -1 },
      "`rollout_correction.rollout_token_veto_threshold` is -1. Give a number above 0.",
    ],
    [{ loss_type: "reinforced" }, '`rollout_correction.loss_type` is "reinforced". Use one of reinforce'],
    [{ bypass_mode: 1 }, "`rollout_correction.bypass_mode` is 1. Set it to true or false"],
    [{ version: "0.8" }, '`rollout_correction.version` is "0.8". Use one of 0.7, 0.9'],
    [
      { preset: "decoupled_seqis" },
      'is "decoupled_seqis", which is not a preset of verl 0.9. Use one of decoupled_seq_is',
    ],
    [{ preset: "geo_rs_seq_tis" }, 'It is one of verl 0.7: set `rollout_correction.version` to "0.7"'],
    [{ preset: "toString" }, "is not a preset"],
  ];
  test.each(mistakes)("%j is refused", (config, message) => {
    const read = () => correctionOf(config as CorrectionConfig); // what a user can write is wider than the type
    expect(read).toThrow(UserError);
    expect(read).toThrow(message);
  });
});

describe("docs/rollout-correction.md", () => {
  const page = readFileSync(new URL("../../../docs/rollout-correction.md", import.meta.url), "utf8");

  test("has the row of every preset of both versions, and no other", () => {
    const rows = (["0.9", "0.7"] as const).flatMap((version) =>
      Object.keys(correctionPresets[version]).map((name) => {
        const { rollout_is, rollout_is_threshold, ...preset } = presetConfig(name, version);
        const weights = rollout_is == null ? "" : `${rollout_is} ${rollout_is_threshold}`;
        const rejection = preset.rollout_rs == null ? "" : `${preset.rollout_rs} ${preset.rollout_rs_threshold}`;
        const veto = preset.rollout_token_veto_threshold == null ? "" : `, veto ${preset.rollout_token_veto_threshold}`;
        const mode = preset.bypass_mode ? `bypass, ${preset.loss_type}` : "decoupled";
        return `| \`${name}\` | ${version} | ${mode} | ${weights} | ${rejection}${veto} |`.replaceAll("  ", " ");
      }),
    );
    expect(page.split("\n").filter((line) => /^\| `\w+` \| 0\.\d \|/.test(line))).toEqual(rows);
  });

  test("names every option of rejection", () => {
    for (const option of Object.keys(criteria)) expect(page).toContain(`\`${option}\``);
  });
});
