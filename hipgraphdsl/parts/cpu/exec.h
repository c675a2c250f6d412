// Executables: a graph made flat, and how a launch of it runs.
//
// Instantiation copies the graph, makes children flat (each between an entry and an exit that do nothing), sorts it, and
// stores for each node where its successors stand. A launch needs no allocation per node. Whoever finishes a node runs the
// first successor that became ready and pushes the others, so that a chain stays on one worker and touches nothing shared;
// a node with one predecessor has no counter at all.
//
// What nodes do is in a Program, which a launch holds. An update while a launch is in flight goes into a new Program, so it
// concerns later launches only, as in HIP.
#pragma once
#include "stream.h"

constexpr uint32_t kNone = ~0u;

struct ExecNode {
  uint32_t first, count;  // successors: exec->successors[first, first + count)
  uint32_t before;        // predecessors
  uint32_t token;         // event operations: index into launch->tokens; conditional nodes: of the first body
  Handle handle;          // of the node in the graph that was instantiated; 0 for the entry of a child
};
struct Entry {
  Action* action;
  uint32_t enabled;
  uint32_t cooperative;
};
struct Program {
  Atomic<int> refs;
  uint32_t count;
  Entry entries[1];
};

struct Exec {
  static constexpr Kind kKind = kExec;
  Handle handle = 0;
  Atomic<int> refs;  // the handle, and every launch
  Graph* shape = nullptr;
  uint32_t count = 0;
  ExecNode* nodes = nullptr;
  uint32_t* successors = nullptr;
  Atomic<uint32_t>* left = nullptr;      // predecessors that this launch has not finished
  Atomic<uint32_t>* finished = nullptr;  // number of the last launch that finished the node
  Vec<uint32_t> roots, event_nodes;
  Vec<Exec*> bodies;  // of conditional nodes; one runs at a time, as part of this executable's launch
  Map index_of;                 // node handle -> index; for a child node its exit
  Vec<Block*> blocks, leftover;  // what its nodes allocate; of that, what none of them frees
  Vec<Block*> frees;             // what its nodes free, whoever allocates it
  bool auto_free = false;

  SpinLock lock;
  Program* program = nullptr;
  Launch *running = nullptr, *queue = nullptr;  // `queue`: launches that cannot begin yet, by number
  uint64_t numbered = 0, launches_begun = 0;    // launches so far
  uint32_t submitted = 0, epoch = 0, aborts = 0;
  bool wide = false;              // several nodes may be ready at once
  bool prioritised = false;       // nodes differ in priority, so the order in which they are stored is not the one to run in
  uint32_t timed = 0;             // launches since the ways of running were compared first
  uint64_t fastest[3] = {};       // ns of a launch, for each way
};
// Waking a worker costs more than a short node takes, and so does handing out nodes that nobody else takes; how long nodes take
// only a launch tells. So the first launches try the ways in turns, later ones take the fastest, and all are tried again now and
// then. kWake: ready nodes wake other workers. kQuiet: they wake nobody; where one waits for another, the monitor wakes.
// kInOrder: one worker runs all nodes in the order in which they are stored, until it waits or the monitor finds it stuck.
enum Way : uint32_t { kWake, kQuiet, kInOrder };
constexpr uint32_t kTrialsEach = 4, kTrialsEvery = 1024;

// Schedule fuzzing: 0 normal; 1 one worker, seeded random topological order; 2 normal workers with seeded delays.
struct Schedule {
  SpinLock lock;
  uint64_t seed = 0, launches = 0;
  Atomic<int> mode;
};
inline Schedule g_schedule;

struct Fuzz {
  Mutex lock;
  Vec<uint32_t> ready;
  bool busy = false, blocked = false;
  Random random{0};
};

struct Launch {
  Exec* exec = nullptr;
  const Launch* outer = nullptr;  // whose conditional node runs this one as a body
  Marks marks = t_marks;          // of who launches it
  Program* program = nullptr;
  Launch* next = nullptr;
  Task done;
  Atomic<Failure*> failure;
  Atomic<int> stop;               // nothing more starts
  Atomic<int> phase;              // 0 begun by the stream's worker, 1 that worker has left, 2 finished
  Atomic<uint32_t> remaining;
  uint32_t epoch = 0;
  uint64_t number = 0;  // launches of the executable that were submitted before, on whatever streams
  uint32_t aborts = 0;  // of the executable when this launch was submitted
  int mode = 0;
  Way way = kWake;
  uint64_t begun = 0;  // ns, where the time is taken
  // Of a launch in order: the node to begin next, and what the monitor saw there last; its place among such launches.
  Atomic<uint32_t> next_node;
  Atomic<uint32_t> taken, given{kNone};  // whether somebody hands its nodes over, and then the first of those
  uint32_t seen = 0;
  Launch *left = nullptr, *right = nullptr;
  uint64_t seed = 0;
  Token** tokens = nullptr;
  Fuzz* fuzz = nullptr;
};

