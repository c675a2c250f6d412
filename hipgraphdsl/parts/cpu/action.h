// What one operation does, whether a stream or a graph node holds it, and the objects that operations refer to.
#pragma once
#include <dlfcn.h>

#include "sanitizer.h"

// ---- modules ----------------------------------------------------------------------------------------------------------
struct Function;
struct Module {
  static constexpr Kind kKind = kModule;
  Handle handle = 0;
  Atomic<int> refs;  // the handle, and every operation that holds one of its kernels
  void* library = nullptr;
  int device = 0;
  int file = -1;  // open while the library is loaded from memory
  const hgcpu_module_info* info = nullptr;
  Instrumented* instrumented = nullptr;  // for the sanitizer
  Vec<Function*> functions;
};
struct Function {
  static constexpr Kind kKind = kFunction;
  Handle handle = 0;
  Module* module = nullptr;
  const hgcpu_kernel_info* info = nullptr;
};
inline void module_release(Module* m) {
  if (m->refs.sub(1) != 1) return;
  if (m->instrumented) {
    instrumented_free(m->instrumented);
    g_sanitized_modules.sub(1);
  }
  dlclose(m->library);
  if (m->file >= 0) close(m->file);
  discard(m);
}

// ---- failures: an error is reported once, wherever it was carried to ---------------------------------------------------
struct Failure {
  Atomic<int> refs, reported;
  int code = 0;
  uint64_t mark = 0;  // of the operation that failed; 0: unknown
};
inline Failure* failure_new(int code, uint64_t mark = 0) {
  Failure* f = create<Failure>();
  f->refs.set_relaxed(1);
  f->code = code;
  f->mark = mark;
  return f;
}
inline Failure* failure_hold(Failure* f) {
  if (f) f->refs.add(1);
  return f;
}
inline void failure_release(Failure* f) {
  if (f && f->refs.sub(1) == 1) discard(f);
}

// ---- marks: who made an operation, for the message of an error ----------------------------------------------------------
// Numbers that operations made by this thread get: of who makes them, and of whose operation that is part of; 0: none. `launch`
// tells operations of one launch by streams from those of the launches behind it, which have greater numbers.
struct Marks {
  uint64_t own, around, launch;
  // The one among `count` from `first` on; 0 if neither is.
  uint64_t within(uint64_t first, uint64_t count) const {
    return own - first < count ? own : around - first < count ? around : 0;
  }
};
inline thread_local Marks t_marks = {};
// The marks of operations that have failed, and of some that did not start because an operation before them had, until somebody
// asks for them; the last ones only.
struct FailedMark {
  uint64_t mark, cause;  // `cause`: of what failed before it; 0 if it has failed itself, or if that is unknown
  int code;
};
struct FailedMarks {
  Mutex lock;
  Vec<FailedMark> all, missed;
};
inline FailedMarks* g_failed_marks = create<FailedMarks>();
constexpr uint32_t kMostFailedMarks = 64;
inline void mark_put(Vec<FailedMark>& all, const FailedMark& made) {
  if (all.count == kMostFailedMarks) all.remove_at(0);
  all.push(made);
}
// `inner`: the mark of the node that failed in a launch with these marks; 0 for an operation that is no launch of a graph.
inline void mark_failed(const Marks& marks, int code, uint64_t inner = 0) {
  Guard<Mutex> g(g_failed_marks->lock);
  if (marks.around) mark_put(g_failed_marks->all, {marks.around, inner ? inner : marks.own, code});
  if (marks.own) mark_put(g_failed_marks->all, {marks.own, inner, code});
}
// Notes an operation that does not start because of an earlier failure; one of each program (the upper half of its marks) will do.
inline void mark_missed(uint64_t mark, const FailedMark& earlier) {
  if (!mark) return;
  Guard<Mutex> g(g_failed_marks->lock);
  for (const FailedMark& known : g_failed_marks->missed) {
    if (known.mark >> 32 == mark >> 32) return;
  }
  mark_put(g_failed_marks->missed, {mark, earlier.cause, earlier.code});
}
// The last one of `count` marks from `first` on, all of which are forgotten.
inline FailedMark mark_take(Vec<FailedMark>& all, uint64_t first, uint64_t count) {
  FailedMark found = {};
  for (uint32_t i = all.count; i-- > 0;) {
    if (all[i].mark - first >= count) continue;
    if (!found.mark) found = all[i];
    all.remove_at(i);
  }
  return found;
}
// Of `count` marks from `first` on: that of the operation that failed last. If none has and one did not start, its cause and code.
inline FailedMark mark_failed_take(uint64_t first, uint64_t count) {
  Guard<Mutex> g(g_failed_marks->lock);
  const FailedMark failed = mark_take(g_failed_marks->all, first, count);
  const FailedMark missed = mark_take(g_failed_marks->missed, first, count);
  return failed.mark ? failed : FailedMark{0, missed.cause, missed.code};
}

