/** What a verb is called with. */
export type Call = { readonly args: readonly string[]; readonly env: Readonly<Record<string, string | undefined>> };
