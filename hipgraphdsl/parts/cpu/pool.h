// Worker threads: tasks, work stealing, blocks of one kernel over many workers, host functions, and waits that poll.
//
// A worker runs tasks from the end of its own deque and, when that is empty, takes from the shared one, from jobs that want
// help, and from the beginning of the others'. A push wakes a sleeper only if nobody is looking for work already. A worker
// never blocks in a task of this library; a kernel may (it may wait for memory that another kernel writes), and then a
// monitor adds a worker, so that whatever is ready starts in the end, as on a GPU with many queues.
#pragma once
#include "base.h"

// A task is also a continuation: whoever completes something runs or pushes it with `code` set.
struct Task {
  void (*run)(void* object, uint64_t index, int code) = nullptr;
  void* object = nullptr;
  uint64_t index = 0;
  int code = 0;
};

struct Deque {
  SpinLock lock;
  Atomic<uint32_t> size;
  Task* ring = nullptr;
  uint32_t room = 0, head = 0;

  void push(const Task* tasks, uint32_t n) {
    Guard<SpinLock> g(lock);
    uint32_t have = size.relaxed();
    if (have + n > room) grow(have + n);
    for (uint32_t i = 0; i < n; ++i) ring[(head + have + i) & (room - 1)] = tasks[i];
    size.set_sequential(have + n);
  }
  bool pop_back(Task* out) {
    if (!size.relaxed()) return false;
    Guard<SpinLock> g(lock);
    uint32_t have = size.relaxed();
    if (!have) return false;
    *out = ring[(head + have - 1) & (room - 1)];
    size.set(have - 1);
    return true;
  }
  bool pop_front(Task* out) {
    if (!size.relaxed()) return false;
    Guard<SpinLock> g(lock);
    uint32_t have = size.relaxed();
    if (!have) return false;
    *out = ring[head];
    head = (head + 1) & (room - 1);
    size.set(have - 1);
    return true;
  }

 private:
  void grow(uint32_t n) {
    uint32_t bigger = room ? room : 64;
    while (bigger < n) bigger *= 2;
    auto* fresh = static_cast<Task*>(must_alloc(bigger * sizeof(Task)));
    for (uint32_t i = 0, have = size.relaxed(); i < have; ++i) fresh[i] = ring[(head + i) & (room - 1)];
    free(ring);
    ring = fresh;
    room = bigger;
    head = 0;
  }
};

struct Worker {
  Deque deque;
  Atomic<uint64_t> ticks;  // tasks taken, so that the monitor sees who is stuck
  uint32_t index = 0;
  Random random{1};
  bool extra = false;
  Atomic<int> gone;  // its thread ended; the object stays, because a thief may look at it, and serves the next that is added
};

constexpr uint32_t kMaxWorkers = 1024, kMaxExtra = 64;
constexpr uint64_t kSpinNs = 30000;           // how long a worker looks for work before it sleeps
constexpr uint64_t kExtraIdleNs = 200000000;  // how long an added worker stays without work
constexpr uint64_t kMonitorNs = 5000000;
constexpr uint64_t kStuckNs = 20000000;  // without progress before a worker is added; doubles with each one added
constexpr uint32_t kStuckDoublings = 6;

struct Pool {
  Atomic<int> started;
  Mutex start_lock;
  uint32_t width = 1;  // workers that a kernel is spread over
  Atomic<Worker*> workers[kMaxWorkers];
  Atomic<uint32_t> made;
  Atomic<uint32_t> extras;
  Deque shared;  // from threads that are no workers, and what yielded: first in, first out
  Deque help;    // jobs that want more hands
  Atomic<int> idle, looking;
  Mutex sleep_lock;
  Condition wake;
  int tokens = 0;
  Atomic<int> quiet;  // the process ends: no host function starts any more
};
inline Pool* g_pool;
inline thread_local Worker* t_worker = nullptr;

inline void monitor_kick();

