// Graphs as they are described: nodes, edges, children, clones.
#pragma once
#include "action.h"

struct Graph;
struct Node {
  static constexpr Kind kKind = kNode;
  Handle handle = 0;  // 0 in the private copy that an executable keeps
  Graph* graph = nullptr;
  Action* action = nullptr;
  Graph* child = nullptr;
  Vec<Graph*> bodies;  // of a conditional node
  uint32_t index = 0;  // in graph->nodes
  uint32_t exec_index = 0;
  int cooperative = 0, priority = 0;  // attributes of a kernel node
  Handle cloned_from = 0;
  Vec<Node*> before, after;
};
struct Graph {
  static constexpr Kind kKind = kGraph;
  Handle handle = 0;
  bool is_child = false;  // it belongs to a child node, which alone may destroy it
  Vec<Node*> nodes;
};

inline Node* node_new(Graph* g, Action* action, bool with_handle) {
  Node* n = create<Node>();
  n->graph = g;
  n->action = action;
  n->index = g->nodes.count;
  if (with_handle) n->handle = g_handles.add(kNode, n);
  g->nodes.push(n);
  return n;
}
inline void edge_add(Node* from, Node* to) {
  from->after.push(to);
  to->before.push(from);
}
inline bool edge_has(const Node* from, const Node* to) {
  return from->after.count < to->before.count ? from->after.contains(const_cast<Node*>(to))
                                              : to->before.contains(const_cast<Node*>(from));
}
inline void graph_discard(Graph* g);
inline void node_discard(Node* n) {
  g_handles.remove(n->handle);
  action_release(n->action);
  if (n->child) graph_discard(n->child);
  for (Graph* body : n->bodies) graph_discard(body);
  discard(n);
}
inline void graph_discard(Graph* g) {
  if (g->handle) g_handles.remove(g->handle);
  for (Node* n : g->nodes) node_discard(n);
  discard(g);
}
inline Graph* graph_new(bool with_handle) {
  Graph* g = create<Graph>();
  if (with_handle) g->handle = g_handles.add(kGraph, g);
  return g;
}
// A copy with the same actions, in the same order. Children are copied too.
inline Graph* graph_copy(const Graph* g, bool with_handles) {
  Graph* copy = graph_new(with_handles);
  copy->nodes.reserve(g->nodes.count);
  for (const Node* n : g->nodes) {
    Node* made = node_new(copy, action_hold(n->action), with_handles);
    made->cloned_from = n->handle ? n->handle : n->cloned_from;
    made->cooperative = n->cooperative;
    made->priority = n->priority;
    if (n->child) {
      made->child = graph_copy(n->child, with_handles);
      made->child->is_child = true;
    }
    for (const Graph* body : n->bodies) {
      made->bodies.push(graph_copy(body, with_handles));
      made->bodies.back()->is_child = true;
    }
  }
  for (const Node* n : g->nodes) {
    Node* made = copy->nodes[n->index];
    made->before.reserve(n->before.count);
    made->after.reserve(n->after.count);
    for (const Node* b : n->before) made->before.push(copy->nodes[b->index]);
    for (const Node* a : n->after) made->after.push(copy->nodes[a->index]);
  }
  return copy;
}
inline void node_set_child(Node* n, Graph* child) {
  n->child = child;
  child->is_child = true;
}
inline bool graph_has_memory(const Graph* g) {
  for (const Node* n : g->nodes) {
    if (n->action->type == hipGraphNodeTypeMemAlloc || n->action->type == hipGraphNodeTypeMemFree) return true;
    if (n->child && graph_has_memory(n->child)) return true;
    for (const Graph* body : n->bodies) {
      if (graph_has_memory(body)) return true;
    }
  }
  return false;
}

// Adds a node behind `deps`; takes over the reference to `action`, also when it fails, and then leaves nothing behind.
inline int graph_add(Graph* g, const Handle* deps, size_t n, Action* action, Node** out) {
  for (size_t i = 0; i < n; ++i) {
    Node* d = find<Node>(deps[i]);
    if (!d || d->graph != g) {
      action_release(action);
      return hipErrorInvalidValue;
    }
  }
  Node* node = node_new(g, action, true);
  node->before.reserve(uint32_t(n));
  for (size_t i = 0; i < n; ++i) {
    Node* d = find<Node>(deps[i]);
    if (d->after.count && d->after.back() == node) {  // named twice
      for (Node* b : node->before) b->after.pop();
      g->nodes.pop();
      node_discard(node);
      return hipErrorInvalidValue;
    }
    edge_add(d, node);
  }
  *out = node;
  return hipSuccess;
}
