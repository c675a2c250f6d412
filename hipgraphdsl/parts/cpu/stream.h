// Streams: queues of operations, each run in order by one worker at a time; errors that they carry; capture.
#pragma once
#include "graph.h"

struct Launch;
struct Capture;

struct Op {
  Op* next;
  Action* action;  // or a launch
  Token* token;    // of an event operation
  Launch* launch;
};

struct Stream {
  static constexpr Kind kKind = kStream;
  Handle handle = 0;
  Atomic<int> refs;  // the handle, and the worker that drains it
  SpinLock lock;
  Op *head = nullptr, *tail = nullptr;
  bool active = false;
  bool blocking = false, is_null = false;  // HIP's default streams wait for each other, through the null stream
  int device = 0;
  Atomic<uint64_t> submitted, completed;
  uint64_t awaited = ~uint64_t(0);  // under sleep_lock: what `completed` must be for the first sleeper to go on
  Failure* failure = nullptr;
  Atomic<int> sleepers;
  Mutex sleep_lock;
  Condition woken;
  Atomic<Capture*> capture;
  Vec<Handle> capture_deps;
};

struct Streams {
  Mutex lock;
  Vec<Stream*> all;
  Atomic<int> blocking;  // streams that order themselves with the null stream
  Stream* null[kMaxDevices] = {};
};
inline Streams* g_streams = create<Streams>();
inline Streams& streams() { return *g_streams; }

inline Progress launch_start(Launch* launch, const Task& done, Failure* failure);
inline Failure* launch_failure(Launch* launch);
inline void launch_discard(Launch* launch);

inline Stream* stream_new(bool blocking) {
  Stream* s = create<Stream>();
  s->refs.set_relaxed(1);
  s->blocking = blocking;
  s->device = this_device();
  Streams& all = streams();
  Guard<Mutex> g(all.lock);
  all.all.push(s);
  if (blocking) all.blocking.add(1);
  return s;
}
inline void stream_release(Stream* s) {
  if (s->refs.sub(1) != 1) return;
  Streams& all = streams();
  {
    Guard<Mutex> g(all.lock);
    all.all.remove(s);
    if (s->blocking) all.blocking.sub(1);
  }
  failure_release(s->failure);
  discard(s);
}
// All streams, held.
inline void streams_hold(Vec<Stream*>& out) {
  Streams& all = streams();
  Guard<Mutex> g(all.lock);
  for (Stream* s : all.all) {
    int refs = s->refs.get();
    while (refs && !s->refs.replace(refs, refs + 1)) refs = s->refs.get();
    if (refs) out.push(s);  // one without references is about to leave the list
  }
}
inline bool stream_idle(const Stream* s) { return s->completed.get_sequential() >= s->submitted.get_sequential(); }

// ---- running operations -------------------------------------------------------------------------------------------------
inline Failure* stream_failure_locked(Stream* s) {
  if (s->failure && s->failure->reported.get()) {
    failure_release(s->failure);
    s->failure = nullptr;
  }
  return s->failure;
}

inline void stream_op_done(void* object, uint64_t, int code);

inline Progress op_start(Stream* s, Op* op, int* code) {
  Task done{stream_op_done, s, 0, 0};
  s->lock.lock();
  Failure* failed = failure_hold(stream_failure_locked(s));
  s->lock.unlock();
  if (op->launch) return launch_start(op->launch, done, failed);
  const FailedMark earlier = failed ? FailedMark{0, failed->mark, failed->code} : FailedMark{};
  failure_release(failed);
  switch (op->action->type) {
    case hipGraphNodeTypeEmpty:
    case hipGraphNodeTypeEventRecord:
      return kDone;
    case hipGraphNodeTypeWaitEvent:
      return token_wait(op->token, done) ? kPending : kDone;
    case hipGraphNodeTypeMemFree:
      return action_run(op->action, done, true, nullptr, code);
    default:
      // After an error nothing starts until somebody was told of it.
      if (!failed) return action_run(op->action, done, false, nullptr, code);
      mark_missed(op->action->marks.own, earlier);
      return kDone;
  }
}

