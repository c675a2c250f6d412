// hipGraph*: building, asking, instantiating, launching and updating graphs.
#pragma once
#include "api_stream.h"

#define GRAPH(name, handle)           \
  Graph* name = find<Graph>(handle); \
  REQUIRE(name, hipErrorInvalidValue)
#define NODE(name, handle, wanted)  \
  Node* name = find<Node>(handle); \
  REQUIRE(name && name->action->type == (wanted), hipErrorInvalidValue)
#define EXEC(name, handle)          \
  Exec* name = find<Exec>(handle); \
  REQUIRE(name, hipErrorInvalidValue)

// ---- graphs -----------------------------------------------------------------------------------------------------------------
API int hipGraphCreate(Handle* out, unsigned flags) {
  ENTER();
  REQUIRE(out && !flags, hipErrorInvalidValue);
  *out = graph_new(true)->handle;
  return hipSuccess;
}
API int hipGraphDestroy(Handle graph) {
  ENTER();
  GRAPH(g, graph);
  REQUIRE(!g->is_child, hipErrorInvalidValue);
  graph_discard(g);
  return hipSuccess;
}

// Takes over the reference to `action`.
inline int add_node(Handle* out, Handle graph, const Handle* deps, size_t n, Action* action, Node** made = nullptr) {
  Graph* g = find<Graph>(graph);
  if (!g || !out || (n && !deps)) {
    action_release(action);
    return fail(hipErrorInvalidValue);
  }
  Node* node = nullptr;
  if (int code = graph_add(g, deps, n, action, &node)) return fail(code);
  *out = node->handle;
  if (made) *made = node;
  return hipSuccess;
}
// Makes an action of what a call was given, and adds a node that does it.
template <class... Taken, class... Given>
inline int add_made(Handle* out, Handle graph, const Handle* deps, size_t n, int (*make)(Action**, Taken...), Given... given) {
  ENTER();
  Action* action = nullptr;
  if (int code = make(&action, given...)) return fail(code);
  return add_node(out, graph, deps, n, action);
}

inline int action_of_kernel(Action** out, const hipKernelNodeParams* p) {
  if (!p) return hipErrorInvalidValue;
  return action_kernel(out, p->func, p->gridDim, p->blockDim, p->sharedMemBytes, p->kernelParams, p->extra);
}
inline int action_of_copy(Action** out, const hipMemcpy3DParms* p) { return p ? action_copy(out, *p) : hipErrorInvalidValue; }
inline int action_of_copy_1d(Action** out, void* dst, const void* src, size_t bytes, int kind) {
  return bytes ? action_copy_1d(out, dst, src, bytes, kind) : hipErrorInvalidValue;
}
inline int action_of_fill(Action** out, const hipMemsetParams* p) {
  if (!p || !p->width || !p->height) return hipErrorInvalidValue;
  return action_fill(out, *p, this_device());
}
inline int action_of_host(Action** out, const hipHostNodeParams* p) {
  if (!p || !p->fn) return hipErrorInvalidValue;
  *out = action_new(hipGraphNodeTypeHost);
  (*out)->host = *p;
  return hipSuccess;
}
inline int action_of_event(Action** out, int type, Handle event) {
  Event* e = find<Event>(event);
  if (!e) return hipErrorInvalidValue;
  e->refs.add(1);
  *out = action_new(type);
  (*out)->event = e;
  return hipSuccess;
}
inline int action_of_semaphores(Action** out, int type, const hipExternalSemaphoreNodeParams* p) {
  return p ? action_semaphores(out, type, *p) : hipErrorInvalidValue;
}
inline int action_of_memory_ops(Action** out, const hipBatchMemOpNodeParams* p) {
  if (!p || !p->ctx) return hipErrorInvalidValue;
  return action_memory_ops(out, p->count, p->paramArray, p->flags, ~uint64_t(0), this_device());
}