// ---- programs -------------------------------------------------------------------------------------------------------------
inline Program* program_new(uint32_t n) {
  auto* p = static_cast<Program*>(must_alloc(sizeof(Program) + n * sizeof(Entry)));
  p->refs.value = 1;
  p->count = n;
  return p;
}
inline void program_release(Program* p) {
  if (p->refs.sub(1) != 1) return;
  for (uint32_t i = 0; i < p->count; ++i) action_release(p->entries[i].action);
  free(p);
}
// The program for the next launch, for changing; call under x->lock.
inline Program* program_to_change(Exec* x) {
  if (x->program->refs.get() > 1) {
    Program* copy = program_new(x->program->count);
    for (uint32_t i = 0; i < copy->count; ++i) {
      copy->entries[i] = x->program->entries[i];
      action_hold(copy->entries[i].action);
    }
    program_release(x->program);
    x->program = copy;
  }
  return x->program;
}
// Gives a node another action and takes over the reference, unless it fails.
inline int exec_set_action(Exec* x, Handle node, Action* action) {
  const uint64_t* i = x->index_of.find(node);
  if (!i) return hipErrorInvalidValue;
  Action* old = nullptr;
  {
    Guard<SpinLock> g(x->lock);
    if (int code = action_replaceable(x->program->entries[*i].action, action)) return code;
    Entry& e = program_to_change(x)->entries[*i];
    old = e.action;
    action->marks = old->marks;
    e.action = action;
  }
  action_release(old);
  return hipSuccess;
}

// ---- making a graph flat --------------------------------------------------------------------------------------------------
struct Flat {
  struct Item {
    Action* action;
    Handle handle;
    int priority;
    int cooperative;
    const Node* node;  // of a conditional node: who has its bodies
  };
  struct Edge {
    uint32_t from, to;
  };
  Vec<Item> items;
  Vec<Edge> edges;
  Exec* exec = nullptr;

  uint32_t item(Action* action, Handle handle, int priority = 0, int cooperative = 0, const Node* node = nullptr) {
    items.push({action, handle, priority, cooperative, node});
    return items.count - 1;
  }
  void add(Graph* g, uint32_t entry, uint32_t exit) {
    Vec<uint32_t> in, out;
    in.resize_zeroed(g->nodes.count);
    out.resize_zeroed(g->nodes.count);
    for (Node* n : g->nodes) {
      uint32_t i = n->index;
      if (n->child) {
        in[i] = item(action_new(hipGraphNodeTypeEmpty), 0);
        out[i] = item(action_new(hipGraphNodeTypeEmpty), n->cloned_from);
        add(n->child, in[i], out[i]);
      } else {
        in[i] = out[i] = item(action_hold(n->action), n->cloned_from, n->priority, n->cooperative, n->bodies.count ? n : nullptr);
      }
      n->exec_index = out[i];
    }
    for (Node* n : g->nodes) {
      for (Node* a : n->after) edges.push({out[n->index], in[a->index]});
      if (entry != kNone && !n->before.count) edges.push({entry, in[n->index]});
      if (exit != kNone && !n->after.count) edges.push({out[n->index], exit});
    }
    if (entry != kNone && !g->nodes.count) edges.push({entry, exit});
  }
};

inline void shape_renumber(Graph* g, const uint32_t* place) {
  for (Node* n : g->nodes) {
    n->exec_index = place[n->exec_index];
    if (n->child) shape_renumber(n->child, place);
  }
}

struct Ranked {
  uint32_t node, height;
  int priority;
};
inline int by_rank(const void* a, const void* b) {
  const auto *x = static_cast<const Ranked*>(a), *y = static_cast<const Ranked*>(b);
  if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
  if (x->height != y->height) return x->height > y->height ? -1 : 1;
  return x->node < y->node ? -1 : x->node > y->node;
}

inline void exec_release(Exec* x) {
  if (x->refs.sub(1) != 1) return;
  for (Block* b : x->blocks) {
    b->execs.sub(1);
    graph_block_release(b);
  }
  for (Exec* body : x->bodies) exec_release(body);
  if (x->program) program_release(x->program);
  if (x->shape) graph_discard(x->shape);
  free(x->nodes);
  free(x->successors);
  free(x->left);
  free(x->finished);
  discard(x);
}