// ---- events -----------------------------------------------------------------------------------------------------------
// One record of an event. A wait holds the record that was the last one when the wait was issued.
struct Token {
  Atomic<int> refs, done, sleepers;
  SpinLock lock;
  uint64_t ns = 0;
  Failure* failure = nullptr;
  Vec<Task> waiters;
};
struct Sleep {
  Mutex lock;
  Condition woken;
};
inline Sleep* g_token_sleep = create<Sleep>();
inline Sleep& token_sleep() { return *g_token_sleep; }
inline Token* token_hold(Token* t) {
  if (t) t->refs.add(1);
  return t;
}
inline void token_release(Token* t) {
  if (t && t->refs.sub(1) == 1) {
    failure_release(t->failure);
    discard(t);
  }
}
inline Token* token_new() {
  Token* t = create<Token>();
  t->refs.set_relaxed(1);
  return t;
}
inline void token_complete(Token* t, Failure* failure) {
  t->ns = now_ns();
  t->failure = failure_hold(failure);
  t->lock.lock();
  t->done.set_sequential(1);
  t->lock.unlock();
  // Nobody adds a waiter any more.
  for (const Task& waiter : t->waiters) push(waiter);
  if (t->sleepers.get_sequential()) {
    Sleep& s = token_sleep();
    Guard<Mutex> g(s.lock);
    s.woken.broadcast();
  }
}
// Returns false if the record is complete already.
inline bool token_wait(Token* t, const Task& then) {
  if (t->done.get()) return false;
  Guard<SpinLock> g(t->lock);
  if (t->done.get()) return false;
  t->waiters.push(then);
  return true;
}
// Takes back a wait; returns whether it was still there.
inline bool token_cancel(Token* t, void* object, uint64_t index) {
  Guard<SpinLock> g(t->lock);
  if (t->done.get()) return false;
  for (uint32_t i = 0; i < t->waiters.count; ++i) {
    if (t->waiters[i].object == object && t->waiters[i].index == index) {
      t->waiters.remove_at(i);
      return true;
    }
  }
  return false;
}

struct Event {
  static constexpr Kind kKind = kEvent;
  Handle handle = 0;
  Atomic<int> refs;
  SpinLock lock;
  Token* last = nullptr;  // the latest record, if there was one
  bool timing = true;
  int device = 0;
  uint64_t capture = 0;  // id of the capture that recorded it last, and the nodes that it stands for
  Vec<Handle> captured;
};
inline void event_release(Event* e) {
  if (!e || e->refs.sub(1) != 1) return;
  token_release(e->last);
  discard(e);
}
inline Token* event_last(Event* e) {
  Guard<SpinLock> g(e->lock);
  return token_hold(e->last);
}
// Makes `t` the event's latest record.
inline void event_set(Event* e, Token* t) {
  token_hold(t);
  e->lock.lock();
  Token* old = e->last;
  e->last = t;
  e->capture = 0;
  e->lock.unlock();
  token_release(old);
}

// ---- semaphores -------------------------------------------------------------------------------------------------------
struct Semaphore {  // a timeline: its value only grows
  static constexpr Kind kKind = kSemaphore;
  Handle handle = 0;
  Atomic<int> refs;
  Atomic<uint64_t> value;
};
inline void semaphore_release(Semaphore* s) {
  if (s->refs.sub(1) == 1) discard(s);
}
inline void semaphore_signal(Semaphore* s, uint64_t value) {
  for (uint64_t old = s->value.get(); old < value && !s->value.replace(old, value);) old = s->value.get();
  polls_check();
}

