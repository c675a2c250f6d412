// hipStream*, hipEvent*, hipLaunchHostFunc, semaphores, memory operations, and capture.
#pragma once
#include "api_device.h"

// Streams have one priority, 0; as in HIP, a priority outside the range is clamped to it.
API int hipStreamCreateWithPriority(Handle* out, unsigned flags, int) {
  ENTER();
  REQUIRE(out && flags <= 1, hipErrorInvalidValue);
  REQUIRE(pool_start(), hipErrorOutOfMemory);
  null_stream();
  Stream* s = stream_new(!(flags & 1));
  *out = s->handle = g_handles.add(kStream, s);
  return hipSuccess;
}
API int hipStreamCreateWithFlags(Handle* out, unsigned flags) { return hipStreamCreateWithPriority(out, flags, 0); }
API int hipStreamCreate(Handle* out) { return hipStreamCreateWithPriority(out, 0, 0); }
API int hipStreamGetPriority(Handle stream, int* priority) {
  ENTER();
  REQUIRE(priority, hipErrorInvalidValue);
  REQUIRE(stream_of(stream), hipErrorInvalidHandle);
  *priority = 0;
  return hipSuccess;
}
API int hipStreamGetDevice(Handle stream, int* device) {
  ENTER();
  REQUIRE(device, hipErrorInvalidValue);
  STREAM(s, stream);
  *device = s->device;
  return hipSuccess;
}
// Its work goes on; the stream itself goes when that is done.
API int hipStreamDestroy(Handle stream) {
  ENTER();
  HELD(Stream, s, stream);
  if (s->capture.get()) capture_forget_stream(s);
  g_handles.remove(stream);
  stream_release(s);
  memory_trim(true);  // what launches on it have freed is kept for its next launches only
  return hipSuccess;
}

// What a call that waits for `s`, or asks whether it is done, may do while something captures.
inline int wait_allowed(Stream* s) {
  Captures& all = captures();
  if (!all.count.relaxed()) return hipSuccess;
  if (s->capture.get()) {
    Guard<Mutex> g(all.lock);
    if (Capture* c = s->capture.get()) {
      c->invalid = true;
      return hipErrorStreamCaptureUnsupported;
    }
  }
  return unsafe_call();
}
// Whether the stream has done all that it has now. Deadline 0: waits for ever; 1: only looks.
inline bool stream_reached(Stream* s, uint64_t deadline) {
  uint64_t target = s->submitted.get_sequential();
  return s->completed.get_sequential() >= target || (deadline != 1 && stream_wait_for(s, target, deadline));
}
inline int stream_finish(Stream* s, uint64_t deadline) {
  if (int code = wait_allowed(s)) return fail(code);
  REQUIRE(!t_in_host_function || deadline == 1, hipErrorNotPermitted);
  Vec<Stream*> held;  // the null stream is done when all that order themselves with it are
  if (s->is_null && streams().blocking.relaxed() > 1) streams_hold(held);
  bool done = true;
  for (Stream* other : held) {
    if (other->blocking && other->device == s->device && done) done = stream_reached(other, deadline);
    stream_release(other);
  }
  s->refs.add(1);
  done = done && stream_reached(s, deadline);
  int code = done ? stream_take_error(s) : int(hipErrorNotReady);
  stream_release(s);
  return fail(code);
}
API int hipStreamSynchronize(Handle stream) {
  ENTER();
  STREAM(s, stream);
  return stream_finish(s, 0);
}
API int hipStreamQuery(Handle stream) {
  ENTER();
  STREAM(s, stream);
  return stream_finish(s, 1);
}
// 0 when the stream is done, hipErrorNotReady after `timeout_us` microseconds, or the stream's error.
API int hgcpuStreamWait(Handle stream, uint64_t timeout_us) {
  ENTER();
  STREAM(s, stream);
  uint64_t now = now_ns(), span = timeout_us < ~uint64_t(0) / 2000 ? timeout_us * 1000 : ~uint64_t(0) / 2 - now;
  return stream_finish(s, timeout_us ? now + span : 1);
}
// 0 when a launch on the stream would not wait for earlier ones, hipErrorNotReady after `timeout_us` microseconds.
API int hgcpuStreamRoom(Handle stream, uint64_t timeout_us) {
  ENTER();
  STREAM(s, stream);
  return stream_has_room(s, timeout_us ? now_ns() + timeout_us * 1000 : 1) ? hipSuccess : hipErrorNotReady;
}
// The same; and then the thread's next operations, on any stream, do not wait.
API int hgcpuRoomForLaunch(Handle stream, uint64_t timeout_us) {
  const int code = hgcpuStreamRoom(stream, timeout_us);
  if (code == hipSuccess) t_ahead = kMostAhead;
  return code;
}
API int hipDeviceSynchronize() {
  ENTER();
  if (int code = capture_refuse(hipErrorStreamCaptureUnsupported, true)) return fail(code);
  REQUIRE(!t_in_host_function, hipErrorNotPermitted);
  Vec<Stream*> held;
  streams_hold(held);
  int first = hipSuccess, device = this_device();
  for (Stream* s : held) {
    if (s->device == device) stream_wait_for(s, s->submitted.get_sequential(), 0);
  }
  for (Stream* s : held) {
    int code = s->device == device ? stream_take_error(s) : 0;
    if (!first) first = code;
    stream_release(s);
  }
  reap_deferred();
  return fail(first);
}