inline int exec_new(Graph* g, unsigned long long flags, Exec** out) {
  Exec* x = create<Exec>();
  x->refs.set_relaxed(1);
  x->auto_free = flags & 1;
  x->shape = graph_copy(g, false);
  Flat flat;
  flat.exec = x;
  flat.add(x->shape, kNone, kNone);
  uint32_t n = x->count = flat.items.count;

  // Successor lists of the items, in the order in which they were added.
  Vec<uint32_t> first, to, waits, order, height;
  first.resize_zeroed(n + 1);
  to.resize_zeroed(flat.edges.count);
  waits.resize_zeroed(n);
  for (const auto& e : flat.edges) ++first[e.from + 1], ++waits[e.to];
  for (uint32_t i = 0; i < n; ++i) first[i + 1] += first[i];
  {
    Vec<uint32_t> at;
    at.assign(first.items, n);
    for (const auto& e : flat.edges) to[at[e.from]++] = e.to;
  }
  // Depth first, so that a chain's nodes stand side by side in memory.
  Vec<uint32_t> open, left;
  left.assign(waits.items, n);
  for (uint32_t i = n; i-- > 0;) {
    if (!left[i]) open.push(i);
  }
  while (open.count) {
    uint32_t i = open.pop();
    order.push(i);
    for (uint32_t k = first[i + 1]; k-- > first[i];) {
      if (!--left[to[k]]) open.push(to[k]);
    }
  }
  bool cyclic = order.count != n;
  Vec<uint32_t> place;
  place.resize_zeroed(n);
  for (uint32_t k = 0; k < order.count; ++k) place[order[k]] = k;

  x->program = program_new(n);
  for (uint32_t i = 0; i < n; ++i) x->program->entries[cyclic ? i : place[i]] = {flat.items[i].action, 1, uint32_t(flat.items[i].cooperative)};
  if (cyclic) {
    exec_release(x);
    return hipErrorInvalidValue;
  }
  height.resize_zeroed(n);
  for (uint32_t k = n; k-- > 0;) {
    uint32_t i = order[k], most = 0;
    for (uint32_t j = first[i]; j < first[i + 1]; ++j) most = height[to[j]] >= most ? height[to[j]] + 1 : most;
    height[i] = most;
  }
  shape_renumber(x->shape, place.items);
  x->nodes = static_cast<ExecNode*>(must_alloc(n * sizeof(ExecNode)));
  x->successors = static_cast<uint32_t*>(must_alloc(to.count * sizeof(uint32_t)));
  x->left = static_cast<Atomic<uint32_t>*>(must_alloc(n * sizeof(uint32_t)));
  x->finished = static_cast<Atomic<uint32_t>*>(calloc(n ? n : 1, sizeof(uint32_t)));
  if (!x->finished) abort();
  Vec<Ranked> ranked;
  uint32_t used = 0, tokens = 0;
  for (uint32_t k = 0; k < n; ++k) {
    uint32_t i = order[k];
    const Action* a = flat.items[i].action;
    ranked.clear();
    for (uint32_t j = first[i]; j < first[i + 1]; ++j) {
      ranked.push({place[to[j]], height[to[j]], flat.items[to[j]].priority});
    }
    // The longest way to the end goes first.
    if (ranked.count > 1) qsort(ranked.items, ranked.count, sizeof(Ranked), by_rank);
    bool event = a->type == hipGraphNodeTypeEventRecord || a->type == hipGraphNodeTypeWaitEvent;
    x->nodes[k] = {used, ranked.count, waits[i], event ? tokens++ : 0, flat.items[i].handle};
    if (event) x->event_nodes.push(k);
    for (const Ranked& r : ranked) x->successors[used++] = r.node;
    x->left[k].value = waits[i];
    if (!waits[i]) x->roots.push(k);
    if (flat.items[i].handle) x->index_of.put(flat.items[i].handle, k);
  }
  for (uint32_t i = 0; i < n; ++i) {
    const Action* a = flat.items[i].action;
    if (a->type != hipGraphNodeTypeMemAlloc) continue;
    graph_block_hold(a->memory.block);
    x->blocks.push(a->memory.block);
  }
  x->wide = x->roots.count > 1;
  for (uint32_t k = 0; k < n; ++k) {
    x->wide = x->wide || x->nodes[k].count > 1;
    x->prioritised = x->prioritised || flat.items[k].priority != flat.items[0].priority;
  }
  for (uint32_t k = 0; k < n; ++k) {
    const Node* node = flat.items[order[k]].node;
    if (!node) continue;
    x->nodes[k].token = x->bodies.count;
    for (Graph* body : node->bodies) {
      Exec* made = nullptr;
      int code = graph_has_memory(body) ? int(hipErrorNotSupported) : exec_new(body, 0, &made);
      if (code) {
        for (Block* b : x->blocks) b->execs.add(1);  // exec_release takes it away
        exec_release(x);
        return code;
      }
      g_handles.remove(made->handle);
      x->bodies.push(made);
    }
  }
  bool shared = false;
  for (Block* b : x->blocks) shared = b->execs.add(1) > 0 || shared;
  if (shared) {  // two executables would use the same memory at once
    exec_release(x);
    return hipErrorNotSupported;
  }
  for (const auto& item : flat.items) {
    if (item.action->type == hipGraphNodeTypeMemFree) x->frees.push(item.action->memory.block);
  }
  for (Block* b : x->blocks) {
    if (!x->frees.contains(b)) x->leftover.push(b);
  }
  x->handle = g_handles.add(kExec, x);
  *out = x;
  return hipSuccess;
}

// ---- launching --------------------------------------------------------------------------------------------------------------
inline Failure* launch_failure(Launch* l) { return l->failure.get(); }

inline void launch_fail_with(Launch* l, Failure* f) {
  failure_hold(f);
  if (!l->failure.replace(nullptr, f)) failure_release(f);
  l->stop.set(1);
  polls_check();  // its waits for semaphores and memory end
}
inline void launch_fail(Launch* l, int code, uint64_t mark = 0) {
  Failure* f = failure_new(code, mark);
  launch_fail_with(l, f);
  failure_release(f);
}