inline void pool_notify() {
  Pool& p = *g_pool;
  if (p.idle.get_sequential() > 0) {
    if (p.looking.get_sequential() > 0) return;
    p.sleep_lock.lock();
    bool woke = p.tokens < p.idle.relaxed();
    if (woke) {
      ++p.tokens;
      p.wake.signal();
    }
    p.sleep_lock.unlock();
    if (!woke) monitor_kick();  // they are being woken for something else, or the last one has just left
  } else if (p.looking.get_sequential() == 0) {
    monitor_kick();
  }
}
// Pushes where this thread will look first.
inline void push(const Task& task) {
  (t_worker ? t_worker->deque : g_pool->shared).push(&task, 1);
  pool_notify();
}
// Pushes behind everything that waits already.
inline void push_last(const Task& task) {
  g_pool->shared.push(&task, 1);
  pool_notify();
}
inline bool others_wait() { return g_pool->shared.size.relaxed() && !g_pool->idle.relaxed() && !g_pool->looking.relaxed(); }

// Whether any queue has a task.
inline bool task_waits(Pool& p) {
  if (p.shared.size.get_sequential() || p.help.size.get_sequential()) return true;
  for (uint32_t i = 0, n = p.made.get(); i < n; ++i) {
    if (p.workers[i].get()->deque.size.get_sequential()) return true;
  }
  return false;
}

// ---- monitor and polled waits -----------------------------------------------------------------------------------------
struct Step;
inline bool step_over(const Step& wait);

// A wait for memory or a semaphore. `stop`, if it becomes non-zero, ends the wait without success.
struct Poll {
  const Step* step;
  bool memory;
  const Atomic<int>* stop;
  Task then;
};

struct Monitor {
  Mutex lock;
  Condition wake;
  Vec<Poll> polls;
  Atomic<int> armed;      // watching for stuck workers
  uint32_t memory_waits = 0;  // polls that only looking again can end
};
inline Monitor* g_monitor;

inline void monitor_kick() {
  Monitor& m = *g_monitor;
  if (m.armed.get_sequential() || m.armed.swap(1)) return;
  Guard<Mutex> g(m.lock);
  m.wake.signal();
}

// Takes out the waits that are over; the caller pushes what follows them once it has left the lock.
inline void polls_take(Monitor& m, Vec<Task>& over) {
  for (uint32_t i = 0; i < m.polls.count;) {
    Poll& p = m.polls[i];
    bool stopped = p.stop && p.stop->get();
    if (!stopped && !step_over(*p.step)) {
      ++i;
      continue;
    }
    over.push(p.then);
    if (p.memory) --m.memory_waits;
    m.polls.remove_at(i);
  }
}
inline void polls_check() {
  Monitor& m = *g_monitor;
  Vec<Task> over;
  {
    Guard<Mutex> g(m.lock);
    polls_take(m, over);
  }
  for (const Task& task : over) push_last(task);
}
// Returns false if there is nothing to wait for.
inline bool poll_wait(const Poll& p) {
  Monitor& m = *g_monitor;
  Guard<Mutex> g(m.lock);
  if (step_over(*p.step) || (p.stop && p.stop->get())) return false;
  m.polls.push(p);
  if (p.memory) ++m.memory_waits;
  m.wake.signal();
  return true;
}

inline Worker* worker_add(bool extra);
inline bool in_order_runs();
inline bool in_order_check();

inline uint64_t cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