inline void op_finish(Stream* s, Op* op, int code) {
  Failure* brought = nullptr;
  Action* const action = op->action;
  Launch* const launch = op->launch;
  const int type = action ? action->type : -1;
  if (launch) {
    brought = failure_hold(launch_failure(launch));
  } else if (type == hipGraphNodeTypeWaitEvent) {
    brought = failure_hold(op->token->failure);
  } else {
    if (code) mark_failed(action->marks, code);
    brought = code ? failure_new(code, action->marks.own) : steps_missed(action);
  }
  s->lock.lock();
  Failure* now = stream_failure_locked(s);
  if (brought && !now && !brought->reported.get()) {
    s->failure = now = failure_hold(brought);
  }
  Failure* carried = action ? failure_hold(now) : nullptr;
  op->action = nullptr;  // who looks at what is in flight finds nothing that is released below
  op->launch = nullptr;
  s->lock.unlock();
  failure_release(brought);
  if (type == hipGraphNodeTypeEventRecord) token_complete(op->token, carried);
  else if (carried) steps_miss(action, carried);
  failure_release(carried);
  token_release(op->token);
  action_release(action);
  if (launch) launch_discard(launch);
}

// Lets go of the head and tells who waits; returns whether there is more.
inline bool stream_pop(Stream* s) {
  s->lock.lock();
  Op* op = s->head;
  s->head = op->next;
  bool more = s->head != nullptr;
  if (!more) {
    s->tail = nullptr;
    s->active = false;
  }
  s->completed.set_sequential(s->completed.relaxed() + 1);
  s->lock.unlock();
  free(op);
  if (s->sleepers.get_sequential()) {
    Guard<Mutex> g(s->sleep_lock);
    if (s->completed.relaxed() >= s->awaited) {
      s->awaited = ~uint64_t(0);
      s->woken.broadcast();
    }
  }
  if (!more) stream_release(s);
  return more;
}

inline void stream_drain(void* object, uint64_t, int) {
  Stream* s = static_cast<Stream*>(object);
  for (int turns = 1;; ++turns) {
    s->lock.lock();
    Op* op = s->head;
    s->lock.unlock();
    int code = 0;
    if (op_start(s, op, &code) == kPending) return;
    op_finish(s, op, code);
    if (!stream_pop(s)) return;
    if (turns % 64 == 0 && others_wait()) {
      push_last({stream_drain, s, 0, 0});
      return;
    }
  }
}
inline void stream_op_done(void* object, uint64_t, int code) {
  Stream* s = static_cast<Stream*>(object);
  s->lock.lock();
  Op* op = s->head;
  s->lock.unlock();
  op_finish(s, op, code);
  if (stream_pop(s)) stream_drain(s, 0, 0);
}

inline void stream_append(Stream* s, Action* action, Token* token, Launch* launch) {
  Op* op = static_cast<Op*>(must_alloc(sizeof(Op)));
  *op = {nullptr, action, token, launch};
  s->lock.lock();
  (s->tail ? s->tail->next : s->head) = op;
  s->tail = op;
  s->submitted.set_sequential(s->submitted.relaxed() + 1);
  bool start = !s->active;
  if (start) {
    s->active = true;
    s->refs.add(1);
  }
  s->lock.unlock();
  if (start) push({stream_drain, s, 0, 0});
}