API int hipGraphAddKernelNode(Handle* out, Handle graph, const Handle* deps, size_t n, const hipKernelNodeParams* p) {
  ENTER();
  Action* a;
  if (int code = action_of_kernel(&a, p)) return fail(code);
  if (a->kernel.module->device != this_device()) {  // AMD adds a kernel node for the device that is current
    action_release(a);
    return fail(hipErrorInvalidDevice);
  }
  return add_node(out, graph, deps, n, a);
}
API int hipGraphAddMemcpyNode(Handle* out, Handle graph, const Handle* deps, size_t n, const hipMemcpy3DParms* p) {
  return add_made(out, graph, deps, n, action_of_copy, p);
}
API int hipGraphAddMemcpyNode1D(Handle* out, Handle graph, const Handle* deps, size_t n, void* dst, const void* src, size_t bytes,
                                int kind) {
  return add_made(out, graph, deps, n, action_of_copy_1d, dst, src, bytes, kind);
}
API int hipGraphAddMemsetNode(Handle* out, Handle graph, const Handle* deps, size_t n, const hipMemsetParams* p) {
  return add_made(out, graph, deps, n, action_of_fill, p);
}
API int hipGraphAddHostNode(Handle* out, Handle graph, const Handle* deps, size_t n, const hipHostNodeParams* p) {
  return add_made(out, graph, deps, n, action_of_host, p);
}
API int hipGraphAddEmptyNode(Handle* out, Handle graph, const Handle* deps, size_t n) {
  ENTER();
  return add_node(out, graph, deps, n, action_new(hipGraphNodeTypeEmpty));
}
API int hipGraphAddChildGraphNode(Handle* out, Handle graph, const Handle* deps, size_t n, Handle child) {
  ENTER();
  GRAPH(c, child);
  REQUIRE(child != graph, hipErrorInvalidValue);
  REQUIRE(!graph_has_memory(c), hipErrorNotSupported);
  // Later changes of the child are not seen, as in HIP. It is copied first, because `graph` may be a part of it.
  Graph* copy = graph_copy(c, true);
  Node* node = nullptr;
  if (int code = add_node(out, graph, deps, n, action_new(hipGraphNodeTypeGraph), &node)) {
    graph_discard(copy);
    return code;
  }
  node_set_child(node, copy);
  return hipSuccess;
}
// A node that runs one of its bodies as the 32-bit word says when it is reached; a loop, each time its body has ended. The
// bodies are empty graphs, to be filled before the graph is instantiated. What they allocate is not supported.
API int hgcpuGraphAddConditionalNode(Handle* out, Handle graph, const Handle* deps, size_t n, int mode, const void* word,
                                     uint32_t count, Handle* bodies) {
  ENTER();
  REQUIRE(word && uintptr_t(word) % sizeof(uint32_t) == 0 && count && bodies, hipErrorInvalidValue);
  REQUIRE(mode == kSwitch || (mode == kIf && count <= 2) || (mode == kWhile && count == 1), hipErrorInvalidValue);
  Action* a = action_new(hgcpuGraphNodeTypeConditional);
  a->condition = {mode, count, static_cast<const uint32_t*>(word)};
  Node* node = nullptr;
  if (int code = add_node(out, graph, deps, n, a, &node)) return code;
  for (uint32_t i = 0; i < count; ++i) {
    node->bodies.push(graph_new(true));
    node->bodies[i]->is_child = true;
    bodies[i] = node->bodies[i]->handle;
  }
  return hipSuccess;
}
API int hipGraphAddEventRecordNode(Handle* out, Handle graph, const Handle* deps, size_t n, Handle event) {
  return add_made(out, graph, deps, n, action_of_event, hipGraphNodeTypeEventRecord, event);
}
API int hipGraphAddEventWaitNode(Handle* out, Handle graph, const Handle* deps, size_t n, Handle event) {
  return add_made(out, graph, deps, n, action_of_event, hipGraphNodeTypeWaitEvent, event);
}
API int hipGraphAddMemAllocNode(Handle* out, Handle graph, const Handle* deps, size_t n, hipMemAllocNodeParams* p) {
  ENTER();
  REQUIRE(p && p->bytesize && p->poolProps.allocType == 1, hipErrorInvalidValue);
  int device = p->poolProps.location.id;
  REQUIRE(p->poolProps.location.type == 1 && is_device(device), hipErrorInvalidValue);
  uint32_t access = 0;
  for (size_t i = 0; i < p->accessDescCount; ++i) {
    const auto& d = static_cast<const hipMemAccessDesc*>(p->accessDescs)[i];
    REQUIRE(d.location.type == 1 && is_device(d.location.id) && d.flags == 3, hipErrorInvalidValue);
    access |= 1u << d.location.id;
  }
  Block* b = memory_take(p->bytesize, Origin::graph, device, access);
  REQUIRE(b, hipErrorOutOfMemory);
  void* pointer = b->pointer;
  if (int code = add_node(out, graph, deps, n, action_memory(hipGraphNodeTypeMemAlloc, b, *p))) return code;
  p->dptr = pointer;
  return hipSuccess;
}
API int hipGraphAddMemFreeNode(Handle* out, Handle graph, const Handle* deps, size_t n, void* pointer) {
  ENTER();
  Block* b = memory_find(pointer);
  REQUIRE(b && b->origin == Origin::graph, hipErrorInvalidValue);
  GRAPH(g, graph);
  for (Node* other : g->nodes) {  // freed twice in one graph
    const Action* a = other->action;
    REQUIRE(a->type != hipGraphNodeTypeMemFree || a->memory.block != b, hipErrorInvalidValue);
  }
  return add_node(out, graph, deps, n, action_memory(hipGraphNodeTypeMemFree, b));
}
API int hipGraphAddExternalSemaphoresSignalNode(Handle* out, Handle graph, const Handle* deps, size_t n,
                                                const hipExternalSemaphoreNodeParams* p) {
  return add_made(out, graph, deps, n, action_of_semaphores, hipGraphNodeTypeExtSemaphoreSignal, p);
}
API int hipGraphAddExternalSemaphoresWaitNode(Handle* out, Handle graph, const Handle* deps, size_t n,
                                              const hipExternalSemaphoreNodeParams* p) {
  return add_made(out, graph, deps, n, action_of_semaphores, hipGraphNodeTypeExtSemaphoreWait, p);
}
API int hipGraphAddBatchMemOpNode(Handle* out, Handle graph, const Handle* deps, size_t n, const hipBatchMemOpNodeParams* p) {
  return add_made(out, graph, deps, n, action_of_memory_ops, p);
}