// ---- actions ------------------------------------------------------------------------------------------------------------
enum class StepKind : uint8_t { signal, wait_semaphore, write, wait_memory };
struct Step {
  StepKind kind;
  uint8_t size;       // of memory: 4 or 8
  uint8_t condition;  // hipStreamWaitValueGte 0, Eq 1, And 2, Nor 3
  Semaphore* semaphore;
  void* address;
  uint64_t value, mask;
};

// Immutable once made, so that a launch in flight and an update of the next one never meet.
struct Action {
  Atomic<int> refs;
  int type = hipGraphNodeTypeEmpty;
  bool fault = false;   // it would touch memory of a device that its own has no access to
  bool direct = false;  // one block of a kernel, and nothing to do but to call it
  Marks marks = {};
  union {
    struct {
      const hgcpu_kernel_info* info;
      Module* module;
      Handle function;
      hgcpu_entry call;
      hgcpu_launch launch;
      void** args;
      uint64_t blocks;
    } kernel;
    struct {
      Copy run;
      hipMemcpy3DParms given;
    } copy;
    struct {
      Fill run;
      hipMemsetParams given;
    } fill;
    hipHostNodeParams host;
    Event* event;
    struct {
      Block* block;
      bool held;  // the block of a graph; else memory that goes back when the operation runs, and belongs to others from then on
      hipMemAllocNodeParams given;
    } memory;
    struct {
      uint32_t count, given_count;
      Step* list;
      void* given;  // operations as they were given; or the handles of semaphores, and their parameters behind them
    } steps;
    struct {
      int mode;
      uint32_t bodies;
      const uint32_t* word;
    } condition;
  };
  Action() { memset(static_cast<void*>(&copy), 0, sizeof copy); }
};

inline Action* action_new(int type) {
  Action* a = create<Action>();
  a->refs.set_relaxed(1);
  a->type = type;
  a->marks = t_marks;
  return a;
}
// Whether a node that does `old` may be given `made`: 0, or the error of the call that asks for it.
inline int action_replaceable(const Action* old, const Action* made) {
  if (old->type != made->type) return hipErrorInvalidValue;
  bool elsewhere = old->type == hipGraphNodeTypeKernel && old->kernel.module->device != made->kernel.module->device;
  return elsewhere ? hipErrorInvalidDevice : hipSuccess;
}
inline Action* action_hold(Action* a) {
  a->refs.add(1);
  return a;
}
inline void action_release(Action* a) {
  if (!a || a->refs.sub(1) != 1) return;
  switch (a->type) {
    case hipGraphNodeTypeKernel:
      free(a->kernel.args);
      module_release(a->kernel.module);
      break;
    case hipGraphNodeTypeEventRecord:
    case hipGraphNodeTypeWaitEvent:
      event_release(a->event);
      break;
    case hipGraphNodeTypeMemAlloc:
    case hipGraphNodeTypeMemFree:
      if (a->memory.held) graph_block_release(a->memory.block);
      break;
    case hipGraphNodeTypeExtSemaphoreSignal:
    case hipGraphNodeTypeExtSemaphoreWait:
    case hipGraphNodeTypeBatchMemOp:
      for (uint32_t i = 0; i < a->steps.count; ++i) {
        if (a->steps.list[i].semaphore) semaphore_release(a->steps.list[i].semaphore);
      }
      free(a->steps.list);
      free(a->steps.given);
      break;
    default:
      break;
  }
  discard(a);
}