API int hipLaunchHostFunc(Handle stream, hipHostFn_t fn, void* argument) {
  ENTER();
  REQUIRE(fn, hipErrorInvalidValue);
  STREAM(s, stream);
  Action* a = action_new(hipGraphNodeTypeHost);
  a->host = {fn, argument};
  return stream_put(s, a);
}
// Inside a host function: it failed, so nothing behind it starts, and the stream's next synchronize says so.
API void hgcpuHostFuncFailed() {
  if (t_in_host_function) t_host_function_failed = true;
}
// The process ends: no host function starts any more, and one that runs gets a second to come to its end.
API void hgcpuShutdown() {
  if (g_forked || !g_pool || !g_pool->started.get()) return;
  g_pool->quiet.set(1);
  HostThread& h = *g_host;
  uint64_t end = now_ns() + 1000000000u;
  Guard<Mutex> g(h.lock);
  while (h.running && now_ns() < end) h.rested.wait_until(h.lock, end);
}

// ---- events -----------------------------------------------------------------------------------------------------------------
API int hipEventCreateWithFlags(Handle* out, unsigned flags) {
  ENTER();
  REQUIRE(out && !(flags & ~0xe0000007u), hipErrorInvalidValue);
  Event* e = create<Event>();
  e->refs.set_relaxed(1);
  e->timing = !(flags & 2);
  e->device = this_device();
  *out = e->handle = g_handles.add(kEvent, e);
  return hipSuccess;
}
API int hipEventCreate(Handle* out) { return hipEventCreateWithFlags(out, 0); }
API int hipEventDestroy(Handle event) {
  ENTER();
  HELD(Event, e, event);
  g_handles.remove(event);
  event_release(e);
  return hipSuccess;
}
API int hipEventRecord(Handle event, Handle stream) {
  ENTER();
  HELD(Event, e, event);
  STREAM(s, stream);
  REQUIRE(e->device == s->device, hipErrorInvalidHandle);
  if (s->capture.relaxed()) {
    Guard<Mutex> g(captures().lock);
    Capture* c = s->capture.get();
    REQUIRE(c && !c->invalid, hipErrorStreamCaptureInvalidated);
    Guard<SpinLock> g2(e->lock);
    e->capture = c->id;
    e->captured.assign(s->capture_deps.items, s->capture_deps.count);
    return hipSuccess;
  }
  Token* t = token_new();
  event_set(e, t);
  return fail(stream_submit(s, action_new(hipGraphNodeTypeEventRecord), t, nullptr));
}
// Whether `e` was recorded by a capture that goes on; 0, or the error of a call that waits for it.
inline int event_wait_allowed(Event* e) {
  Captures& all = captures();
  if (!all.count.relaxed()) return hipSuccess;
  {
    Guard<Mutex> g(all.lock);
    if (Capture* c = e->capture ? capture_by_id(all, e->capture) : nullptr) {
      c->invalid = true;
      return hipErrorCapturedEvent;
    }
  }
  return unsafe_call();
}
API int hipEventSynchronize(Handle event) {
  ENTER();
  HELD(Event, e, event);
  if (int code = event_wait_allowed(e)) return fail(code);
  Token* t = event_last(e);
  if (!t) return hipSuccess;
  if (t_in_host_function && !t->done.get()) {
    token_release(t);
    return fail(hipErrorNotPermitted);
  }
  for (uint64_t end = now_ns() + kSpinNs; !t->done.get() && now_ns() < end;) sched_yield();
  if (!t->done.get()) {
    Sleep& sleep = token_sleep();
    t->sleepers.add(1);
    sleep.lock.lock();
    while (!t->done.get_sequential()) sleep.woken.wait(sleep.lock);
    sleep.lock.unlock();
  }
  token_release(t);
  return hipSuccess;
}
API int hipEventQuery(Handle event) {
  ENTER();
  HELD(Event, e, event);
  if (int code = event_wait_allowed(e)) return fail(code);
  Token* t = event_last(e);
  bool done = !t || t->done.get();
  token_release(t);
  return done ? hipSuccess : fail(hipErrorNotReady);
}
API int hipEventElapsedTime(float* ms, Handle start, Handle stop) {
  ENTER();
  Event *a = find<Event>(start), *b = find<Event>(stop);
  REQUIRE(ms, hipErrorInvalidValue);
  REQUIRE(a && b && a->timing && b->timing && a->device == b->device, hipErrorInvalidHandle);
  Token *from = event_last(a), *to = event_last(b);
  int code = !from || !to ? hipErrorInvalidHandle : from->done.get() && to->done.get() ? hipSuccess : hipErrorNotReady;
  if (!code) *ms = float(double(int64_t(to->ns - from->ns)) * 1e-6);
  token_release(from);
  token_release(to);
  return fail(code);
}
API int hipStreamWaitEvent(Handle stream, Handle event, unsigned) {
  ENTER();
  HELD(Event, e, event);
  STREAM(s, stream);
  Captures& all = captures();
  if (all.count.relaxed()) {
    Guard<Mutex> g(all.lock);
    Capture* theirs = e->capture ? capture_by_id(all, e->capture) : nullptr;
    Capture* mine = s->capture.get();
    if (theirs && theirs->invalid) return fail(hipErrorStreamCaptureInvalidated);
    if (theirs && mine && mine != theirs) {
      mine->invalid = theirs->invalid = true;
      return fail(hipErrorStreamCaptureMerge);
    }
    if (theirs && !mine) {
      REQUIRE(!s->is_null, hipErrorStreamCaptureImplicit);
      s->capture.set(theirs);
      theirs->streams.push(s);
      s->capture_deps.assign(e->captured.items, e->captured.count);
      return hipSuccess;
    }
    if (mine) {
      if (mine->invalid) return fail(hipErrorStreamCaptureInvalidated);
      // An event that was recorded outside adds nothing: AMD accepts it and waits for nothing in the graph.
      for (uint32_t i = 0; theirs && i < e->captured.count; ++i) {
        if (!s->capture_deps.contains(e->captured[i])) s->capture_deps.push(e->captured[i]);
      }
      return hipSuccess;
    }
  }
  Token* t = event_last(e);
  if (!t) return hipSuccess;
  return fail(stream_submit(s, action_new(hipGraphNodeTypeWaitEvent), t, nullptr));
}