API int hipGraphAddDependencies(Handle graph, const Handle* from, const Handle* to, size_t n) {
  ENTER();
  GRAPH(g, graph);
  REQUIRE(!n || (from && to), hipErrorInvalidValue);
  size_t added = 0;
  for (; added < n; ++added) {
    Node *a = find<Node>(from[added]), *b = find<Node>(to[added]);
    if (!a || !b || a == b || a->graph != g || b->graph != g || edge_has(a, b)) break;
    edge_add(a, b);
  }
  if (added == n) return hipSuccess;
  while (added-- > 0) {  // all or nothing
    find<Node>(from[added])->after.pop();
    find<Node>(to[added])->before.pop();
  }
  return fail(hipErrorInvalidValue);
}

// ---- asking -----------------------------------------------------------------------------------------------------------------
// HIP's convention: without an array the number, with one as many as fit, and zeros in what is left.
template <class Source>
inline int give(const Source& source, uint32_t have, Handle* out, size_t* count) {
  REQUIRE(count, hipErrorInvalidValue);
  if (out) {
    for (size_t i = 0; i < *count; ++i) out[i] = i < have ? source(uint32_t(i)) : 0;
  }
  if (!out || have < *count) *count = have;
  return hipSuccess;
}
API int hipGraphGetNodes(Handle graph, Handle* out, size_t* count) {
  ENTER();
  GRAPH(g, graph);
  return give([&](uint32_t i) { return g->nodes[i]->handle; }, g->nodes.count, out, count);
}
API int hipGraphGetEdges(Handle graph, Handle* from, Handle* to, size_t* count) {
  ENTER();
  GRAPH(g, graph);
  REQUIRE(count && !from == !to, hipErrorInvalidValue);
  Vec<Handle> sources, targets;
  for (Node* n : g->nodes) {
    for (Node* a : n->after) {
      sources.push(n->handle);
      targets.push(a->handle);
    }
  }
  size_t room = *count;
  give([&](uint32_t i) { return targets[i]; }, targets.count, to, &room);
  return give([&](uint32_t i) { return sources[i]; }, sources.count, from, count);
}
API int hipGraphNodeGetType(Handle node, int* type) {
  ENTER();
  Node* n = find<Node>(node);
  REQUIRE(n && type, hipErrorInvalidValue);
  *type = n->action->type;
  return hipSuccess;
}