// Arguments are copied as the kernel's library says that they are packed.
inline int action_kernel(Action** out, Handle function, dim3 grid, dim3 block, unsigned shared, void** params, void** extra) {
  Function* f = find<Function>(function);
  if (!f) return hipErrorInvalidHandle;
  uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (!grid.x || !grid.y || !grid.z || !threads || block.x > 1024 || block.y > 1024 || block.z > 1024 || threads > 1024) {
    return hipErrorInvalidConfiguration;
  }
  unsigned __int128 blocks = (unsigned __int128)grid.x * grid.y * grid.z;
  if (blocks >> 62) return hipErrorInvalidConfiguration;
  const hgcpu_kernel_info* info = f->info;
  const char* packed = nullptr;
  size_t packed_bytes = 0;
  if (params && extra) return hipErrorInvalidValue;
  if (extra) {  // HIP_LAUNCH_PARAM_BUFFER_POINTER 1, BUFFER_SIZE 2, END 3
    for (int i = 0; uintptr_t(extra[i]) != 3; i += 2) {
      if (uintptr_t(extra[i]) == 1) packed = static_cast<const char*>(extra[i + 1]);
      else if (uintptr_t(extra[i]) == 2) packed_bytes = *static_cast<size_t*>(extra[i + 1]);
      else return hipErrorInvalidValue;
    }
  }
  if (info->n_params && !params && !packed) return hipErrorInvalidValue;
  // The array of pointers that the entry takes, and behind it the arguments that they point to.
  const size_t alignment = info->alignment > 16 ? info->alignment : 16;
  const size_t table = (info->n_params * sizeof(void*) + alignment - 1) / alignment * alignment;
  void* storage = nullptr;
  if (info->n_params) {
    const hgcpu_param_info& last = info->params[info->n_params - 1];
    if (posix_memalign(&storage, alignment, table + last.offset + last.bytes)) return hipErrorOutOfMemory;
  }
  void** args = static_cast<void**>(storage);
  for (uint32_t i = 0; i < info->n_params; ++i) {
    const hgcpu_param_info& param = info->params[i];
    const void* from = packed ? packed + param.offset : params[i];
    if (!from || (packed && param.offset + param.bytes > packed_bytes)) {
      free(storage);
      return hipErrorInvalidValue;
    }
    args[i] = static_cast<char*>(storage) + table + param.offset;
    memcpy(args[i], from, param.bytes);
  }
  Action* a = action_new(hipGraphNodeTypeKernel);
  f->module->refs.add(1);
  a->kernel.info = info;
  a->kernel.module = f->module;
  a->kernel.function = function;
  a->kernel.launch = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, 0, block_worker};
  a->kernel.blocks = uint64_t(blocks);
  a->kernel.args = args;
  if (device_count() > 1) {
    for (uint32_t i = 0; i < info->n_params && !a->fault; ++i) {
      void* pointer;
      if (info->params[i].bytes != sizeof pointer) continue;
      memcpy(&pointer, args[i], sizeof pointer);
      a->fault = !may_touch(f->module->device, pointer);
    }
  }
  a->kernel.call = info->direct && hgcpu_small(&a->kernel.launch) ? info->direct : info->entry;
  a->direct = a->kernel.blocks == 1 && !a->fault && !f->module->instrumented;
  *out = a;
  return hipSuccess;
}