// ---- semaphores and memory operations ---------------------------------------------------------------------------------
API int hgcpuSemaphoreCreate(Handle* out, uint64_t value) {
  ENTER();
  REQUIRE(out, hipErrorInvalidValue);
  REQUIRE(pool_start(), hipErrorOutOfMemory);
  Semaphore* s = create<Semaphore>();
  s->refs.set_relaxed(1);
  s->value.set(value);
  *out = s->handle = g_handles.add(kSemaphore, s);
  return hipSuccess;
}
API int hgcpuSemaphoreDestroy(Handle semaphore) {
  ENTER();
  HELD(Semaphore, s, semaphore);
  g_handles.remove(semaphore);
  semaphore_release(s);
  return hipSuccess;
}
API int hgcpuSemaphoreValue(Handle semaphore, uint64_t* value) {
  ENTER();
  HELD(Semaphore, s, semaphore);
  REQUIRE(value, hipErrorInvalidValue);
  *value = s->value.get();
  return hipSuccess;
}
// From the host, as the other side of an external semaphore would.
API int hgcpuSemaphoreSignal(Handle semaphore, uint64_t value) {
  ENTER();
  HELD(Semaphore, s, semaphore);
  semaphore_signal(s, value);
  return hipSuccess;
}

inline int semaphores_async(int type, const Handle* list, const hipExternalSemaphoreParams* params, unsigned n, Handle stream) {
  STREAM(s, stream);
  Action* a;
  if (int code = action_semaphores(&a, type, {const_cast<Handle*>(list), params, n})) return fail(code);
  return stream_put(s, a);
}
API int hipSignalExternalSemaphoresAsync(const Handle* list, const hipExternalSemaphoreParams* params, unsigned n, Handle stream) {
  ENTER();
  return semaphores_async(hipGraphNodeTypeExtSemaphoreSignal, list, params, n, stream);
}
API int hipWaitExternalSemaphoresAsync(const Handle* list, const hipExternalSemaphoreParams* params, unsigned n, Handle stream) {
  ENTER();
  return semaphores_async(hipGraphNodeTypeExtSemaphoreWait, list, params, n, stream);
}
inline int memory_ops_async(Handle stream, unsigned n, const hipStreamBatchMemOpParams* ops, unsigned flags, uint64_t mask) {
  STREAM(s, stream);
  Action* a;
  if (int code = action_memory_ops(&a, n, ops, flags, mask, s->device)) return fail(code);
  return stream_put(s, a);
}
API int hipStreamBatchMemOp(Handle stream, unsigned n, hipStreamBatchMemOpParams* ops, unsigned flags) {
  ENTER();
  return memory_ops_async(stream, n, ops, flags, ~uint64_t(0));
}
inline int one_memory_op(Handle stream, int operation, void* address, uint64_t value, unsigned flags, uint64_t mask) {
  hipStreamBatchMemOpParams op{operation, static_cast<uint64_t*>(address), value, flags, nullptr, 0};
  return memory_ops_async(stream, 1, &op, 0, mask);
}
API int hipStreamWriteValue32(Handle stream, void* address, uint32_t value, unsigned flags) {
  ENTER();
  return one_memory_op(stream, 2, address, value, flags, ~uint64_t(0));
}
API int hipStreamWriteValue64(Handle stream, void* address, uint64_t value, unsigned flags) {
  ENTER();
  return one_memory_op(stream, 5, address, value, flags, ~uint64_t(0));
}
API int hipStreamWaitValue32(Handle stream, void* address, uint32_t value, unsigned flags, uint32_t mask) {
  ENTER();
  return one_memory_op(stream, 1, address, value, flags, mask);
}
API int hipStreamWaitValue64(Handle stream, void* address, uint64_t value, unsigned flags, uint64_t mask) {
  ENTER();
  return one_memory_op(stream, 4, address, value, flags, mask);
}