// Writes what `of` returns of a node of one type.
template <class Asked, class Of>
inline int tell(Handle node, int type, Asked* out, Of of) {
  ENTER();
  NODE(n, node, type);
  REQUIRE(out, hipErrorInvalidValue);
  *out = of(n);
  return hipSuccess;
}
inline hipExternalSemaphoreNodeParams semaphores_of(const Node* n) {
  const auto& s = n->action->steps;
  Handle* handles = static_cast<Handle*>(s.given);
  return {handles, reinterpret_cast<hipExternalSemaphoreParams*>(handles + s.given_count), s.given_count};
}
inline Handle event_of(const Node* n) { return n->action->event->handle; }

API int hipGraphChildGraphNodeGetGraph(Handle node, Handle* graph) {
  return tell(node, hipGraphNodeTypeGraph, graph, [](const Node* n) { return n->child->handle; });
}
API int hipGraphKernelNodeGetParams(Handle node, hipKernelNodeParams* p) {
  return tell(node, hipGraphNodeTypeKernel, p, [](const Node* n) -> hipKernelNodeParams {
    const auto& k = n->action->kernel;
    const uint32_t *b = k.launch.block, *g = k.launch.grid;
    return {{b[0], b[1], b[2]}, nullptr, k.function, {g[0], g[1], g[2]}, k.args, k.launch.shared_bytes};
  });
}
API int hipGraphMemcpyNodeGetParams(Handle node, hipMemcpy3DParms* p) {
  return tell(node, hipGraphNodeTypeMemcpy, p, [](const Node* n) { return n->action->copy.given; });
}
API int hipGraphMemsetNodeGetParams(Handle node, hipMemsetParams* p) {
  return tell(node, hipGraphNodeTypeMemset, p, [](const Node* n) { return n->action->fill.given; });
}
API int hipGraphHostNodeGetParams(Handle node, hipHostNodeParams* p) {
  return tell(node, hipGraphNodeTypeHost, p, [](const Node* n) { return n->action->host; });
}
API int hipGraphMemAllocNodeGetParams(Handle node, hipMemAllocNodeParams* p) {
  return tell(node, hipGraphNodeTypeMemAlloc, p, [](const Node* n) { return n->action->memory.given; });
}
API int hipGraphMemFreeNodeGetParams(Handle node, void** pointer) {
  return tell(node, hipGraphNodeTypeMemFree, pointer, [](const Node* n) { return n->action->memory.block->pointer; });
}
API int hipGraphExternalSemaphoresSignalNodeGetParams(Handle node, hipExternalSemaphoreNodeParams* p) {
  return tell(node, hipGraphNodeTypeExtSemaphoreSignal, p, semaphores_of);
}
API int hipGraphExternalSemaphoresWaitNodeGetParams(Handle node, hipExternalSemaphoreNodeParams* p) {
  return tell(node, hipGraphNodeTypeExtSemaphoreWait, p, semaphores_of);
}
API int hipGraphBatchMemOpNodeGetParams(Handle node, hipBatchMemOpNodeParams* p) {
  return tell(node, hipGraphNodeTypeBatchMemOp, p, [](const Node* n) -> hipBatchMemOpNodeParams {
    const auto& s = n->action->steps;
    return {nullptr, s.given_count, static_cast<hipStreamBatchMemOpParams*>(s.given), 0};
  });
}
API int hipGraphEventRecordNodeGetEvent(Handle node, Handle* event) {
  return tell(node, hipGraphNodeTypeEventRecord, event, event_of);
}
API int hipGraphEventWaitNodeGetEvent(Handle node, Handle* event) {
  return tell(node, hipGraphNodeTypeWaitEvent, event, event_of);
}