inline int action_copy(Action** out, const hipMemcpy3DParms& p) {
  if (p.srcArray || p.dstArray) return hipErrorNotSupported;
  if (!p.srcPtr.ptr || !p.dstPtr.ptr || p.kind < 0 || p.kind > 4) return hipErrorInvalidValue;
  const hipExtent& e = p.extent;
  bool rows = e.height > 1 || e.depth > 1;
  if (rows && (p.srcPtr.pitch < e.width + p.srcPos.x || p.dstPtr.pitch < e.width + p.dstPos.x)) return hipErrorInvalidPitchValue;
  if (e.depth > 1 && (p.srcPtr.ysize < e.height + p.srcPos.y || p.dstPtr.ysize < e.height + p.dstPos.y)) return hipErrorInvalidValue;
  Action* a = action_new(hipGraphNodeTypeMemcpy);
  a->copy.given = p;
  size_t ds = p.dstPtr.pitch * p.dstPtr.ysize, ss = p.srcPtr.pitch * p.srcPtr.ysize;
  char* dst = static_cast<char*>(p.dstPtr.ptr) + p.dstPos.x + p.dstPos.y * p.dstPtr.pitch + p.dstPos.z * ds;
  const char* src = static_cast<const char*>(p.srcPtr.ptr) + p.srcPos.x + p.srcPos.y * p.srcPtr.pitch + p.srcPos.z * ss;
  Copy c{dst, src, p.dstPtr.pitch, p.srcPtr.pitch, ds, ss, e.width, e.height, e.depth};
  // Rows that touch each other are one row.
  if (c.height > 1 && c.dst_pitch == c.width && c.src_pitch == c.width) {
    if (c.depth == 1 || (ds == c.width * c.height && ss == ds)) {
      c.width *= c.height * c.depth;
      c.height = c.depth = 1;
    }
  }
  a->copy.run = c;
  *out = a;
  return hipSuccess;
}
inline int action_copy_1d(Action** out, void* dst, const void* src, size_t bytes, int kind) {
  hipMemcpy3DParms p;
  memset(&p, 0, sizeof p);
  p.dstPtr = {dst, bytes, bytes, 1};
  p.srcPtr = {const_cast<void*>(src), bytes, bytes, 1};
  p.extent = {bytes, 1, 1};
  p.kind = hipMemcpyKind(kind);
  return action_copy(out, p);
}
inline int action_fill(Action** out, const hipMemsetParams& p, int device) {
  if (!p.dst || (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4)) return hipErrorInvalidValue;
  if (p.height > 1 && p.pitch < p.width * p.elementSize) return hipErrorInvalidValue;
  const size_t rows_apart = p.height > 1 ? p.pitch : 0;
  if (uintptr_t(p.dst) % p.elementSize || rows_apart % p.elementSize) return hipErrorInvalidValue;
  Action* a = action_new(hipGraphNodeTypeMemset);
  a->fill.given = p;
  a->fault = !may_touch(device, p.dst);
  a->fill.run = {static_cast<char*>(p.dst), p.pitch, p.width, p.height, p.value, p.elementSize};
  if (p.height > 1 && p.pitch == p.width * p.elementSize) {
    a->fill.run.width *= p.height;
    a->fill.run.height = 1;
  }
  *out = a;
  return hipSuccess;
}
inline Action* action_memory(int type, Block* b, hipMemAllocNodeParams given = {}) {
  Action* a = action_new(type);
  given.dptr = b->pointer;
  a->memory = {b, b->origin == Origin::graph, given};
  if (a->memory.held) graph_block_hold(b);
  return a;
}
inline int action_semaphores(Action** out, int type, const hipExternalSemaphoreNodeParams& p) {
  if (!p.numExtSems || !p.extSemArray || !p.paramsArray) return hipErrorInvalidValue;
  for (unsigned i = 0; i < p.numExtSems; ++i) {
    if (!find<Semaphore>(p.extSemArray[i])) return hipErrorInvalidHandle;
  }
  Action* a = action_new(type);
  a->steps.count = a->steps.given_count = p.numExtSems;
  size_t handles = p.numExtSems * sizeof(Handle), params = p.numExtSems * sizeof(hipExternalSemaphoreParams);
  a->steps.given = must_alloc(handles + params);
  memcpy(a->steps.given, p.extSemArray, handles);
  memcpy(static_cast<char*>(a->steps.given) + handles, p.paramsArray, params);
  a->steps.list = static_cast<Step*>(must_alloc(p.numExtSems * sizeof(Step)));
  for (unsigned i = 0; i < p.numExtSems; ++i) {
    Semaphore* s = find<Semaphore>(p.extSemArray[i]);
    s->refs.add(1);
    StepKind kind = type == hipGraphNodeTypeExtSemaphoreSignal ? StepKind::signal : StepKind::wait_semaphore;
    a->steps.list[i] = {kind, 8, 0, s, nullptr, p.paramsArray[i].fenceValue, ~uint64_t(0)};
  }
  *out = a;
  return hipSuccess;
}
inline int action_memory_ops(Action** out, unsigned count, const hipStreamBatchMemOpParams* ops, unsigned flags, uint64_t mask,
                             int device) {
  if (!count || count > 256 || !ops || flags) return hipErrorInvalidValue;
  for (unsigned i = 0; i < count; ++i) {
    int op = ops[i].operation;
    bool memory = op == 1 || op == 2 || op == 4 || op == 5;  // wait 32, write 32, wait 64, write 64
    if (!memory && op != 3 && op != 6) return hipErrorInvalidValue;  // flush of remote writes, barrier
    if (memory && (!ops[i].address || uintptr_t(ops[i].address) % (op < 3 ? 4 : 8))) return hipErrorInvalidValue;
    if ((op == 1 || op == 4) && (ops[i].flags & 0x3fffffff) > 3) return hipErrorInvalidValue;
  }
  Action* a = action_new(hipGraphNodeTypeBatchMemOp);
  a->steps.given_count = count;
  a->steps.given = must_alloc(count * sizeof *ops);
  memcpy(a->steps.given, ops, count * sizeof *ops);
  a->steps.list = static_cast<Step*>(must_alloc(count * sizeof(Step)));
  for (unsigned i = 0; i < count; ++i) {
    int op = ops[i].operation;
    if (op == 3 || op == 6) continue;  // memory is coherent here
    StepKind kind = op == 2 || op == 5 ? StepKind::write : StepKind::wait_memory;
    uint8_t size = op < 3 ? 4 : 8;
    a->fault = a->fault || !may_touch(device, ops[i].address);
    a->steps.list[a->steps.count++] = {kind, size, uint8_t(ops[i].flags & 3), nullptr, ops[i].address, ops[i].value, mask};
  }
  *out = a;
  return hipSuccess;
}