inline Launch* launch_new(Exec* x) {
  Launch* l = create<Launch>();
  x->refs.add(1);
  l->exec = x;
  x->lock.lock();
  l->program = x->program;
  l->program->refs.add(1);
  l->aborts = x->aborts;
  l->number = x->numbered++;
  ++x->submitted;
  x->lock.unlock();
  if (uint32_t n = x->event_nodes.count) {
    // Waits look at the records before this launch; only then do this launch's own records become the latest.
    l->tokens = static_cast<Token**>(must_alloc(n * sizeof(Token*)));
    for (uint32_t t = 0; t < n; ++t) {
      Action* a = l->program->entries[x->event_nodes[t]].action;
      l->tokens[t] = a->type == hipGraphNodeTypeWaitEvent ? event_last(a->event) : token_new();
    }
    for (uint32_t t = 0; t < n; ++t) {
      Action* a = l->program->entries[x->event_nodes[t]].action;
      if (a->type == hipGraphNodeTypeEventRecord) event_set(a->event, l->tokens[t]);
    }
  }
  return l;
}
inline void launch_discard(Launch* l) {
  Exec* x = l->exec;
  for (uint32_t t = 0; l->tokens && t < x->event_nodes.count; ++t) token_release(l->tokens[t]);
  free(l->tokens);
  program_release(l->program);
  failure_release(l->failure.get());
  if (l->fuzz) discard(l->fuzz);
  discard(l);
  exec_release(x);
}

inline void launch_begin(Launch* l);
inline void launch_begin_task(void* object, uint64_t, int) { launch_begin(static_cast<Launch*>(object)); }

inline void launch_finish(Launch* l) {
  Exec* x = l->exec;
  x->lock.lock();
  Launch* next = x->queue && x->queue->number == x->launches_begun ? x->queue : nullptr;
  if (next) {
    x->queue = next->next;
    ++x->launches_begun;
  }
  x->running = next;
  --x->submitted;
  if (l->begun && !launch_failure(l)) {
    uint64_t took = now_ns() - l->begun, &fastest = x->fastest[l->way];
    if (!fastest || took < fastest) fastest = took;
  }
  x->lock.unlock();
  if (next) push_last({launch_begin_task, next, 0, 0});
  Task done = l->done;
  if (l->phase.swap(2) == 1) done.run(done.object, done.index, 0);
}

inline void delay(uint64_t ns) {
  for (uint64_t end = now_ns() + ns; now_ns() < end;) pause_cpu();
}

// ---- conditional nodes ------------------------------------------------------------------------------------------------------
enum Mode : int { kIf, kWhile, kSwitch };
struct ConditionRun {
  Launch *launch, *body;
  uint32_t node;
  Task done;
};
inline Progress launch_start(Launch* l, const Task& done, Failure* failure);

// The body that the word chooses now, if any.
inline Exec* condition_body(const ConditionRun* r) {
  const auto& c = r->launch->program->entries[r->node].action->condition;
  uint32_t word = __atomic_load_n(c.word, __ATOMIC_ACQUIRE);
  uint32_t chosen = c.mode == kSwitch ? word : word ? 0 : 1;
  const Exec* x = r->launch->exec;
  return chosen < c.bodies ? x->bodies[x->nodes[r->node].token + chosen] : nullptr;
}
// Lets go of a body's launch that is over; returns whether the word is to be asked again.
inline bool condition_again(ConditionRun* r) {
  if (Failure* f = launch_failure(r->body)) launch_fail_with(r->launch, f);
  launch_discard(r->body);
  return r->launch->program->entries[r->node].action->condition.mode == kWhile && !r->launch->stop.get();
}
inline Progress condition_run(ConditionRun* r);
inline void condition_continue(void* object, uint64_t, int) {
  ConditionRun* r = static_cast<ConditionRun*>(object);
  if (condition_again(r) && condition_run(r) == kPending) return;
  Task done = r->done;
  free(r);
  done.run(done.object, done.index, 0);
}
inline Progress condition_run(ConditionRun* r) {
  do {
    Exec* body = condition_body(r);
    if (!body) break;
    r->body = launch_new(body);
    r->body->outer = r->launch;
    r->body->marks = r->launch->marks;
    if (launch_start(r->body, {condition_continue, r, 0, 0}, nullptr) == kPending) return kPending;
  } while (condition_again(r));
  return kDone;
}
inline Progress condition_start(Launch* l, uint32_t i, const Task& done) {
  auto* r = static_cast<ConditionRun*>(must_alloc(sizeof(ConditionRun)));
  *r = {l, nullptr, i, done};
  if (condition_run(r) == kPending) return kPending;
  free(r);
  return kDone;
}

// After a wait: the failure of what it waited for becomes the launch's. What the launch's failure skips, others may wait for.
inline void node_take_failure(Launch* l, uint32_t i) {
  Action* a = l->program->entries[i].action;
  if (a->type == hipGraphNodeTypeWaitEvent) {
    Token* t = l->tokens[l->exec->nodes[i].token];
    if (t->done.get() && t->failure && !t->failure->reported.get()) launch_fail_with(l, t->failure);
  } else if (has_steps(a)) {
    if (Failure* missed = steps_missed(a)) {
      launch_fail_with(l, missed);
      failure_release(missed);
    }
    if (l->stop.get()) steps_miss(a, launch_failure(l));
  }
}