constexpr int kAttributeCooperative = 2, kAttributePriority = 8;  // hipLaunchAttributeID
API int hipGraphKernelNodeSetAttribute(Handle node, int attribute, const hipLaunchAttributeValue* value) {
  ENTER();
  NODE(n, node, hipGraphNodeTypeKernel);
  REQUIRE(value, hipErrorInvalidValue);
  if (attribute == kAttributeCooperative) n->cooperative = value->cooperative != 0;
  else if (attribute == kAttributePriority) n->priority = value->priority;
  else return fail(hipErrorInvalidValue);
  return hipSuccess;
}
API int hipGraphKernelNodeGetAttribute(Handle node, int attribute, hipLaunchAttributeValue* value) {
  ENTER();
  NODE(n, node, hipGraphNodeTypeKernel);
  REQUIRE(value, hipErrorInvalidValue);
  if (attribute == kAttributeCooperative) value->cooperative = n->cooperative;
  else if (attribute == kAttributePriority) value->priority = n->priority;
  else return fail(hipErrorInvalidValue);
  return hipSuccess;
}

// ---- executables ------------------------------------------------------------------------------------------------------------
API int hipGraphInstantiateWithFlags(Handle* out, Handle graph, unsigned long long flags) {
  ENTER();
  GRAPH(g, graph);
  REQUIRE(out && (flags == 0 || flags == 1 || flags == 8), hipErrorInvalidValue);
  Exec* x = nullptr;
  if (int code = exec_new(g, flags, &x)) return fail(code);
  *out = x->handle;
  return hipSuccess;
}
// A launch in flight goes on and keeps what it needs.
API int hipGraphExecDestroy(Handle exec) {
  ENTER();
  EXEC(x, exec);
  g_handles.remove(exec);
  exec_release(x);
  return hipSuccess;
}
API int hipGraphLaunch(Handle exec, Handle stream) {
  ENTER();
  EXEC(x, exec);
  STREAM(s, stream);
  if (s->capture.relaxed()) {  // becomes a child node
    Node* node = nullptr;
    REQUIRE(!x->blocks.count, hipErrorNotSupported);
    if (int code = capture_add(s, action_new(hipGraphNodeTypeGraph), &node)) return fail(code);
    node_set_child(node, exec_graph(x));
    return hipSuccess;
  }
  for (Block* b : x->leftover) REQUIRE(x->auto_free || !b->left.get(), hipErrorInvalidValue);
  for (Block* b : x->leftover) b->left.set(1);
  for (Block* b : x->frees) b->left.set(0);
  return fail(stream_submit(s, nullptr, nullptr, launch_new(x)));
}

// Makes an action of what a call was given, and gives it to a node of the same type for launches from now on.
template <class... Taken, class... Given>
inline int set_exec_node(Handle exec, Handle node, int (*make)(Action**, Taken...), Given... given) {
  ENTER();
  Action* action = nullptr;
  if (int code = make(&action, given...)) return fail(code);
  Exec* x = find<Exec>(exec);
  int code = x ? exec_set_action(x, node, action) : int(hipErrorInvalidValue);
  if (code) action_release(action);
  return fail(code);
}
API int hipGraphExecKernelNodeSetParams(Handle exec, Handle node, const hipKernelNodeParams* p) {
  return set_exec_node(exec, node, action_of_kernel, p);
}
API int hipGraphExecMemcpyNodeSetParams(Handle exec, Handle node, const hipMemcpy3DParms* p) {
  return set_exec_node(exec, node, action_of_copy, p);
}
API int hipGraphExecMemcpyNodeSetParams1D(Handle exec, Handle node, void* dst, const void* src, size_t bytes, int kind) {
  return set_exec_node(exec, node, action_of_copy_1d, dst, src, bytes, kind);
}
API int hipGraphExecMemsetNodeSetParams(Handle exec, Handle node, const hipMemsetParams* p) {
  return set_exec_node(exec, node, action_of_fill, p);
}
API int hipGraphExecHostNodeSetParams(Handle exec, Handle node, const hipHostNodeParams* p) {
  return set_exec_node(exec, node, action_of_host, p);
}
API int hipGraphExecEventRecordNodeSetEvent(Handle exec, Handle node, Handle event) {
  return set_exec_node(exec, node, action_of_event, hipGraphNodeTypeEventRecord, event);
}
API int hipGraphExecEventWaitNodeSetEvent(Handle exec, Handle node, Handle event) {
  return set_exec_node(exec, node, action_of_event, hipGraphNodeTypeWaitEvent, event);
}
API int hipGraphExecChildGraphNodeSetParams(Handle exec, Handle node, Handle child) {
  ENTER();
  EXEC(x, exec);
  GRAPH(c, child);
  Node* n = shape_find_child(x->shape, node);
  REQUIRE(n, hipErrorInvalidValue);
  REQUIRE(shape_takes(n->child, c), hipErrorGraphExecUpdateFailure);
  Guard<SpinLock> g(x->lock);
  shape_take_actions(program_to_change(x), n->child, c);
  return hipSuccess;
}
inline bool can_disable(int type) {
  return type == hipGraphNodeTypeKernel || type == hipGraphNodeTypeMemcpy || type == hipGraphNodeTypeMemset;
}
// A disabled node does nothing and keeps its place in the order.
API int hipGraphNodeSetEnabled(Handle exec, Handle node, unsigned enabled) {
  ENTER();
  EXEC(x, exec);
  uint64_t* i = x->index_of.find(node);
  Guard<SpinLock> g(x->lock);
  REQUIRE(i && can_disable(x->program->entries[*i].action->type), hipErrorInvalidValue);
  program_to_change(x)->entries[*i].enabled = enabled != 0;
  return hipSuccess;
}