inline void* monitor_main(void*) {
  Monitor& m = *g_monitor;
  Pool& p = *g_pool;
  uint64_t seen = 0, looked = 0, moved = 0, moved_cpu = 0;
  int calm = 0, rounds = 0;
  Vec<Task> over;
  m.lock.lock();
  for (;;) {
    if (!m.memory_waits && !m.armed.relaxed()) {
      m.wake.wait(m.lock);
      looked = 0;
      rounds = 0;
      continue;
    }
    over.clear();
    polls_take(m, over);
    if (over.count) {
      m.lock.unlock();
      for (const Task& task : over) push_last(task);
      m.lock.lock();
    }
    uint64_t now = now_ns();
    if (m.armed.relaxed() && now - looked >= kMonitorNs) {
      uint64_t ticks = 0;
      bool waiting = p.shared.size.get() > 0;
      for (uint32_t i = 0, n = p.made.get(); i < n; ++i) {
        Worker* w = p.workers[i].get();
        ticks += w->ticks.relaxed();
        waiting = waiting || w->deque.size.get();
      }
      calm = in_order_check() || waiting ? 0 : calm + 1;
      uint64_t cpu = cpu_ns();
      if (!waiting || !looked || ticks != seen) {
        moved = now;
        moved_cpu = cpu;
      } else if (p.idle.relaxed()) {
        m.lock.unlock();
        pool_notify();
        m.lock.lock();
      } else {
        // Stuck is who computes without finishing, not who gets no core: on a busy machine more threads would only hurt.
        uint32_t extras = p.extras.relaxed();
        uint64_t need = kStuckNs << (extras < kStuckDoublings ? extras : kStuckDoublings);
        bool stuck = (now - moved >= need && cpu - moved_cpu >= need) || now - moved >= 10 * need;
        if (stuck && extras < kMaxExtra) {
          worker_add(true);
          moved = now;
          moved_cpu = cpu;
        }
      }
      if (calm >= 4) {
        calm = 0;
        m.armed.set_sequential(0);
        if (task_waits(p) || in_order_runs()) m.armed.set_sequential(1);  // begun meanwhile, by somebody who still saw us armed
      }
      seen = ticks;
      looked = now;
    }
    // A wait for memory is looked at often at first, and then a thousand times a second.
    uint64_t pause = m.memory_waits ? (++rounds < 200 ? 20000 : rounds < 2000 ? 100000 : 1000000) : kMonitorNs;
    if (m.memory_waits || m.armed.relaxed()) m.wake.wait_until(m.lock, now + pause);
  }
  return nullptr;
}

// ---- workers ------------------------------------------------------------------------------------------------------------
inline bool take_task(Pool& p, Worker& w, Task* out) {
  if (w.ticks.relaxed() % 61 == 0 && p.shared.pop_front(out)) return true;  // or a busy graph would starve the streams
  if (w.deque.pop_back(out) || p.shared.pop_front(out) || p.help.pop_front(out)) return true;
  uint32_t n = p.made.get(), from = n ? w.random.below(n) : 0;
  for (uint32_t i = 0; i < n; ++i) {
    Worker* other = p.workers[(from + i) % n].get();
    if (other != &w && other->deque.pop_front(out)) return true;
  }
  return false;
}

// Who pushes while somebody looks for work or is being woken wakes nobody. So whoever comes from looking or sleeping to a
// task wakes the next if there is more: pushes wake one worker at a time, and none is forgotten.
inline bool look_for_task(Pool& p, Worker& w, Task* out, bool* searched) {
  if (take_task(p, w, out)) return true;
  p.looking.add(1);
  uint64_t end = now_ns() + kSpinNs;
  bool found = false;
  do {
    for (int i = 0; i < 32 && !found; ++i) {
      pause_cpu();
      found = take_task(p, w, out);
    }
    if (!found) sched_yield();
  } while (!found && now_ns() < end);
  p.looking.sub(1);
  *searched = true;
  return found;
}

inline void* worker_main(void* self) {
  Worker& w = *static_cast<Worker*>(self);
  Pool& p = *g_pool;
  t_worker = &w;
  Task task;
  for (;;) {
    bool searched = false;
    while (!look_for_task(p, w, &task, &searched)) {
      p.idle.add(1);
      // What was pushed before `idle` grew did not wake us, so look once more.
      if (take_task(p, w, &task)) {
        p.idle.sub(1);
        break;
      }
      p.sleep_lock.lock();
      uint64_t deadline = now_ns() + kExtraIdleNs;
      bool timed_out = false;
      while (!p.tokens && !timed_out) {
        if (w.extra) {
          p.wake.wait_until(p.sleep_lock, deadline);
          timed_out = now_ns() >= deadline;
        } else {
          p.wake.wait(p.sleep_lock);
        }
      }
      if (p.tokens) {
        --p.tokens;
        timed_out = false;
      }
      p.idle.sub(1);
      p.sleep_lock.unlock();
      if (timed_out) {
        p.extras.sub(1);  // its deque is empty: only its owner fills it
        w.gone.set(1);
        return nullptr;
      }
    }
    w.ticks.set_relaxed(w.ticks.relaxed() + 1);
    if (searched && task_waits(p)) pool_notify();
    task.run(task.object, task.index, task.code);
  }
}