// Begins node `i`. kPending: `done` is called when it is finished.
inline Progress node_start(Launch* l, uint32_t i, const Task& done, int* code) {
  const Entry& e = l->program->entries[i];
  Action* a = e.action;
  if (l->mode) {
    Random r{l->seed + i * 0x9e3779b97f4a7c15ull};
    uint64_t dice = r.next();
    if (l->mode == 2 && dice % 4 == 0) delay((dice >> 8) % 30000);
  }
  bool skip = l->stop.get() || !e.enabled;
  switch (a->type) {
    case hipGraphNodeTypeEmpty:
      return kDone;
    case hipGraphNodeTypeEventRecord:  // also when skipped: somebody may wait for it
      token_complete(l->tokens[l->exec->nodes[i].token], l->failure.get());
      return kDone;
    case hipGraphNodeTypeWaitEvent: {
      Token* t = l->tokens[l->exec->nodes[i].token];
      if (!t || skip) return kDone;
      if (token_wait(t, done)) return kPending;
      node_take_failure(l, i);
      return kDone;
    }
    case hipGraphNodeTypeExtSemaphoreSignal:
    case hipGraphNodeTypeExtSemaphoreWait:
    case hipGraphNodeTypeBatchMemOp:
      if (!e.enabled) return kDone;
      if (!skip && action_run(a, done, l->mode == 1, &l->stop, code) == kPending) return kPending;
      node_take_failure(l, i);
      return kDone;
    case hgcpuGraphNodeTypeConditional:
      return skip ? kDone : condition_start(l, i, done);
    case hipGraphNodeTypeMemAlloc:
    case hipGraphNodeTypeMemFree:
      return action_run(a, done, true, nullptr, code);
    default:
      return skip ? kDone : action_run(a, done, l->mode == 1, &l->stop, code, e.cooperative);
  }
}

inline void node_mark(Launch* l, uint32_t i, int code) {
  if (code) {
    const Marks& marks = l->program->entries[i].action->marks;
    mark_failed(l->marks, code, marks.own);
    mark_failed(marks, code);
    launch_fail(l, code, marks.own ? marks.own : l->marks.own);
  }
  l->exec->finished[i].set_relaxed(l->epoch);
}
inline void node_run(void* object, uint64_t index, int);

// Whether finishing one of its predecessors made node `s` ready.
inline bool node_ready(Exec* x, uint32_t s) {
  uint32_t before = x->nodes[s].before;
  if (before == 1) return true;
  if (x->left[s].sub(1) != 1) return false;
  x->left[s].set_relaxed(before);  // for the next launch
  return true;
}

// Pushes nodes that became ready where this thread will look first.
inline void nodes_push(const Launch* l, const Task* tasks, uint32_t n) {
  (t_worker ? t_worker->deque : g_pool->shared).push(tasks, n);
  if (l->way == kWake) {
    pool_notify();
  } else {
    monitor_kick();
  }
}

// Returns the successor to run here; pushes the others that became ready.
__attribute__((noinline)) inline uint32_t node_successors(Launch* l, uint32_t i) {
  Exec* x = l->exec;
  const ExecNode& n = x->nodes[i];
  const uint32_t* successors = x->successors + n.first;
  uint32_t next = kNone, held = 0;
  Task tasks[64];
  uint32_t turn = l->mode == 2 && n.count ? Random{l->seed ^ i}.below(n.count) : 0;
  // From the last to the first: this worker takes from the end of its deque, thieves from the beginning.
  for (uint32_t k = n.count; k-- > 0;) {
    uint32_t s = successors[(k + turn) % n.count];
    if (!node_ready(x, s)) continue;
    if (next != kNone) {
      tasks[held++] = {node_run, l, next, 0};
      if (held == 64) {
        nodes_push(l, tasks, held);
        held = 0;
      }
    }
    next = s;
  }
  if (held) nodes_push(l, tasks, held);
  return next;
}

inline uint32_t node_successor(Launch* l, uint32_t i) {
  Exec* x = l->exec;
  if (x->nodes[i].count != 1) return node_successors(l, i);
  const uint32_t next = x->successors[x->nodes[i].first];
  return node_ready(x, next) ? next : kNone;
}

inline void node_done(void* object, uint64_t index, int code);

// Returns the node of the same launch that this worker would take next, so that its end need not be counted apart.
inline uint32_t node_waiting(Launch* l) {
  Task task;
  if (!t_worker || !t_worker->deque.pop_back(&task)) return kNone;
  if (task.run == node_run && task.object == l) return uint32_t(task.index);
  t_worker->deque.push(&task, 1);
  return kNone;
}

// ---- one worker, as far as it gets ---------------------------------------------------------------------------------------
// In order, the worker holds one unit of `remaining`, so that the launch cannot finish under it. It claims a node by a store to
// `next_node`, and then looks whether it is `taken`. Who hands the nodes that have not begun over to all workers sets that, lets all
// threads pass a fence, and then reads what the worker has claimed: so no node costs a locked instruction. The last node that was claimed
// counts as running then: who finishes it, and fails to claim the next, makes its successors ready.
inline bool everyone_fences(bool for_the_first_time) {
#if defined(__linux__)
  constexpr int fence = 8, registration = 16;  // MEMBARRIER_CMD_(REGISTER_)PRIVATE_EXPEDITED
  return !syscall(SYS_membarrier, for_the_first_time ? registration : fence, 0, 0);
#else
  return (void)for_the_first_time, false;
#endif
}
inline const bool g_one_side_fences = everyone_fences(true);
inline bool in_order_claim(Launch* l, uint32_t node) {
  l->next_node.set(node + 1);
  if (g_one_side_fences) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  } else {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
  }
  if (!l->taken.relaxed()) return true;
  uint32_t given;
  while ((given = l->given.get()) == kNone) sched_yield();
  return node < given;
}
struct InOrder {
  SpinLock lock;
  Launch* first = nullptr;
};
inline InOrder g_in_order;