// ---- what HIP has no call for -----------------------------------------------------------------------------------------------
// The marks, of `count` from `first` on, of operations that are not finished; of each graph and of what streams were given one by
// one, those of the first launch in flight.
API int hgcpuUnfinishedMarks(uint64_t first, uint64_t count, uint64_t* out, size_t* room) {
  ENTER();
  struct Issued {
    uint64_t mark, launch;
  };
  Vec<uint64_t> open;
  Vec<Issued> issued;
  Vec<Exec*> execs;
  Vec<Stream*> held;
  streams_hold(held);
  for (Stream* s : held) {
    Guard<SpinLock> g(s->lock);
    for (const Op* op = s->head; op; op = op->next) {
      const Marks marks = op->launch ? op->launch->marks : op->action ? op->action->marks : Marks{};
      if (uint64_t mark = marks.within(first, count)) issued.push({mark, marks.launch});
      if (!op->launch || execs.contains(op->launch->exec)) continue;
      op->launch->exec->refs.add(1);
      execs.push(op->launch->exec);
    }
  }
  for (Stream* s : held) stream_release(s);
  for (Exec* x : execs) {
    exec_unfinished(x, first, count, open);
    exec_release(x);
  }
  uint64_t earliest = ~uint64_t(0);
  for (const Issued& i : issued) earliest = i.launch < earliest ? i.launch : earliest;
  for (const Issued& i : issued) {
    if (i.launch == earliest) open.push(i.mark);
  }
  return give([&](uint32_t i) { return open[i]; }, open.count, out, room);
}
// Where this thread says which marks operations get that it issues, or adds to graphs: own, around, launch.
API uint64_t* hgcpuMarks() { return &t_marks.own; }
// Whether it has anything to return, whatever the marks.
API int hgcpuKnowsFailures() {
  Guard<Mutex> g(g_failed_marks->lock);
  return g_failed_marks->all.count || g_failed_marks->missed.count;
}
// What `mark_failed_take` returns: mark, cause, code.
API void hgcpuFailedMark(uint64_t first, uint64_t count, uint64_t* out) {
  const FailedMark found = mark_failed_take(first, count);
  out[0] = found.mark;
  out[1] = found.cause;
  out[2] = uint64_t(found.code);
}
// A wait was given up: nothing more starts, and the stream's next synchronize answers hipErrorLaunchFailure.
API int hgcpuGraphExecAbort(Handle exec) {
  ENTER();
  EXEC(x, exec);
  exec_abort(x);
  return hipSuccess;
}
API int hgcpuSetSchedule(uint64_t seed, int mode) {
  ENTER();
  REQUIRE(mode >= 0 && mode <= 2, hipErrorInvalidValue);
  Guard<SpinLock> g(g_schedule.lock);
  g_schedule.seed = seed;
  g_schedule.launches = 0;
  g_schedule.mode.set(mode);
  return hipSuccess;
}
API uint32_t hgcpuWorkers() { return cores(); }
