"""Further formats of workflows: GraphML and networkx graphs, YAML, Python programs; and the difference of two workflows."""

from .. import lazily

__getattr__ = lazily(__name__, {"from_networkx": "graphml"})