inline bool thread_start(void* (*main)(void*), void* argument) {
  pthread_attr_t how;
  pthread_attr_init(&how);
  pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&how, 8u << 20);
  pthread_t id;
  int failed = pthread_create(&id, &how, main, argument);
  pthread_attr_destroy(&how);
  return !failed;
}

inline Worker* worker_add(bool extra) {
  Pool& p = *g_pool;
  uint32_t n = p.made.get();
  Worker* w = nullptr;
  for (uint32_t i = 0; i < n && extra; ++i) {
    Worker* old = p.workers[i].get();
    if (old->gone.get()) w = old;
  }
  if (!w && n >= kMaxWorkers) return nullptr;
  bool fresh = !w;
  if (fresh) {
    w = create<Worker>();
    w->index = n;
    w->extra = extra;
    w->random.state = n * 7919 + 17;
  }
  w->gone.set(0);
  if (extra) p.extras.add(1);
  if (!thread_start(worker_main, w)) {
    w->gone.set(1);
    if (extra) p.extras.sub(1);
    if (fresh) discard(w);
    return nullptr;
  }
  if (fresh) {
    p.workers[n].set(w);
    p.made.set(n + 1);
  }
  return w;
}

inline uint32_t cores() {
  if (const char* asked = getenv("HIPGRAPHDSL_CPU_THREADS")) {
    long n = strtol(asked, nullptr, 10);
    if (n > 0) return uint32_t(n < 512 ? n : 512);
  }
#ifdef __linux__
  cpu_set_t mask;
  if (!sched_getaffinity(0, sizeof mask, &mask)) return uint32_t(CPU_COUNT(&mask)) < 512 ? uint32_t(CPU_COUNT(&mask)) : 512;
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? uint32_t(n) : 1;
}

// ---- one function over many blocks ----------------------------------------------------------------------------------
using BlockFn = int (*)(void* context, uint64_t first, uint64_t last);

struct Job {
  Atomic<int> refs, error, tickets;
  Atomic<uint64_t> next, left;
  uint64_t total = 0, chunk = 1;
  BlockFn fn = nullptr;
  void* context = nullptr;
  const Atomic<int>* stop = nullptr;  // once it is not 0, no further blocks begin
  Task done;
};

inline bool is_stopped(const Atomic<int>* stop) { return stop && stop->get(); }
inline void job_release(Job* j) {
  if (j->refs.sub(1) == 1) discard(j);
}
// Takes chunks until there are none; returns whether this call finished the last one.
inline bool job_work(Job* j) {
  uint64_t did = 0;
  for (;;) {
    uint64_t first = j->next.add(j->chunk);
    if (first >= j->total) break;
    uint64_t last = first + j->chunk < j->total ? first + j->chunk : j->total;
    if (!j->error.relaxed()) {
      int e = is_stopped(j->stop) ? int(hipErrorLaunchFailure) : j->fn(j->context, first, last);
      if (e) j->error.replace(0, e);
    }
    did += last - first;
  }
  return did && j->left.sub(did) == did;
}
inline void job_help(void* object, uint64_t, int) {
  Job* j = static_cast<Job*>(object);
  if (j->next.relaxed() < j->total && j->tickets.sub(1) > 0) {
    j->refs.add(1);
    Task more{job_help, j, 0, 0};
    g_pool->help.push(&more, 1);
    pool_notify();
  }
  if (job_work(j)) {
    Task done = j->done;
    int error = j->error.get();
    job_release(j);
    done.run(done.object, done.index, error);
    return;
  }
  job_release(j);
}

enum Progress { kDone, kPending };

