/** A program as text, one line per node, in the order it runs. */
import { type Node, topological } from "./node.ts";
import { formatShape } from "./shape.ts";

/** `%4 = matmul(%1, %2) {transB} : f32[n, 64]  # layers.0.mlp`, and a last line that names the outputs. */
export function print(outputs: Readonly<Record<string, Node>>): string {
  const names = new Map<Node, string>();
  const lines: string[] = [];
  for (const node of topological(Object.values(outputs))) {
    const name = node.op === "input" ? `@${node.attrs.name}` : `%${names.size}`;
    names.set(node, name);
    const args = node.inputs.map((x) => names.get(x)!).join(", ");
    const attrs = formatAttrs(node);
    const type = `${node.dtype}${formatShape(node.shape)}`;
    const path = node.path === "" ? "" : `  # ${node.path}`;
    lines.push(node.op === "input" ? `${name} : ${type}` : `${name} = ${node.op}(${args})${attrs} : ${type}${path}`);
  }
  const results = Object.entries(outputs).map(([name, node]) => `${name} = ${names.get(node)!}`);
  return [...lines, `return ${results.join(", ")}`].join("\n");
}

function formatAttrs(node: Node): string {
  if (node.op === "input") return "";
  const parts = Object.entries(node.attrs).flatMap(([key, value]) => {
    if (value === false || value === null || (key === "alpha" && value === 1)) return [];
    return value === true ? [key] : [`${key}=${Array.isArray(value) ? `[${value}]` : value}`];
  });
  return parts.length === 0 ? "" : ` {${parts.join(", ")}}`;
}