inline void in_order_enter(Launch* l) {
  Guard<SpinLock> g(g_in_order.lock);
  l->right = g_in_order.first;
  if (l->right) l->right->left = l;
  g_in_order.first = l;
}
inline void in_order_leave(Launch* l) {
  Guard<SpinLock> g(g_in_order.lock);
  (l->left ? l->left->right : g_in_order.first) = l->right;
  if (l->right) l->right->left = l->left;
}

inline void in_order_hand_over(Launch* l) {
  Exec* x = l->exec;
  if (!l->taken.replace(0, 1)) return;
  if (!g_one_side_fences || !everyone_fences(false)) __atomic_thread_fence(__ATOMIC_SEQ_CST);
  const uint32_t next = l->next_node.get();
  l->given.set(next);
  if (next >= x->count) return;
  for (uint32_t i : x->roots) {
    if (i >= next) push_last({node_run, l, i, 0});
  }
  for (uint32_t i = 0; i + 1 < next; ++i) {
    const ExecNode& n = x->nodes[i];
    for (uint32_t k = n.first; k < n.first + n.count; ++k) {
      uint32_t s = x->successors[k];
      if (s >= next && node_ready(x, s)) push_last({node_run, l, s, 0});
    }
  }
}
inline bool in_order_runs() {
  Guard<SpinLock> g(g_in_order.lock);
  return g_in_order.first;
}
// Called by the monitor every few milliseconds: a launch that has begun no node since may be waiting for one of its own.
inline bool in_order_check() {
  Guard<SpinLock> g(g_in_order.lock);
  for (Launch* l = g_in_order.first; l; l = l->right) {
    uint32_t next = l->next_node.get();
    if (next == l->seen) in_order_hand_over(l);
    l->seen = next;
  }
  return g_in_order.first;
}

// What one worker runs of a launch.
struct Run {
  Launch* launch;
  uint32_t node;  // that it has begun, or begins next
  uint32_t did;   // nodes that are finished but not yet counted
  bool in_order;
  int code = 0;
};
constexpr uint32_t kTurns = 64;  // nodes after which a worker looks whether others wait
constexpr uint32_t kAhead = 6;   // nodes that are fetched into the cache meanwhile

// The node to begin after `r.node`, which is finished.
inline uint32_t node_next(Run& r) {
  Launch* l = r.launch;
  if (r.in_order) {
    const uint32_t next = r.node + 1;
    if (next == l->exec->count) return kNone;
    if (in_order_claim(l, next)) return next;
    in_order_leave(l);
    r.in_order = false;
    ++r.did;
  }
  const uint32_t next = node_successor(l, r.node);
  return next == kNone ? node_waiting(l) : next;
}
// Whether a node is a kernel of one block that runs now: then it need only be called.
inline bool node_is_direct(const Launch* l, uint32_t i) {
  const Entry& e = l->program->entries[i];
  return e.action->direct && e.enabled && !e.cooperative && !l->mode && !l->stop.get() && !g_sanitized_modules.relaxed();
}
// Runs such kernels, one after another; inside of block_guard, from which a kernel that fails leaves at once.
inline void nodes_call(void* object) {
  Run& r = *static_cast<Run*>(object);
  Launch* l = r.launch;
  BlockWorker* w = t_block_worker;
  uint32_t turns = 0;
  do {
    // The nodes of a chain stand side by side, what they do does not.
    const uint32_t ahead = r.node + kAhead;
    if (ahead < l->exec->count) {
      const char* a = reinterpret_cast<const char*>(l->program->entries[ahead].action);
      __builtin_prefetch(a);
      __builtin_prefetch(a + 64);
    }
    r.code = kernel_call(w, l->program->entries[r.node].action, 0, 1);
    if (r.code) return;
    node_mark(l, r.node, 0);
    ++r.did;
    r.node = node_next(r);
  } while (r.node != kNone && ++turns < kTurns && node_is_direct(l, r.node));
}

inline void in_order_run(void* object, uint64_t index, int);
// Runs from node `r.node` on.
inline void nodes_run(Run r) {
  Launch* l = r.launch;
  for (uint32_t looked = r.did; r.node != kNone;) {
    int code = 0;
    const bool direct = node_is_direct(l, r.node) && block_worker();
    if (direct) {
      code = block_guard(t_block_worker, nodes_call, &r);
      if (!code) code = r.code;
      if (code) fault_note(l->program->entries[r.node].action->kernel.info->name);
    } else if (node_start(l, r.node, {node_done, l, r.node, 0}, &code) == kPending) {
      if (r.in_order) in_order_hand_over(l);
      break;
    }
    if (!direct || code) {
      node_mark(l, r.node, code);
      ++r.did;
      r.node = node_next(r);
    }
    if (r.did - looked < kTurns) continue;
    looked = r.did;
    if (r.node != kNone && others_wait()) {
      push_last({r.in_order ? in_order_run : node_run, l, r.node, 0});
      r.in_order = false;  // whoever takes it holds the unit
      break;
    }
  }
  if (r.in_order) {
    in_order_leave(l);
    ++r.did;
  }
  if (r.did && l->remaining.sub(r.did) == r.did) launch_finish(l);
}
inline void node_run(void* object, uint64_t index, int) { nodes_run({static_cast<Launch*>(object), uint32_t(index), 0, false}); }
inline void in_order_run(void* object, uint64_t index, int) { nodes_run({static_cast<Launch*>(object), uint32_t(index), 0, true}); }

