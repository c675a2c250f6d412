#!/usr/bin/env bash
# networkx writes the names matmul:0 and std::sort by pydot as ports of the nodes matmul and std, which are one node then.
#
# Versions: networkx 3.6.1, pydot 4.0.1, pygraphviz 2.0.4, CPython 3.11
# Guess: names are quoted where DOT needs it, as `x y`, `a;b` and `x->y` are, and as networkx does through pygraphviz; or a
#   colon is refused, as networkx did before.
# What happens: pydot reads `name:port` in a node's name, in silence. Statements of nodes drop the part after the colon, so
#   that attributes of matmul:0 and matmul:1 meet in `matmul`, and edges become loops for Graphviz. networkx reads its
#   own file with three nodes, of which those with edges have no attributes. The two colons of std::sort give a node `std`
#   and an edge of another, `std:`. Names in quotes within the string, `'"matmul:0"'`, are kept.
#
# Output seen, which this script compares with what it prints:
#> pydot: matmul [label=A]; matmul [label=B]; matmul:0 -> matmul:1;
#> Graphviz reads: ['matmul'] edges [('matmul', 'matmul')] labels ['B']
#> networkx reads: ['matmul', 'matmul:0', 'matmul:1'] labels {'matmul': 'B'}
#> pydot, std::sort: std; std; "std:":sort -> "std:":copy;
#> pygraphviz: ['matmul:0', 'matmul:1'] edges [('matmul:0', 'matmul:1')] labels ['A', 'B']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check networkx==3.6.1 pydot==4.0.1 pygraphviz==2.0.4
cat >"$folder/program.py" <<'PROGRAM'
import networkx
import pygraphviz

def pair(first, second):
    result = networkx.DiGraph()
    result.add_edge(first, second)
    return result

def statements(dot):
    return " ".join(dot.to_string().splitlines()[1:-1])

def show(name, agraph):
    labels = [node.attr["label"] for node in agraph.nodes()]
    edges = [(str(a), str(b)) for a, b in agraph.edges()]
    print(f"{name}: {[str(node) for node in agraph.nodes()]} edges {edges} labels {labels}")

outputs = pair("matmul:0", "matmul:1")
networkx.set_node_attributes(outputs, {"matmul:0": "A", "matmul:1": "B"}, "label")
dot = networkx.nx_pydot.to_pydot(outputs)
print("pydot:", statements(dot))
show("Graphviz reads", pygraphviz.AGraph(string=dot.to_string()))
read = networkx.nx_pydot.from_pydot(dot)
print("networkx reads:", sorted(read), "labels", networkx.get_node_attributes(read, "label"))
print("pydot, std::sort:", statements(networkx.nx_pydot.to_pydot(pair("std::sort", "std::copy"))))
show("pygraphviz", networkx.nx_agraph.to_agraph(outputs))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
