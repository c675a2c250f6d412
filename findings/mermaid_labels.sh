#!/usr/bin/env bash
# Mermaid drops template arguments from a quoted label: scale<float> is drawn as scale.
#
# Versions: mermaid 11.17.0, jsdom 26.1.0, Node.js 20
# Guess: quotes make a label plain text, or an unknown tag is shown as it stands; at worst the parser refuses it.
# What happens: a label is sanitized as HTML while it is parsed, in quotes and in backquotes too: `<float>` is taken for
#   an unknown element and removed without an error, while `n < 4` and `n<4` stay, because no tag begins with a space or
#   a digit. `add<int, 4>` and `add<float, 8>` therefore look alike. Write `#60;` and `#62;`, or the entities of HTML.
#
# Output seen, which this script compares with what it prints:
#> scale<float> -> scale
#> `scale<float>` -> scale
#> add<int, 4> -> add
#> n < 4 and m > 2 -> n &lt; 4 and m &gt; 2
#> n<4 -> n&lt;4
#> scale&lt;float&gt; -> scale&lt;float&gt;
#> edge: reads x<float> -> reads x
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" mermaid@11.17.0 jsdom@26.1.0
cat >"$folder/program.mjs" <<'PROGRAM'
import { JSDOM } from "jsdom";

globalThis.window = new JSDOM("<!DOCTYPE html><body></body>").window;
globalThis.document = window.document;
const { default: mermaid } = await import("mermaid");
mermaid.initialize({ startOnLoad: false });
const labels = ["scale<float>", "`scale<float>`", "add<int, 4>", "n < 4 and m > 2", "n<4", "scale&lt;float&gt;"];
for (const label of labels) {
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(`flowchart TD\n a["${label}"]`);
  console.log(label, "->", db.getVertices().get("a").text);
}
const { db } = await mermaid.mermaidAPI.getDiagramFromText("flowchart TD\n a -->|reads x<float>| b");
console.log("edge: reads x<float>", "->", db.getEdges()[0].text);
PROGRAM
node "$folder/program.mjs" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