// Makes `later` wait for what `earlier` has been given so far.
inline void stream_follow(Stream* later, Stream* earlier) {
  if (stream_idle(earlier)) return;
  Token* t = token_new();
  stream_append(earlier, action_new(hipGraphNodeTypeEventRecord), token_hold(t), nullptr);
  stream_append(later, action_new(hipGraphNodeTypeWaitEvent), t, nullptr);
}
inline void order_with_null_stream(Stream* s) {
  Streams& all = streams();
  if (s->is_null) {
    Vec<Stream*> held;
    streams_hold(held);
    for (Stream* other : held) {
      if (other->blocking && !other->is_null && other->device == s->device) stream_follow(s, other);
      stream_release(other);
    }
  } else if (s->blocking) {
    if (Stream* null = __atomic_load_n(&all.null[s->device], __ATOMIC_ACQUIRE)) stream_follow(s, null);
  }
}
// Waits until the stream has completed `target` operations; deadline 0: for ever. Returns whether it has.
inline bool stream_wait_for(Stream* s, uint64_t target, uint64_t deadline) {
  if (s->completed.get() >= target) return true;
  uint64_t spin_end = now_ns() + kSpinNs;
  if (deadline && deadline < spin_end) spin_end = deadline;
  do {
    for (int i = 0; i < 64; ++i) {
      if (s->completed.get() >= target) return true;
      pause_cpu();
    }
    sched_yield();
  } while (now_ns() < spin_end);
  s->sleepers.add(1);
  s->sleep_lock.lock();
  bool done;
  while (!(done = s->completed.get_sequential() >= target)) {
    if (target < s->awaited) s->awaited = target;
    if (!deadline) {
      s->woken.wait(s->sleep_lock);
    } else if (now_ns() >= deadline) {
      break;
    } else {
      s->woken.wait_until(s->sleep_lock, deadline);
    }
  }
  s->sleep_lock.unlock();
  s->sleepers.sub(1);
  return done;
}
// How many operations of one stream may be in flight; who submits more waits until half of them are done, as CUDA does it.
inline uint64_t most_in_flight() {
  static Atomic<uint64_t> most;
  if (uint64_t known = most.relaxed()) return known;
  const char* text = getenv("HIPGRAPHDSL_CPU_QUEUE");
  const uint64_t asked = text ? strtoull(text, nullptr, 10) : 0;
  most.set(asked ? asked : 1024);
  return most.relaxed();
}
// Waits until a stream takes another operation; deadline 0: for ever, 1: only looks. Threads on which that may depend never wait.
inline bool stream_has_room(Stream* s, uint64_t deadline) {
  const uint64_t most = most_in_flight(), submitted = s->submitted.relaxed();
  if (submitted - s->completed.get() < most || t_worker || t_in_host_function || s->capture.relaxed()) return true;
  return deadline != 1 && stream_wait_for(s, submitted - most / 2, deadline);
}
// How many operations this thread may still submit without waiting for room: it has waited before the launch that they are part
// of, where it can be interrupted.
constexpr uint64_t kMostAhead = 4096;
inline thread_local uint64_t t_ahead = 0;

// Takes over the references to action and token.
inline int stream_submit(Stream* s, Action* action, Token* token, Launch* launch) {
  if (!stream_has_room(s, 1)) {
    if (t_ahead) --t_ahead;
    else stream_has_room(s, 0);
  }
  if (streams().blocking.relaxed() > 1) order_with_null_stream(s);  // the null stream itself is one
  stream_append(s, action, token, launch);
  return hipSuccess;
}

// The stream's unreported error, which is thereby reported.
inline int stream_take_error(Stream* s) {
  int code = 0;
  s->lock.lock();
  if (Failure* f = stream_failure_locked(s)) {
    if (!f->reported.swap(1)) code = f->code;
    stream_failure_locked(s);
  }
  s->lock.unlock();
  return code;
}

// ---- capture --------------------------------------------------------------------------------------------------------------
struct Capture {
  uint64_t id;
  int mode;
  uint64_t thread;
  bool invalid;
  Stream* origin;
  Graph* graph;
  Handle graph_handle;
  Vec<Stream*> streams;
};
struct Captures {
  Mutex lock;
  Vec<Capture*> active;
  Atomic<int> count;
  uint64_t last_id = 0;
};
inline Captures* g_captures = create<Captures>();
inline Captures& captures() { return *g_captures; }
// A number that no other thread has had, unlike its id or an address.
inline uint64_t this_thread() {
  static Atomic<uint64_t> last;
  static thread_local uint64_t number = 0;
  if (!number) number = last.add(1) + 1;
  return number;
}

// Which captures forbid this thread unsafe calls: its own and global ones, its own, or none.
inline thread_local int t_capture_mode = hipStreamCaptureModeGlobal;

inline bool capture_graph_lives(const Capture* c) { return find<Graph>(c->graph_handle) == c->graph; }

// A call that is not allowed while this thread captures: invalidates the captures that it offends. Modes count unless
// `even_relaxed`.
inline int capture_refuse(int code, bool even_relaxed) {
  Captures& all = captures();
  if (!all.count.relaxed()) return hipSuccess;
  Guard<Mutex> g(all.lock);
  int answer = hipSuccess, here = even_relaxed ? hipStreamCaptureModeGlobal : t_capture_mode;
  if (here == hipStreamCaptureModeRelaxed) return hipSuccess;
  for (Capture* c : all.active) {
    bool mine = c->thread == this_thread() && (c->mode != hipStreamCaptureModeRelaxed || even_relaxed);
    bool everyones = c->mode == hipStreamCaptureModeGlobal && here == hipStreamCaptureModeGlobal;
    if (!mine && !everyones) continue;
    c->invalid = true;
    answer = code;
  }
  return answer;
}
inline int unsafe_call() { return capture_refuse(hipErrorStreamCaptureUnsupported, false); }