// ---- running them -------------------------------------------------------------------------------------------------------
// Whether a wait is over when what it waits for has a value.
inline bool step_reached_by(const Step& wait, uint64_t now) {
  if (wait.kind == StepKind::wait_semaphore) return now >= wait.value;
  bool wide = wait.size == 8;
  uint64_t seen = now & wait.mask, value = wide ? wait.value : wait.value & 0xffffffffu;
  switch (wait.condition) {
    case 0:  // by the signed difference, so that a counter may wrap
      return wide ? int64_t(seen - value) >= 0 : int32_t(uint32_t(seen) - uint32_t(value)) >= 0;
    case 1:
      return seen == (value & wait.mask);
    case 2:
      return (seen & value) != 0;
    default:
      return (~(seen | value) & (wide ? ~uint64_t(0) : 0xffffffffu)) != 0;
  }
}
inline bool step_reached(const Step& wait) {
  if (wait.kind == StepKind::wait_semaphore) return step_reached_by(wait, wait.semaphore->value.get());
  return step_reached_by(wait, wait.size == 8 ? __atomic_load_n(static_cast<const uint64_t*>(wait.address), __ATOMIC_ACQUIRE)
                                              : __atomic_load_n(static_cast<const uint32_t*>(wait.address), __ATOMIC_ACQUIRE));
}

// Signals and writes that were skipped because of a failure. As an event that is recorded behind a failure carries it to those who
// wait for the event, so do these: what waits for such a value ends, and fails too, until somebody was told of the failure.
struct Missed {
  Action* action;
  Failure* failure;
};
struct MissedActions {
  SpinLock lock;
  Vec<Missed> all;
  Atomic<int> count;
};
inline MissedActions* g_missed = create<MissedActions>();

inline bool has_steps(const Action* a) {
  return a->type == hipGraphNodeTypeExtSemaphoreSignal || a->type == hipGraphNodeTypeExtSemaphoreWait ||
         a->type == hipGraphNodeTypeBatchMemOp;
}
inline bool step_serves(const Step& made, const Step& wait) {
  bool same = wait.kind == StepKind::wait_semaphore ? made.kind == StepKind::signal && made.semaphore == wait.semaphore
                                                    : made.kind == StepKind::write && made.address == wait.address;
  return same && step_reached_by(wait, made.value);
}
// The failure, held, that has skipped what a wait is for; nullptr where there is none.
inline Failure* step_missed(const Step& wait) {
  if (!g_missed->count.get()) return nullptr;
  Guard<SpinLock> g(g_missed->lock);
  for (const Missed& m : g_missed->all) {
    for (uint32_t i = 0; i < m.action->steps.count && !m.failure->reported.get(); ++i) {
      if (step_serves(m.action->steps.list[i], wait)) return failure_hold(m.failure);
    }
  }
  return nullptr;
}
// The failure, held, because of which the steps of an action have not come to their end; nullptr where there is none.
inline Failure* steps_missed(const Action* a) {
  Failure* missed = nullptr;
  for (uint32_t i = 0; has_steps(a) && g_missed->count.get() && i < a->steps.count && !missed; ++i) {
    const Step& s = a->steps.list[i];
    bool waits = s.kind == StepKind::wait_semaphore || s.kind == StepKind::wait_memory;
    if (waits && !step_reached(s)) missed = step_missed(s);
  }
  return missed;
}
// Notes that an action was skipped because of a failure, and ends what waits for it.
inline void steps_miss(Action* a, Failure* failure) {
  if (!failure || !has_steps(a)) return;
  Vec<Missed> told;
  {
    Guard<SpinLock> g(g_missed->lock);
    Vec<Missed>& all = g_missed->all;
    for (uint32_t i = all.count; i-- > 0;) {
      if (!all[i].failure->reported.get() && all[i].action != a) continue;
      told.push(all[i]);
      all.remove_at(i);
    }
    all.push({action_hold(a), failure_hold(failure)});
    g_missed->count.set(int(all.count));
  }
  for (const Missed& m : told) {
    action_release(m.action);
    failure_release(m.failure);
  }
  polls_check();
}
// Whether a wait ends without what it waits for.
inline bool step_fails(const Step& wait) {
  if (step_reached(wait)) return false;
  Failure* missed = step_missed(wait);
  failure_release(missed);
  return missed;
}
inline bool step_over(const Step& wait) { return step_reached(wait) || step_fails(wait); }