// ---- one worker, seeded order ---------------------------------------------------------------------------------------------
// The loop holds one unit of `remaining`, so that the launch cannot finish under it.
inline void fuzz_leave(Launch* l) {
  if (l->remaining.sub(1) == 1) launch_finish(l);
}
inline void fuzz_successors(Launch* l, uint32_t i) {
  const ExecNode& n = l->exec->nodes[i];
  for (uint32_t k = 0; k < n.count; ++k) {
    uint32_t s = l->exec->successors[n.first + k];
    if (node_ready(l->exec, s)) l->fuzz->ready.push(s);
  }
}
inline void fuzz_loop(Launch* l) {
  Fuzz& f = *l->fuzz;
  for (;;) {
    f.lock.lock();
    // A host function runs elsewhere, and nothing else starts meanwhile: the order stays a matter of the seed.
    if (f.blocked || !f.ready.count) {
      f.busy = false;
      f.lock.unlock();
      return fuzz_leave(l);
    }
    uint32_t k = f.random.below(f.ready.count), i = f.ready[k];
    f.ready.remove_at(k);
    bool host = l->program->entries[i].action->type == hipGraphNodeTypeHost;
    f.blocked = host;
    f.lock.unlock();
    int code = 0;
    if (node_start(l, i, {node_done, l, i, 0}, &code) == kPending) continue;
    node_mark(l, i, code);
    f.lock.lock();
    if (host) f.blocked = false;
    fuzz_successors(l, i);
    f.lock.unlock();
    l->remaining.sub(1);
  }
}
inline void fuzz_done(Launch* l, uint32_t i) {
  Fuzz& f = *l->fuzz;
  f.lock.lock();
  if (l->program->entries[i].action->type == hipGraphNodeTypeHost) f.blocked = false;
  fuzz_successors(l, i);
  bool start = !f.busy;
  if (start) {
    f.busy = true;
    l->remaining.add(1);
  }
  f.lock.unlock();
  fuzz_leave(l);
  if (start) fuzz_loop(l);
}

inline void node_done(void* object, uint64_t index, int code) {
  Launch* l = static_cast<Launch*>(object);
  uint32_t i = uint32_t(index);
  node_take_failure(l, i);
  node_mark(l, i, code);
  if (l->fuzz) return fuzz_done(l, i);
  nodes_run({l, node_successor(l, i), 1, false});
}

inline void launch_begin(Launch* l) {
  Exec* x = l->exec;
  Schedule& schedule = g_schedule;
  if (int mode = schedule.mode.get()) {
    Guard<SpinLock> g(schedule.lock);
    l->mode = mode;
    l->seed = Random{schedule.seed + schedule.launches++ * 0x632be59bd9b4e019ull}.next();
  }
  x->lock.lock();
  // An abort finds this launch running, or came before: to this executable, or to the launch whose body this is.
  if (l->aborts != x->aborts || (l->outer && l->outer->stop.get())) launch_fail(l, hipErrorLaunchFailure);
  l->epoch = ++x->epoch;
  if (x->wide && !l->mode) {
    const uint32_t turn = x->timed++ % kTrialsEvery, ways = x->prioritised ? kInOrder : kInOrder + 1;
    if (!turn) memset(x->fastest, 0, sizeof x->fastest);
    uint32_t way = turn % ways;
    for (uint32_t other = 0; other < ways && turn >= kTrialsEach * ways; ++other) {
      if (x->fastest[other] < x->fastest[way]) way = other;
    }
    l->way = Way(way);
    l->begun = now_ns();
  }
  x->lock.unlock();
  if (!x->count) return launch_finish(l);
  if (l->mode == 1) {
    l->fuzz = create<Fuzz>();
    l->fuzz->random.state = l->seed;
    for (uint32_t i : x->roots) l->fuzz->ready.push(i);
    l->fuzz->busy = true;
    l->remaining.set(x->count + 1);
    return fuzz_loop(l);
  }
  if (l->way == kInOrder) {
    l->remaining.set(x->count + 1);
    l->next_node.set_relaxed(1);
    in_order_enter(l);
    monitor_kick();
    return nodes_run({l, 0, 0, true});
  }
  l->remaining.set(x->count);
  Task tasks[64];
  uint32_t held = 0;
  for (uint32_t k = x->roots.count; k-- > 1;) {
    tasks[held++] = {node_run, l, x->roots[k], 0};
    if (held == 64 || k == 1) {
      nodes_push(l, tasks, held);
      held = 0;
    }
  }
  nodes_run({l, x->roots[0], 0, false});
}

