#!/usr/bin/env bash
# rustworkx writes GraphML that networkx misreads, rounds doubles to float32, and refuses networkx's booleans.
#
# Versions: rustworkx 0.18.1, networkx 3.6.1, CPython 3.11
# Guess: both read and write GraphML with typed attributes, so each reads the other's files, and Python's numbers come
#   back as they were.
# What happens: the writer numbers the keys of nodes and of edges from d1 each, where GraphML wants identifiers unique in
#   the file: networkx takes the last key's name and type for both, and gives nodes the attribute of edges without an
#   error where the types allow it. A Python float is written as float32 (0.1 comes back as 0.10000000149011612), an
#   integer above 2**63 - 1 as a float. The reader takes `true` and `false` alone, as XML Schema has them, where networkx
#   writes True: a file with one boolean cannot be read.
#
# Output seen, which this script compares with what it prints:
#> keys [('d1', 'node', 'kernel', 'string'), ('d2', 'node', 'scale', 'float'), ('d1', 'edge', 'reason', 'string')]
#> rustworkx again {'id': 'n0', 'kernel': 'axpy', 'scale': 0.10000000149011612}
#> networkx {'reason': 'axpy', 'scale': 0.1}
#> networkx, edges with integers: ValueError
#> 2**63 - 1 int, 2**63 float
#> rustworkx reads networkx's boolean: Failed conversion to 'bool': provided string was not `true` or `false`
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check rustworkx==0.18.1 networkx==3.6.1
cat >"$folder/program.py" <<'PROGRAM'
import re
import sys
import networkx
import rustworkx

def written(path, edge, **attributes):
    graph = rustworkx.PyDiGraph()
    source = graph.add_node(attributes)
    graph.add_edge(source, graph.add_node({}), edge)
    rustworkx.write_graphml(graph, path)
    with open(path) as file:
        return re.findall(r'<key id="(\w+)" for="(\w+)" attr.name="(\w+)" attr.type="(\w+)"', file.read())

path = sys.argv[1] + "/graph.graphml"
keys = written(path, {"reason": "RAW"}, kernel="axpy", scale=0.1)
print("keys", sorted(keys, key=lambda key: (key[1] == "edge", key[2])))
print("rustworkx again", dict(sorted(rustworkx.read_graphml(path)[0][0].items())))
print("networkx", dict(sorted(networkx.read_graphml(path).nodes["n0"].items())))
written(path, {"bytes": 4096}, kernel="axpy")
try:
    networkx.read_graphml(path)
except ValueError as error:
    print("networkx, edges with integers:", type(error).__name__)
print(", ".join(f"{text} {written(path, {}, bytes=eval(text))[0][3]}" for text in ("2**63 - 1", "2**63")))

graph = networkx.DiGraph()
graph.add_node("scale", cooperative=True)
networkx.write_graphml(graph, path)
try:
    rustworkx.read_graphml(path)
except Exception as error:
    print("rustworkx reads networkx's boolean:", error)
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" "$folder" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