// ---- capture ----------------------------------------------------------------------------------------------------------------
inline bool is_mode(int mode) { return mode >= hipStreamCaptureModeGlobal && mode <= hipStreamCaptureModeRelaxed; }

API int hipThreadExchangeStreamCaptureMode(int* mode) {
  ENTER();
  REQUIRE(mode && is_mode(*mode), hipErrorInvalidValue);
  int before = t_capture_mode;
  t_capture_mode = *mode;
  *mode = before;
  return hipSuccess;
}
API int hipStreamBeginCapture(Handle stream, int mode) {
  ENTER();
  REQUIRE(is_mode(mode), hipErrorInvalidValue);
  STREAM(s, stream);
  REQUIRE(!s->is_null, hipErrorStreamCaptureUnsupported);
  return fail(capture_begin(s, mode));
}
API int hipStreamEndCapture(Handle stream, Handle* graph) {
  ENTER();
  REQUIRE(graph, hipErrorInvalidValue);
  *graph = 0;
  STREAM(s, stream);
  return fail(capture_end(s, graph));
}
API int hipStreamGetCaptureInfo_v2(Handle stream, int* status, unsigned long long* id, Handle* graph, const Handle** deps,
                                   size_t* count) {
  ENTER();
  REQUIRE(status, hipErrorInvalidValue);
  STREAM(s, stream);
  Captures& all = captures();
  Guard<Mutex> g(all.lock);
  Capture* c = s->capture.get();
  bool active = c && !c->invalid;
  *status = !c ? hipStreamCaptureStatusNone : active ? hipStreamCaptureStatusActive : hipStreamCaptureStatusInvalidated;
  if (id) *id = c ? c->id : 0;
  if (graph) *graph = active ? c->graph_handle : 0;
  if (deps) *deps = active ? s->capture_deps.items : nullptr;
  if (count) *count = active ? s->capture_deps.count : 0;
  return hipSuccess;
}
// The null stream waits for the blocking streams, which none of them may while it captures.
inline int null_stream_captures(Stream* null) {
  Vec<Stream*> held;
  bool found = false;
  streams_hold(held);
  for (Stream* s : held) {
    found = found || (s->blocking && !s->is_null && s->device == null->device && s->capture.get());
    stream_release(s);
  }
  return found ? hipErrorStreamCaptureImplicit : hipSuccess;
}
API int hipStreamIsCapturing(Handle stream, int* status) {
  ENTER();
  STREAM(s, stream);
  if (s->is_null && streams().blocking.relaxed() > 1) {
    if (int code = null_stream_captures(s)) return fail(code);
  }
  return hipStreamGetCaptureInfo_v2(stream, status, nullptr, nullptr, nullptr, nullptr);
}
// flags: 0 adds to the dependencies, 1 replaces them.
API int hipStreamUpdateCaptureDependencies(Handle stream, const Handle* deps, size_t n, unsigned flags) {
  ENTER();
  REQUIRE(flags <= 1 && (!n || deps), hipErrorInvalidValue);
  STREAM(s, stream);
  Captures& all = captures();
  Guard<Mutex> g(all.lock);
  Capture* c = s->capture.get();
  REQUIRE(c, hipErrorIllegalState);
  REQUIRE(!c->invalid, hipErrorStreamCaptureInvalidated);
  for (size_t i = 0; i < n; ++i) {
    Node* d = find<Node>(deps[i]);
    REQUIRE(d && d->graph == c->graph, hipErrorInvalidValue);
  }
  if (flags) s->capture_deps.clear();
  for (size_t i = 0; i < n; ++i) {
    if (!s->capture_deps.contains(deps[i])) s->capture_deps.push(deps[i]);
  }
  return hipSuccess;
}