struct StepsRun {
  Action* action;
  const Atomic<int>* stop;
  Task done;
};
inline Progress steps_run(Action* a, uint32_t from, const Task& done, const Atomic<int>* stop, StepsRun* run);
inline void steps_continue(void* object, uint64_t index, int) {
  StepsRun* run = static_cast<StepsRun*>(object);
  bool failed = step_fails(run->action->steps.list[index]);
  if (!failed && steps_run(run->action, uint32_t(index) + 1, run->done, run->stop, run) == kPending) return;
  Task done = run->done;
  action_release(run->action);
  free(run);
  done.run(done.object, done.index, 0);
}
inline Progress steps_run(Action* a, uint32_t from, const Task& done, const Atomic<int>* stop, StepsRun* run) {
  for (uint32_t i = from; i < a->steps.count; ++i) {
    const Step& s = a->steps.list[i];
    if (stop && stop->get()) return kDone;
    switch (s.kind) {
      case StepKind::signal:
        semaphore_signal(s.semaphore, s.value);
        continue;
      case StepKind::write:
        memory_wrote(s.address, s.size);
        if (s.size == 8) __atomic_store_n(static_cast<uint64_t*>(s.address), s.value, __ATOMIC_RELEASE);
        else __atomic_store_n(static_cast<uint32_t*>(s.address), uint32_t(s.value), __ATOMIC_RELEASE);
        continue;
      case StepKind::wait_semaphore:
      case StepKind::wait_memory:
        break;
    }
    if (step_reached(s)) continue;
    bool fresh = !run;
    if (fresh) {
      run = static_cast<StepsRun*>(must_alloc(sizeof(StepsRun)));
      *run = {action_hold(a), stop, done};
    }
    if (poll_wait({&s, s.kind == StepKind::wait_memory, stop, {steps_continue, run, i, 0}})) return kPending;
    if (fresh) {
      action_release(run->action);
      free(run);
      run = nullptr;
    }
    if (step_fails(s)) return kDone;
  }
  return kDone;
}

// Calls a kernel of a library without the sanitizer, inside of block_guard.
inline int kernel_call(BlockWorker* w, const Action* a, uint64_t first, uint64_t last) {
  w->kernel = a->kernel.info;
  return a->kernel.call(&a->kernel.launch, a->kernel.args, first, last);
}
inline int kernel_blocks(void* context, uint64_t first, uint64_t last) {
  struct Blocks {
    BlockWorker* worker;
    const Action* action;
    uint64_t first, last;
    int code;
  } blocks = {static_cast<BlockWorker*>(block_worker()), static_cast<Action*>(context), first, last, 0};
  const auto& k = blocks.action->kernel;
  if (!blocks.worker) return hipErrorOutOfMemory;
  const bool watched = k.module->instrumented;
  int code;
  if (watched) {
    blocks.worker->kernel = k.info;
    code = sanitized_blocks(g_sanitized, k.info->entry, k.args, first, last);
  } else {
    auto run = [](void* object) {
      auto* b = static_cast<Blocks*>(object);
      b->code = kernel_call(b->worker, b->action, b->first, b->last);
    };
    code = block_guard(blocks.worker, run, &blocks);
    if (!code) code = blocks.code;
  }
  if (code && !(watched && g_sanitized->failed.swap(code))) fault_note(k.info->name);
  return code;
}

