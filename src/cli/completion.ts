/**
 * `trainyard completion bash|zsh|fish`: a script that completes verbs, options and config keys with Tab.
 *
 * The script holds every word, so that completing starts no program. Each verb says which words can stand behind it.
 * Keys are completed part by part, and files after `=`.
 */
import { UserError, unknownName } from "../util/errors.ts";
import { flagVerb } from "./flag-verb.ts";
import { type Call, loadVerbs } from "./verb.ts";

/** A verb, and what can stand behind it. */
type Entry = { readonly verb: string; readonly summary: string; readonly words: readonly string[] };

const shells: Readonly<Record<string, (entries: readonly Entry[]) => string>> = { bash, zsh, fish };

export const verb = flagVerb({
  flags: {},
  help,
  words: Object.keys(shells),
  async run({ words: [shell, extra] }, call) {
    const known = Object.keys(shells);
    if (shell === undefined)
      throw new UserError(`The name of the shell is missing. Write trainyard completion ${known.join("|")}.`);
    if (extra !== undefined)
      throw new UserError(`\`${extra}\` is one word too many. Write trainyard completion ${shell}.`);
    const write = Object.hasOwn(shells, shell) ? shells[shell] : undefined;
    if (write === undefined) throw unknownName("The shell", shell, known);
    process.stdout.write(write(await entriesOf(call)));
    return 0;
  },
});

async function entriesOf({ verbs }: Call): Promise<Entry[]> {
  const loaded = await loadVerbs(verbs);
  const entries = loaded.map(([name, one]) => ({
    verb: name,
    summary: verbs[name]?.summary ?? "",
    words: one.words(),
  }));
  return [...entries, { verb: "help", summary: "the help of a verb", words: Object.keys(verbs) }];
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

/** A text in quotes that all three shells read; a quote in it becomes a typographic one. */
const quoted = (text: string): string => `'${text.replaceAll("'", "’")}'`;

function help(options: string): string {
  return `trainyard completion: complete verbs, options and config keys with Tab.

Usage: trainyard completion bash|zsh|fish

  trainyard completion bash > ~/.local/share/bash-completion/completions/trainyard
  trainyard completion zsh > "\${fpath[1]}/_trainyard"
  trainyard completion fish > ~/.config/fish/completions/trainyard.fish

Or for one shell session: source <(trainyard completion bash). Make it again after an update.

Options
${options}
`;
}
