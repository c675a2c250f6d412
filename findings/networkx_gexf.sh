#!/usr/bin/env bash
# networkx writes GEXF that it cannot read, and the attribute `id` of a node renames it.
#
# Versions: networkx 3.6.1, CPython 3.11
# Guess: read_gexf takes what write_gexf wrote; a name with integers and floats becomes a double, as in write_graphml, or
#   is refused; attributes are data, and only `viz` and `label` mean something to the format.
# What happens: the first value decides the type of an attribute, and later ones are written as they are: 1 on one node and
#   2.5 on another make a file of type `long` that read_gexf refuses, and float first makes floats of all integers. A
#   node's attribute `id` becomes its identifier, also in the edges, and the node's name remains as its label alone. An
#   edge loses its attributes `type` and `key`, and gets an `id`.
#
# Output seen, which this script compares with what it prints:
#> nbytes 1, then 2.5: ValueError invalid literal for int() with base 10: '2.5'
#> nbytes 2.5, then 2**53 + 1: [2.5, 9007199254740992.0]
#> GraphML, 1, then 2.5: [1, 2.5]
#> nodes ['7', 'copy_out'] label copy_in
#> edge ('7', 'copy_out', {'id': '0', 'reason': 'RAW'})
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check networkx==3.6.1
cat >"$folder/program.py" <<'PROGRAM'
import sys
import networkx

path = sys.argv[1] + "/graph"

def again(graph, write=networkx.write_gexf, read=networkx.read_gexf):
    write(graph, path)
    return read(path)

def sizes(first, second, *functions):
    graph = networkx.DiGraph()
    graph.add_node("copy_in", nbytes=first)
    graph.add_node("copy_out", nbytes=second)
    return [data["nbytes"] for _, data in again(graph, *functions).nodes(data=True)]

try:
    print("nbytes 1, then 2.5:", sizes(1, 2.5))
except ValueError as error:
    print("nbytes 1, then 2.5: ValueError", error)
print("nbytes 2.5, then 2**53 + 1:", sizes(2.5, 2**53 + 1))
print("GraphML, 1, then 2.5:", sizes(1, 2.5, networkx.write_graphml, networkx.read_graphml))

graph = networkx.DiGraph()
graph.add_node("copy_in", id=7)
graph.add_edge("copy_in", "copy_out", type="hazard", key="x", reason="RAW")
read = again(graph)
print("nodes", list(read), "label", read.nodes["7"]["label"])
for source, target, data in read.edges(data=True):
    print("edge", (source, target, dict(sorted(data.items()))))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