// Adds an operation behind what the stream has captured; takes over the reference.
inline int capture_add(Stream* s, Action* action, Node** made = nullptr) {
  Guard<Mutex> g(captures().lock);
  Capture* c = s->capture.get();
  if (!c || c->invalid || !capture_graph_lives(c)) {
    action_release(action);
    return c ? hipErrorStreamCaptureInvalidated : hipErrorIllegalState;
  }
  Node* node = nullptr;
  int code = graph_add(c->graph, s->capture_deps.items, s->capture_deps.count, action, &node);
  if (code) {
    c->invalid = true;
    return code;
  }
  s->capture_deps.clear();
  s->capture_deps.push(node->handle);
  if (made) *made = node;
  return hipSuccess;
}

inline int capture_begin(Stream* s, int mode) {
  Captures& all = captures();
  Guard<Mutex> g(all.lock);
  if (s->capture.get()) return hipErrorIllegalState;
  Capture* c = create<Capture>();
  c->id = ++all.last_id;
  c->mode = mode;
  c->thread = this_thread();
  c->origin = s;
  c->graph = graph_new(true);
  c->graph_handle = c->graph->handle;
  c->streams.push(s);
  s->capture.set(c);
  all.active.push(c);
  all.count.add(1);
  return hipSuccess;
}
// Ends a capture: its streams are ordinary again, whatever became of it.
inline void capture_leave_locked(Captures& all, Capture* c, bool drop_graph) {
  for (Stream* s : c->streams) {
    s->capture.set(nullptr);
    s->capture_deps.clear();
  }
  all.active.remove(c);
  all.count.sub(1);
  if (drop_graph && capture_graph_lives(c)) graph_discard(c->graph);
  discard(c);
}
// Whether all that the capture's streams did is before what `origin` did last.
inline bool capture_joined(const Capture* c) {
  Graph* g = c->graph;
  Vec<uint8_t> seen;
  seen.resize_zeroed(g->nodes.count + 1);
  Vec<Node*> open;
  for (Handle h : c->origin->capture_deps) {
    Node* n = find<Node>(h);
    if (n && n->graph == g && !seen[n->index]) {
      seen[n->index] = 1;
      open.push(n);
    }
  }
  while (open.count) {
    for (Node* b : open.pop()->before) {
      if (!seen[b->index]) {
        seen[b->index] = 1;
        open.push(b);
      }
    }
  }
  for (Stream* s : c->streams) {
    for (Handle h : s->capture_deps) {
      Node* n = find<Node>(h);
      if (n && n->graph == g && !seen[n->index]) return false;
    }
  }
  return true;
}
inline int capture_end(Stream* s, Handle* out) {
  Captures& all = captures();
  Guard<Mutex> g(all.lock);
  *out = 0;
  Capture* c = s->capture.get();
  if (!c) return hipErrorIllegalState;
  if (c->origin != s) return hipErrorStreamCaptureUnmatched;
  if (c->mode != hipStreamCaptureModeRelaxed && c->thread != this_thread()) return hipErrorStreamCaptureWrongThread;
  if (c->invalid || !capture_graph_lives(c)) {
    capture_leave_locked(all, c, true);
    return hipErrorStreamCaptureInvalidated;
  }
  if (!capture_joined(c)) {
    capture_leave_locked(all, c, true);
    return hipErrorStreamCaptureUnjoined;
  }
  *out = c->graph_handle;
  capture_leave_locked(all, c, false);
  return hipSuccess;
}
inline Capture* capture_by_id(Captures& all, uint64_t id) {
  for (Capture* c : all.active) {
    if (c->id == id) return c;
  }
  return nullptr;
}
inline void capture_forget_stream(Stream* s) {
  Captures& all = captures();
  Guard<Mutex> g(all.lock);
  Capture* c = s->capture.get();
  if (!c) return;
  if (c->origin == s) {
    capture_leave_locked(all, c, true);
  } else {
    c->streams.remove(s);
    c->invalid = true;
    s->capture.set(nullptr);
  }
}