// All blocks of a cooperative launch are there at once: each has a thread of the operating system, and begins when all have one.
constexpr uint64_t kCooperativeBlocks = 256;
struct Cooperation {
  Action* action;
  Mutex lock;
  Condition wake;
  uint64_t next = 0;
  int go = 0;  // 1: run, 2: give up
  Atomic<int> error;
};
inline void* cooperative_main(void* object) {
  Cooperation& c = *static_cast<Cooperation*>(object);
  c.lock.lock();
  uint64_t block = c.next++;
  while (!c.go) c.wake.wait(c.lock);
  bool run = c.go == 1;
  c.lock.unlock();
  if (run) {
    if (int code = kernel_blocks(c.action, block, block + 1)) c.error.replace(0, code);
  }
  return nullptr;
}
inline int cooperative_run(Action* a) {
  const uint64_t blocks = a->kernel.blocks;
  if (blocks == 1) return kernel_blocks(a, 0, 1);
  if (blocks > kCooperativeBlocks) return hipErrorCooperativeLaunchTooLarge;
  Cooperation c;
  c.action = a;
  pthread_t threads[kCooperativeBlocks];
  uint64_t made = 0;
  while (made < blocks && !pthread_create(&threads[made], nullptr, cooperative_main, &c)) ++made;
  c.lock.lock();
  c.go = made == blocks ? 1 : 2;
  c.wake.broadcast();
  c.lock.unlock();
  for (uint64_t i = 0; i < made; ++i) pthread_join(threads[i], nullptr);
  return made == blocks ? c.error.get() : int(hipErrorCooperativeLaunchTooLarge);
}

// A kernel of a sanitized module: none runs beside it.
inline int sanitized_run(Action* a, bool cooperative) {
  Guard<Mutex> g(sanitizer().one);
  const auto& k = a->kernel;
  SanitizedLaunch l{};
  l.library = k.module->instrumented;
  l.how = &k.launch;
  l.cooperative = cooperative && k.blocks > 1;
  l.arguments = k.args;
  l.blocks = k.blocks;
  sanitized_open(&l, k.info->params, k.args, k.info->n_params);
  g_sanitized = &l;
  int code = cooperative ? cooperative_run(a) : kernel_blocks(a, 0, k.blocks);
  g_sanitized = nullptr;
  sanitized_close(&l);
  return code;
}

// Runs anything but event operations. `alone` keeps it on this thread. kPending: `done` is called later with the error. A kernel
// is cooperative if its node or its own launch on a stream says so.
inline Progress action_run(Action* a, const Task& done, bool alone, const Atomic<int>* stop, int* error, bool cooperative = false) {
  if (a->fault) {
    Guard<Mutex> g(g_fault.lock);
    snprintf(g_fault.text, sizeof g_fault.text, "memory of a device without peer access is reached");
    *error = hipErrorIllegalAddress;
    return kDone;
  }
  switch (a->type) {
    case hipGraphNodeTypeKernel: {
      cooperative = cooperative || a->kernel.launch.cooperative;
      if (a->kernel.module->instrumented) {
        *error = sanitized_run(a, cooperative);
        return kDone;
      }
      for (uint32_t i = 0; g_sanitized_modules.relaxed() && i < a->kernel.info->n_params; ++i) {
        void* pointer = nullptr;
        if (a->kernel.info->params[i].bytes == sizeof pointer) memcpy(&pointer, a->kernel.args[i], sizeof pointer);
        if (pointer) memory_wrote(pointer, 1, true);
      }
      if (cooperative) {
        *error = cooperative_run(a);
        return kDone;
      }
      if (a->kernel.blocks == 1 || alone) {
        *error = kernel_blocks(a, 0, a->kernel.blocks);
        return kDone;
      }
      return run_blocks(kernel_blocks, a, a->kernel.blocks, done, error, stop);
    }
    case hipGraphNodeTypeMemcpy:
      return copy_run(&a->copy.run, done, alone, error);
    case hipGraphNodeTypeMemset:
      return fill_run(&a->fill.run, done, alone, error);
    case hipGraphNodeTypeHost:
      memory_wrote(nullptr, 0);  // whatever it writes
      host_call(a->host.fn, a->host.userData, done);
      return kPending;
    case hipGraphNodeTypeMemAlloc:
      graph_block_set_live(a->memory.block, true);
      return kDone;
    case hipGraphNodeTypeMemFree:
      if (a->memory.held) graph_block_set_live(a->memory.block, false);
      else memory_give_back(a->memory.block);
      return kDone;
    case hipGraphNodeTypeExtSemaphoreSignal:
    case hipGraphNodeTypeExtSemaphoreWait:
    case hipGraphNodeTypeBatchMemOp:
      return steps_run(a, 0, done, stop, nullptr);
    default:
      return kDone;
  }
}
