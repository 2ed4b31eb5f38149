/**
 * `trainyard completion bash|zsh|fish`: a script that completes verbs, options and config keys with Tab.
 *
 * The script holds every word, so that completing starts no program. Keys come from the schemas, options from the help
 * texts: what help names can be completed, and nothing else. Keys are completed part by part, and files after `=`.
 */
import { UserError, unknownName } from "../util/errors.ts";
import type { Call } from "./call.ts";

/** A verb as `main.ts` has it. */
export type CompletedVerb = { readonly summary: string; load(): Promise<{ run(call: Call): Promise<number> }> };

/** What can stand after a verb. */
type Entry = { readonly verb: string; readonly summary: string; readonly words: readonly string[] };

const shells: Readonly<Record<string, (entries: readonly Entry[]) => string>> = { bash, zsh, fish };

/** Run the verb; returns the exit code. */
export async function complete({ args }: Call, verbs: Readonly<Record<string, CompletedVerb>>): Promise<number> {
  const [shell, extra] = args;
  if (shell === "--help" || shell === "-h") {
    process.stdout.write(help);
    return 0;
  }
  const known = Object.keys(shells);
  if (shell === undefined)
    throw new UserError(`Which shell is missing. Write trainyard completion ${known.join("|")}.`);
  if (extra !== undefined)
    throw new UserError(`\`${extra}\` is one word too many. Write trainyard completion ${shell}.`);
  const write = Object.hasOwn(shells, shell) ? shells[shell] : undefined;
  if (write === undefined) throw unknownName("The shell", shell, known);
  const entries: Entry[] = [];
  for (const [verb, { summary, load }] of Object.entries(verbs)) {
    const own = verb === "completion" ? known : [...(await keysOf(verb)), ...(await optionsOf(load))];
    entries.push({ verb, summary, words: own });
  }
  entries.push({ verb: "help", summary: "the help of a verb", words: Object.keys(verbs) });
  process.stdout.write(write(entries));
  return 0;
}

async function keysOf(verb: string): Promise<string[]> {
  const [{ schemas }, { fieldsOf }] = await Promise.all([
    import("../config/schemas.ts"),
    import("../config/schema.ts"),
  ]);
  const schema = schemas.find((one) => one.verb === verb);
  if (schema === undefined) return [];
  const trees = [schema, ...Object.values(schema.engines ?? {})].map(({ fields }) => fields);
  return trees.flatMap((tree) => [...fieldsOf(tree).keys()].map((key) => `${key}=`));
}

/** The options that begin a line of a verb's help. */
async function optionsOf(load: CompletedVerb["load"]): Promise<string[]> {
  const text = await printed(async () => (await load()).run({ args: ["--help"], env: {} }));
  return [...new Set([...text.matchAll(/^ {2}(--[a-z][\w-]*)/gm)].map(([, option = ""]) => option))];
}

/** What `work` writes to stdout, which a verb's help does. */
async function printed(work: () => Promise<unknown>): Promise<string> {
  const { stdout } = process;
  const { write } = stdout;
  let text = "";
  stdout.write = (chunk: string | Uint8Array) => {
    text += chunk;
    return true;
  };
  try {
    await work();
  } finally {
    stdout.write = write;
  }
  return text;
}

const names = (entries: readonly Entry[]): string =>
  [...entries.map(({ verb }) => verb), "--help", "--version"].join(" ");

function bash(entries: readonly Entry[]): string {
  return `# Completion of trainyard for bash; made by: trainyard completion bash
_trainyard() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" words="" word rest found=""
  COMPREPLY=()
  # Bash cuts words at "=": what stands behind it is a value, most likely a file.
  if [ "$cur" = "=" ]; then cur=""; fi
  if [ "\${COMP_WORDS[COMP_CWORD]}" = "=" ] || [ "\${COMP_WORDS[COMP_CWORD-1]}" = "=" ]; then
    type compopt >/dev/null 2>&1 && compopt -o filenames
    COMPREPLY=($(compgen -f -- "$cur"))
    return
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${names(entries)}" -- "$cur"))
    return
  fi
  case "\${COMP_WORDS[1]}" in
${entries.map(({ verb, words }) => `    ${verb}) words="${words.join(" ")}" ;;`).join("\n")}
  esac
  for word in $words; do
    case "$word" in "$cur"*) ;; *) continue ;; esac
    rest="\${word#"$cur"}"
    case "$rest" in *.*) word="$cur\${rest%%.*}." ;; esac
    case " $found " in *" $word "*) ;; *) found="$found $word" ;; esac
  done
  COMPREPLY=($found)
  case "\${COMPREPLY[0]}" in *. | *=) type compopt >/dev/null 2>&1 && compopt -o nospace ;; esac
}
complete -o default -F _trainyard trainyard
`;
}

function zsh(entries: readonly Entry[]): string {
  const described = entries.map(({ verb, summary }) => `    ${quoted(`${verb}:${summary.replaceAll(":", "\\:")}`)}`);
  return `#compdef trainyard
# Completion of trainyard for zsh; made by: trainyard completion zsh
_trainyard() {
  local -a verbs known found
  local word rest
  verbs=(
${described.join("\n")}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  case "$words[2]" in
${entries.map((entry) => `    ${entry.verb}) known=(${entry.words.join(" ")}) ;;`).join("\n")}
  esac
  if [[ "$PREFIX" == *=* ]]; then
    compset -P '*='
    _files
    return
  fi
  for word in $known; do
    [[ "$word" == "$PREFIX"* ]] || continue
    rest="\${word#"$PREFIX"}"
    if [[ "$rest" == *.* ]]; then word="$PREFIX\${rest%%.*}."; fi
    found+=("$word")
  done
  if (( \${#found} == 0 )); then
    _files
    return
  fi
  for word in \${(u)found}; do
    case "$word" in *.|*=) compadd -S '' -- "$word" ;; *) compadd -- "$word" ;; esac
  done
}
if [ "$funcstack[1]" = "_trainyard" ]; then _trainyard "$@"; else compdef _trainyard trainyard; fi
`;
}

function fish(entries: readonly Entry[]): string {
  const isFirst = quoted("test (count (commandline -opc)) -eq 1");
  const isAfter = (verb: string) =>
    quoted(`test (count (commandline -opc)) -gt 1; and test (commandline -opc)[2] = ${verb}`);
  const lines = entries.flatMap(({ verb, summary, words }) => [
    `complete -c trainyard -f -n ${isFirst} -a ${verb} -d ${quoted(summary)}`,
    ...(words.length === 0 ? [] : [`complete -c trainyard -n ${isAfter(verb)} -a ${quoted(words.join(" "))}`]),
  ]);
  return `# Completion of trainyard for fish; made by: trainyard completion fish
complete -c trainyard -f -n ${isFirst} -a '--help --version'
${lines.join("\n")}
`;
}

/** A text as all three shells read it; none of ours has a quote in it that would need more. */
const quoted = (text: string): string => `'${text.replaceAll("'", "’")}'`;

const help = `trainyard completion: complete verbs, options and config keys with Tab.

Usage: trainyard completion bash|zsh|fish

  trainyard completion bash > ~/.local/share/bash-completion/completions/trainyard
  trainyard completion zsh > "\${fpath[1]}/_trainyard"
  trainyard completion fish > ~/.config/fish/completions/trainyard.fish

Or for one shell session: source <(trainyard completion bash). Make it anew after an update.

Options
  --help  this text
`;