// Runs blocks [0, total). The first ones run here and are timed: what takes a few microseconds in all is never handed over.
// kPending: `done` is called later, on a worker.
inline Progress run_blocks(BlockFn fn, void* context, uint64_t total, const Task& done, int* error,
                           const Atomic<int>* stop = nullptr) {
  constexpr uint64_t kAloneNs = 10000, kChunkNs = 50000;
  uint64_t first = 0, step = 1, began = now_ns(), spent = 0;
  uint32_t width = g_pool->width;
  for (;;) {
    uint64_t last = first + step < total ? first + step : total;
    if ((*error = fn(context, first, last))) return kDone;
    first = last;
    if (first == total) return kDone;
    if (is_stopped(stop)) return *error = hipErrorLaunchFailure, kDone;
    spent = now_ns() - began;
    if (width > 1 && spent > kAloneNs) break;
    if (spent < kChunkNs) step *= 2;  // later steps, on one core, are short enough to be stopped after
  }
  uint64_t left = total - first, even = left / (width * 4u), timed = kChunkNs * first / spent;
  Job* j = create<Job>();
  j->refs.set_relaxed(2);
  j->tickets.set_relaxed(int(width) - 1);
  j->next.set_relaxed(first);
  j->left.set_relaxed(left);
  j->total = total;
  j->chunk = even < timed ? even : timed;
  if (!j->chunk) j->chunk = 1;
  j->fn = fn;
  j->context = context;
  j->stop = stop;
  j->done = done;
  Task ticket{job_help, j, 0, 0};
  g_pool->help.push(&ticket, 1);
  pool_notify();
  bool last_here = job_work(j);
  *error = j->error.get();
  job_release(j);
  return last_here ? kDone : kPending;
}

// ---- host functions -----------------------------------------------------------------------------------------------------
// All run on one thread of their own: a Python callback that waits for the interpreter then holds up no worker.
struct HostCall {
  HostCall* next;
  hipHostFn_t fn;
  void* argument;
  Task then;
};
struct HostThread {
  Mutex lock;
  Condition wake, rested;
  HostCall *head = nullptr, *tail = nullptr;
  bool running = false;
};
inline HostThread* g_host;
inline thread_local bool t_in_host_function = false, t_host_function_failed = false;

inline void* host_main(void*) {
  HostThread& h = *g_host;
  h.lock.lock();
  for (;;) {
    while (!h.head) h.wake.wait(h.lock);
    HostCall* call = h.head;
    h.head = call->next;
    if (!h.head) h.tail = nullptr;
    bool skip = g_pool->quiet.get();
    h.running = !skip;
    h.lock.unlock();
    t_host_function_failed = false;
    if (!skip) {
      t_in_host_function = true;
      call->fn(call->argument);
      t_in_host_function = false;
    }
    Task then = call->then;
    if (t_host_function_failed) forget_fault();
    then.code = t_host_function_failed ? hipErrorLaunchFailure : hipSuccess;
    free(call);
    push_last(then);
    h.lock.lock();
    h.running = false;
    h.rested.broadcast();
  }
  return nullptr;
}
inline void host_call(hipHostFn_t fn, void* argument, const Task& then) {
  HostThread& h = *g_host;
  auto* call = static_cast<HostCall*>(must_alloc(sizeof(HostCall)));
  *call = {nullptr, fn, argument, then};
  Guard<Mutex> g(h.lock);
  (h.tail ? h.tail->next : h.head) = call;
  h.tail = call;
  h.wake.signal();
}

inline void after_fork_in_child() { g_forked = true; }

inline bool pool_start() {
  if (g_pool && g_pool->started.get()) return true;
  static Mutex once;
  Guard<Mutex> g(once);
  if (g_pool && g_pool->started.get()) return true;
  if (!g_pool) {
    g_monitor = create<Monitor>();
    g_host = create<HostThread>();
    g_pool = create<Pool>();
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
  }
  Pool& p = *g_pool;
  p.width = cores();
  // One core still gets two workers, because one kernel may wait for what another writes.
  uint32_t n = p.width < 2 ? 2 : p.width;
  for (uint32_t i = 0; i < n; ++i) {
    if (!worker_add(false) && i == 0) return false;
  }
  if (!thread_start(monitor_main, nullptr) || !thread_start(host_main, nullptr)) return false;
  p.started.set(1);
  return true;
}