// Takes over the reference to a failure before it, because of which nothing of it starts.
inline Progress launch_start(Launch* l, const Task& done, Failure* failure) {
  Exec* x = l->exec;
  l->done = done;
  if (failure) {
    const FailedMark earlier = {0, failure->mark, failure->code};
    mark_missed(l->marks.own, earlier);
    for (uint32_t i = 0; i < l->program->count; ++i) {
      if (uint64_t mark = l->program->entries[i].action->marks.own) {
        mark_missed(mark, earlier);
        break;
      }
    }
    launch_fail_with(l, failure);
  }
  failure_release(failure);
  x->lock.lock();
  // Launches of one executable begin in the order in which they were submitted, whichever stream comes to its own first: waits for
  // events look at records of the launches before. They never overlap.
  if (x->running || l->number != x->launches_begun) {
    l->phase.set(1);
    Launch** at = &x->queue;
    while (*at && (*at)->number < l->number) at = &(*at)->next;
    l->next = *at;
    *at = l;
    x->lock.unlock();
    return kPending;
  }
  x->running = l;
  ++x->launches_begun;
  x->lock.unlock();
  launch_begin(l);
  return l->phase.swap(1) == 2 ? kDone : kPending;
}

// Ends what was submitted as soon as what runs now is done, bodies of conditional nodes included.
inline void exec_abort(Exec* x) {
  forget_fault();
  x->lock.lock();
  ++x->aborts;
  Vec<Task> over;
  if (Launch* l = x->running) {
    launch_fail(l, hipErrorLaunchFailure);
    for (uint32_t i : x->event_nodes) {
      Token* t = l->tokens[x->nodes[i].token];
      if (t && l->program->entries[i].action->type == hipGraphNodeTypeWaitEvent && token_cancel(t, l, i)) {
        over.push({node_done, l, i, 0});
      }
    }
  }
  x->lock.unlock();
  for (const Task& task : over) push_last(task);
  for (Exec* body : x->bodies) exec_abort(body);
}

// Adds the marks, of `count` from `first` on, of the nodes that the launch under way has not finished, bodies included.
inline void exec_unfinished(Exec* x, uint64_t first, uint64_t count, Vec<uint64_t>& open) {
  {
    Guard<SpinLock> g(x->lock);
    const bool begun = x->running && x->running->epoch == x->epoch;
    for (uint32_t i = 0; i < x->count && x->submitted; ++i) {
      if (begun && x->finished[i].relaxed() == x->epoch) continue;
      if (uint64_t mark = x->program->entries[i].action->marks.within(first, count)) open.push(mark);
    }
  }
  for (Exec* body : x->bodies) exec_unfinished(body, first, count, open);
}

// ---- update -----------------------------------------------------------------------------------------------------------------
// Whether the nodes of one graph may do what those of another do. Compares the edges themselves: HIP compares only how many each
// node has.
inline bool shape_takes(const Graph* mine, const Graph* theirs) {
  if (mine->nodes.count != theirs->nodes.count) return false;
  for (uint32_t i = 0; i < mine->nodes.count; ++i) {
    const Node *m = mine->nodes[i], *t = theirs->nodes[i];
    if (m->bodies.count || action_replaceable(m->action, t->action) || m->before.count != t->before.count) return false;
    for (uint32_t k = 0; k < t->before.count; ++k) {
      uint32_t wanted = t->before[k]->index;
      bool same = m->before[k]->index == wanted;  // nearly always: both were built in one order
      for (uint32_t j = 0; j < m->before.count && !same; ++j) same = m->before[j]->index == wanted;
      if (!same) return false;
    }
    bool memory = m->action->type == hipGraphNodeTypeMemAlloc || m->action->type == hipGraphNodeTypeMemFree;
    if (memory && m->action->memory.block != t->action->memory.block) return false;
    if (m->child && !shape_takes(m->child, t->child)) return false;
  }
  return true;
}
inline void shape_take_actions(Program* p, const Graph* mine, const Graph* theirs) {
  for (uint32_t i = 0; i < mine->nodes.count; ++i) {
    const Node *m = mine->nodes[i], *t = theirs->nodes[i];
    if (m->child) {
      shape_take_actions(p, m->child, t->child);
      continue;
    }
    Entry& e = p->entries[m->exec_index];
    action_hold(t->action);
    action_release(e.action);
    e.action = t->action;
    e.cooperative = uint32_t(t->cooperative);
  }
}
// Gives the nodes of `copy`, a copy of `mine`, what they do in the program; those that are disabled do nothing.
inline void shape_give_actions(const Program* p, const Graph* mine, Graph* copy) {
  for (Node* n : copy->nodes) {
    const Node* m = mine->nodes[n->index];
    if (m->child) {
      shape_give_actions(p, m->child, n->child);
      continue;
    }
    const Entry& e = p->entries[m->exec_index];
    action_release(n->action);
    n->action = e.enabled ? action_hold(e.action) : action_new(hipGraphNodeTypeEmpty);
  }
}
// The graph of an executable as its next launch runs it.
inline Graph* exec_graph(Exec* x) {
  Graph* copy = graph_copy(x->shape, true);
  Guard<SpinLock> g(x->lock);
  shape_give_actions(x->program, x->shape, copy);
  return copy;
}
inline Node* shape_find_child(Graph* g, Handle handle) {
  for (Node* n : g->nodes) {
    if (!n->child) continue;
    if (n->cloned_from == handle) return n;
    if (Node* inner = shape_find_child(n->child, handle)) return inner;
  }
  return nullptr;
}
