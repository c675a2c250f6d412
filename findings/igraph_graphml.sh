#!/usr/bin/env bash
# python-igraph rewrites GraphML with other node ids, other numbers and invented attributes.
#
# Versions: igraph 1.0.0, networkx 3.6.1, CPython 3.11
# Guess: a reader and writer of GraphML keeps ids, integers and which nodes have an attribute.
# What happens: the ids become n0, n1 and the old ones an attribute `id`. Integers become doubles, and the writer prints
#   15 digits, so 2**53 - 1 changes. A node without a boolean gets false, one without a string gets the empty string; a
#   missing number is NaN in memory and is missing again in the file. Only numbers therefore keep the difference between
#   absent and default.
#
# Output seen, which this script compares with what it prints:
#> written copy_in {'nbytes': 9007199254740991}
#> written scale {'cooperative': True, 'note': 'axpy'}
#> rewritten n0 {'cooperative': False, 'id': 'copy_in', 'nbytes': 9007199254740990.0, 'note': ''}
#> rewritten n1 {'cooperative': True, 'id': 'scale', 'note': 'axpy'}
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check igraph==1.0.0 networkx==3.6.1
cat >"$folder/program.py" <<'PROGRAM'
import tempfile
import igraph
import networkx

with tempfile.TemporaryDirectory() as folder:
    graph = networkx.DiGraph()
    graph.add_node("copy_in", nbytes=2**53 - 1)
    graph.add_node("scale", cooperative=True, note="axpy")
    graph.add_edge("copy_in", "scale")
    networkx.write_graphml(graph, f"{folder}/written.graphml")
    igraph.Graph.Read_GraphML(f"{folder}/written.graphml").write_graphml(f"{folder}/rewritten.graphml")
    for name in ("written", "rewritten"):
        for node, data in networkx.read_graphml(f"{folder}/{name}.graphml").nodes(data=True):
            print(name, node, dict(sorted(data.items())))
PROGRAM
"$folder/venv/bin/python" "$folder/program.py" | tee "$folder/seen"
diff <(sed -n 's/^#> //p' "$0") "$folder/seen"
