// hipInit .. hipModule*: the device, memory, and modules.
#pragma once
#include <stdio.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/mman.h>
#include <sys/syscall.h>
#endif

#include "exec.h"

constexpr int kVersion = 70200000;  // the HIP whose rules are followed: 7.2

// ---- device ---------------------------------------------------------------------------------------------------------------
API int hipInit(unsigned flags) {
  ENTER();
  REQUIRE(!flags, hipErrorInvalidValue);
  return pool_start() ? hipSuccess : fail(hipErrorOutOfMemory);
}
API int hipGetDeviceCount(int* count) {
  ENTER();
  REQUIRE(count, hipErrorInvalidValue);
  *count = device_count();
  return hipSuccess;
}
// How many devices there are from now on, none with access to another; at first HIPGRAPHDSL_CPU_DEVICES, or 1.
API int hgcpuSetDeviceCount(int count) {
  ENTER();
  REQUIRE(count >= 1 && count <= kMaxDevices, hipErrorInvalidValue);
  for (int d = 0; d < kMaxDevices; ++d) {
    g_devices.peers[d].set(0);
    g_devices.pools[d].set(0);
  }
  g_devices.count.set(count);
  return hipSuccess;
}
API int hipSetDevice(int device) {
  ENTER();
  REQUIRE(is_device(device), hipErrorInvalidDevice);
  t_device = device;
  return hipSuccess;
}
API int hipGetDevice(int* device) {
  ENTER();
  REQUIRE(device, hipErrorInvalidValue);
  *device = this_device();
  return hipSuccess;
}
API int hipRuntimeGetVersion(int* version) {
  REQUIRE(version, hipErrorInvalidValue);
  *version = kVersion;
  return hipSuccess;
}
API int hipDeviceCanAccessPeer(int* can, int device, int peer) {
  ENTER();
  REQUIRE(can, hipErrorInvalidValue);
  REQUIRE(is_device(device) && is_device(peer), hipErrorInvalidDevice);
  *can = device != peer;
  return hipSuccess;
}
API int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  ENTER();
  REQUIRE(!flags, hipErrorInvalidValue);
  int here = this_device();
  REQUIRE(is_device(peer) && peer != here, hipErrorInvalidDevice);
  uint32_t old = __atomic_fetch_or(&g_devices.peers[here].value, 1u << peer, __ATOMIC_SEQ_CST);
  REQUIRE(!(old >> peer & 1), hipErrorPeerAccessAlreadyEnabled);
  return hipSuccess;
}
API int hipDeviceGetDefaultMemPool(void** pool, int device) {
  ENTER();
  REQUIRE(pool, hipErrorInvalidValue);
  REQUIRE(is_device(device), hipErrorInvalidDevice);
  *pool = &g_devices.pools[device];
  return hipSuccess;
}
API int hipMemPoolSetAccess(void* pool, const hipMemAccessDesc* list, size_t count) {
  ENTER();
  auto* bits = static_cast<Atomic<uint32_t>*>(pool);
  int owner = int(bits - g_devices.pools);
  REQUIRE(pool && list && count && is_device(owner), hipErrorInvalidValue);
  for (size_t i = 0; i < count; ++i) {
    const hipMemAccessDesc& d = list[i];
    REQUIRE(d.location.type == 1 && is_device(d.location.id) && (d.flags == 3 || d.location.id != owner), hipErrorInvalidValue);
    if (d.flags == 3) __atomic_fetch_or(&bits->value, 1u << d.location.id, __ATOMIC_SEQ_CST);
    else __atomic_fetch_and(&bits->value, ~(1u << d.location.id), __ATOMIC_SEQ_CST);
  }
  return hipSuccess;
}
API int hipDevicePrimaryCtxRetain(void** context, int device) {
  ENTER();
  REQUIRE(context, hipErrorInvalidValue);
  REQUIRE(is_device(device), hipErrorInvalidDevice);
  static char primary[kMaxDevices];
  *context = &primary[device];
  return hipSuccess;
}
API int hipDevicePrimaryCtxRelease(int device) {
  ENTER();
  return is_device(device) ? hipSuccess : fail(hipErrorInvalidDevice);
}
API int hipDeviceGetName(char* name, int length, int device) {
  ENTER();
  REQUIRE(name && length > 0, hipErrorInvalidValue);
  REQUIRE(is_device(device), hipErrorInvalidDevice);
  char text[256] = "CPU";
  if (FILE* f = fopen("/proc/cpuinfo", "re")) {
    char line[512];
    while (fgets(line, sizeof line, f)) {
      char* colon = strchr(line, ':');
      if (!strncmp(line, "model name", 10) && colon) {
        line[strcspn(line, "\n")] = 0;
        snprintf(text, sizeof text, "%s", colon + 2);
        break;
      }
    }
    fclose(f);
  }
  snprintf(name, size_t(length), "%s", text);
  return hipSuccess;
}
// By the numbers of hipDeviceAttribute_t in HIP 6 and 7; others are not known here.
API int hipDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER();
  REQUIRE(value, hipErrorInvalidValue);
  REQUIRE(is_device(device), hipErrorInvalidDevice);
  switch (attribute) {
    case 10:  // hipDeviceAttributeCooperativeLaunch
    case 16:  // hipDeviceAttributeIntegrated
      *value = 1;
      return hipSuccess;
    case 26: case 27: case 28:  // hipDeviceAttributeMaxBlockDimX, Y, Z
    case 56:                    // hipDeviceAttributeMaxThreadsPerBlock
      *value = 1024;
      return hipSuccess;
    case 29: case 30: case 31:  // hipDeviceAttributeMaxGridDimX, Y, Z
      *value = 0x7fffffff;
      return hipSuccess;
    case 63:  // hipDeviceAttributeMultiprocessorCount
      *value = int(cores());
      return hipSuccess;
    case 74:  // hipDeviceAttributeMaxSharedMemoryPerBlock
      *value = 65536;
      return hipSuccess;
    case 87:  // hipDeviceAttributeWarpSize
      *value = 64;
      return hipSuccess;
    default:
      return fail(hipErrorInvalidValue);
  }
}
API int hipMemGetInfo(size_t* available, size_t* total) {
  ENTER();
  REQUIRE(available && total, hipErrorInvalidValue);
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  *total = m.total;
  *available = m.total > m.taken ? m.total - m.taken : 0;
  return hipSuccess;
}

struct ErrorText {
  int code;
  const char *name, *text;
};
inline const ErrorText* error_text(int code) {
#define HIP_ERROR(name, number, text) {number, #name, text},
  static const ErrorText table[] = {HIP_ERRORS(HIP_ERROR)};
#undef HIP_ERROR
  for (const ErrorText& row : table) {
    if (row.code == code) return &row;
  }
  return nullptr;
}
API const char* hipGetErrorName(int code) {
  const ErrorText* row = error_text(code);
  return row ? row->name : "hipErrorUnknown";
}
API const char* hipGetErrorString(int code) {
  const ErrorText* row = error_text(code);
  return row ? row->text : "the kernel returned an error code of its own";
}
API int hipGetLastError() {
  int code = t_last_error;
  t_last_error = 0;
  return code;
}

// ---- streams by handle ----------------------------------------------------------------------------------------------------
inline Stream* null_stream() {
  Streams& all = streams();
  int device = this_device();
  if (Stream* s = __atomic_load_n(&all.null[device], __ATOMIC_ACQUIRE)) return s;
  static Mutex once;
  Guard<Mutex> g(once);
  if (!all.null[device]) {
    Stream* s = stream_new(true);
    s->is_null = true;
    __atomic_store_n(&all.null[device], s, __ATOMIC_RELEASE);
  }
  return all.null[device];
}
struct ThreadStreams {
  Stream* of[kMaxDevices] = {};
};
inline void thread_streams_end(void* object) {
  auto* mine = static_cast<ThreadStreams*>(object);
  for (Stream* s : mine->of) {
    if (!s || g_forked) continue;
    capture_forget_stream(s);
    stream_release(s);
  }
  discard(mine);
}
inline Stream* thread_stream() {
  static pthread_key_t key;
  static Atomic<int> made;
  static Mutex once;
  if (!made.get()) {
    Guard<Mutex> g(once);
    if (!made.get()) {
      pthread_key_create(&key, thread_streams_end);
      made.set(1);
    }
  }
  auto* mine = static_cast<ThreadStreams*>(pthread_getspecific(key));
  if (!mine) pthread_setspecific(key, mine = create<ThreadStreams>());
  Stream*& s = mine->of[this_device()];
  if (!s) s = stream_new(true);
  return s;
}
// 0 and hipStreamLegacy (1) are the null stream, hipStreamPerThread is 2.
inline Stream* stream_of(Handle h) {
  if (h > 2) return find<Stream>(h);
  if (!pool_start()) return nullptr;
  Stream* null = null_stream();
  return h == 2 ? thread_stream() : null;
}
#define STREAM(name, handle)         \
  Stream* name = stream_of(handle); \
  REQUIRE(name, hipErrorInvalidHandle)

// An operation for a stream, or for what it captures; takes over the reference.
inline int stream_put(Stream* s, Action* action) {
  if (s->capture.relaxed()) return fail(capture_add(s, action));
  return fail(stream_submit(s, action, nullptr, nullptr));
}

// ---- memory -----------------------------------------------------------------------------------------------------------------
// Memory that is freed while work that may use it is under way is given back when that work is done.
struct Deferred {
  struct Until {
    Stream* stream;
    uint64_t target;
  };
  Block* block;
  Vec<Until> until;
};
struct DeferredFrees {
  Mutex lock;
  Vec<Deferred*> list;
};
inline DeferredFrees* g_deferred = create<DeferredFrees>();
inline DeferredFrees& deferred() { return *g_deferred; }
inline void free_now(Block* b) {
  if (b->origin != Origin::graph) return memory_give_back(b);
  if (!b->left.get()) graph_block_set_live(b, false);  // else a launch that came later leaves it allocated
  graph_block_release(b);
}
inline void reap_deferred() {
  DeferredFrees& d = deferred();
  Vec<Deferred*> over;
  {
    Guard<Mutex> g(d.lock);
    for (uint32_t i = 0; i < d.list.count;) {
      bool done = true;
      for (const auto& u : d.list[i]->until) done = done && u.stream->completed.get() >= u.target;
      if (!done) {
        ++i;
        continue;
      }
      over.push(d.list[i]);
      d.list.remove_at(i);
    }
  }
  for (Deferred* x : over) {
    for (const auto& u : x->until) stream_release(u.stream);
    free_now(x->block);
    discard(x);
  }
}
// Takes over a reference to memory of a graph.
inline void free_when_idle(Block* b) {
  Vec<Stream*> held;
  streams_hold(held);
  Deferred* d = create<Deferred>();
  d->block = b;
  for (Stream* s : held) {
    uint64_t target = s->submitted.get_sequential();
    if (s->completed.get_sequential() >= target) stream_release(s);
    else d->until.push({s, target});
  }
  if (d->until.count) {
    DeferredFrees& all = deferred();
    Guard<Mutex> g(all.lock);
    all.list.push(d);
  } else {
    discard(d);
    free_now(b);
  }
}

inline int allocate(void** out, size_t bytes, Origin origin) {
  REQUIRE(out, hipErrorInvalidValue);
  *out = nullptr;
  if (int code = unsafe_call()) return fail(code);
  if (!bytes) return hipSuccess;
  reap_deferred();
  Block* b = memory_take(bytes, origin, this_device());
  REQUIRE(b, hipErrorOutOfMemory);
  *out = b->pointer;
  return hipSuccess;
}
API int hipMalloc(void** out, size_t bytes) {
  ENTER();
  return allocate(out, bytes, Origin::device);
}
API int hipHostMalloc(void** out, size_t bytes, unsigned) {
  ENTER();
  return allocate(out, bytes, Origin::host);
}
API int hipFree(void* pointer) {
  ENTER();
  if (int code = unsafe_call()) return fail(code);
  if (!pointer) return hipSuccess;
  Block* b = memory_find(pointer);
  if (b && b->origin == Origin::graph) {  // memory that a graph left allocated
    REQUIRE(b->left.swap(0), hipErrorInvalidValue);
    graph_block_hold(b);
  } else {
    b = memory_unlist(pointer, Origin::device, Origin::pool);
    REQUIRE(b, hipErrorInvalidValue);
  }
  free_when_idle(b);
  reap_deferred();
  return hipSuccess;
}
API int hipHostFree(void* pointer) {
  ENTER();
  if (int code = unsafe_call()) return fail(code);
  if (!pointer) return hipSuccess;
  Block* b = memory_unlist(pointer, Origin::host, Origin::host);
  REQUIRE(b, hipErrorInvalidValue);
  free_when_idle(b);
  reap_deferred();
  return hipSuccess;
}
API int hipMallocAsync(void** out, size_t bytes, Handle stream) {
  ENTER();
  REQUIRE(out, hipErrorInvalidValue);
  *out = nullptr;
  STREAM(s, stream);
  if (!bytes) return hipSuccess;
  reap_deferred();
  bool capturing = s->capture.relaxed();
  Block* b = memory_take(bytes, capturing ? Origin::graph : Origin::pool, s->device, g_devices.pools[s->device].get());
  REQUIRE(b, hipErrorOutOfMemory);
  if (capturing) {
    hipMemAllocNodeParams given = {};
    given.bytesize = bytes;
    if (int code = capture_add(s, action_memory(hipGraphNodeTypeMemAlloc, b, given))) return fail(code);
  }
  *out = b->pointer;
  return hipSuccess;
}
API int hipFreeAsync(void* pointer, Handle stream) {
  ENTER();
  STREAM(s, stream);
  if (!pointer) return hipSuccess;
  Block* b = memory_find(pointer);
  REQUIRE(b, hipErrorInvalidValue);
  REQUIRE(b->origin != Origin::host, hipErrorInvalidValue);
  if (b->origin == Origin::graph) {
    REQUIRE(s->capture.relaxed() || b->left.swap(0), hipErrorInvalidValue);
  } else {
    REQUIRE(!s->capture.relaxed(), hipErrorInvalidValue);
    b = memory_unlist(pointer, Origin::device, Origin::pool);
    REQUIRE(b, hipErrorInvalidValue);
  }
  return stream_put(s, action_memory(hipGraphNodeTypeMemFree, b));
}
API int hipMemGetAddressRange(void** base, size_t* bytes, void* pointer) {
  ENTER();
  Block b;
  REQUIRE(memory_around(pointer, &b), hipErrorNotFound);
  if (base) *base = b.pointer;
  if (bytes) *bytes = b.bytes;
  return hipSuccess;
}
API int hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  ENTER();
  REQUIRE(attributes && pointer, hipErrorInvalidValue);
  Block b;
  REQUIRE(memory_around(pointer, &b), hipErrorInvalidValue);
  void* same = const_cast<void*>(pointer);
  bool host = b.origin == Origin::host;
  *attributes = {host ? 1 : 2, b.device, same, host ? same : nullptr, 0, 0};
  return hipSuccess;
}
// 0 and 2: bytes used and reserved by graphs; 1 and 3: the highest values since they were last set to 0.
API int hipDeviceGetGraphMemAttribute(int device, int attribute, void* value) {
  ENTER();
  REQUIRE(is_device(device), hipErrorInvalidDevice);
  REQUIRE(value && attribute >= 0 && attribute <= 3, hipErrorInvalidValue);
  reap_deferred();
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  const auto& of = m.graphs[device];
  const uint64_t values[] = {of.used, of.used_high, of.reserved, of.reserved_high};
  *static_cast<uint64_t*>(value) = values[attribute];
  return hipSuccess;
}
API int hipDeviceSetGraphMemAttribute(int device, int attribute, void* value) {
  ENTER();
  REQUIRE(is_device(device), hipErrorInvalidDevice);
  REQUIRE(value && (attribute == 1 || attribute == 3) && !*static_cast<uint64_t*>(value), hipErrorInvalidValue);
  Memory& m = memory();
  Guard<Mutex> g(m.lock);
  auto& of = m.graphs[device];
  if (attribute == 1) of.used_high = of.used;
  else of.reserved_high = of.reserved;
  return hipSuccess;
}
API int hipDeviceGraphMemTrim(int device) {
  ENTER();
  REQUIRE(is_device(device), hipErrorInvalidDevice);
  memory_trim();
  return hipSuccess;
}

API int hipStreamSynchronize(Handle stream);

// A call that is done when it returns. On an idle device it is done at once, by the caller.
inline int run_synchronously(Action* action) {
  if (int code = capture_refuse(hipErrorStreamCaptureImplicit, true)) {
    action_release(action);
    return fail(code);
  }
  Stream* s = stream_of(0);
  if (!s) {
    action_release(action);
    return fail(hipErrorNotInitialized);
  }
  bool idle = stream_idle(s);
  if (streams().blocking.relaxed() > 1) {
    Vec<Stream*> held;
    streams_hold(held);
    for (Stream* other : held) {
      idle = idle && (!other->blocking || other->device != s->device || stream_idle(other));
      stream_release(other);
    }
  }
  if (!idle && t_in_host_function) {
    action_release(action);
    return fail(hipErrorNotPermitted);
  }
  if (!idle) {
    stream_submit(s, action, nullptr, nullptr);
    stream_wait_for(s, s->submitted.get(), 0);
    return fail(stream_take_error(s));
  }
  int code = 0;
  action_run(action, {}, true, nullptr, &code);
  action_release(action);
  return fail(code);
}
API int hipMemcpy(void* dst, const void* src, size_t bytes, int kind) {
  ENTER();
  if (!bytes) return fail(capture_refuse(hipErrorStreamCaptureImplicit, true));
  Action* a;
  if (int code = action_copy_1d(&a, dst, src, bytes, kind)) return fail(code);
  return run_synchronously(a);
}
API int hipMemcpyAsync(void* dst, const void* src, size_t bytes, int kind, Handle stream) {
  ENTER();
  STREAM(s, stream);
  if (!bytes) return hipSuccess;
  Action* a;
  if (int code = action_copy_1d(&a, dst, src, bytes, kind)) return fail(code);
  return stream_put(s, a);
}
API int hipMemcpy3DAsync(const hipMemcpy3DParms* p, Handle stream) {
  ENTER();
  REQUIRE(p, hipErrorInvalidValue);
  STREAM(s, stream);
  Action* a;
  if (int code = action_copy(&a, *p)) return fail(code);
  return stream_put(s, a);
}
inline int fill_async(void* dst, unsigned element, unsigned value, size_t width, size_t height, size_t pitch, Handle stream) {
  STREAM(s, stream);
  if (!width || !height) return hipSuccess;
  Action* a;
  if (int code = action_fill(&a, {dst, element, height, pitch, value, width}, s->device)) return fail(code);
  return stream_put(s, a);
}
API int hipMemset(void* dst, int value, size_t bytes) {
  ENTER();
  if (!bytes) return fail(capture_refuse(hipErrorStreamCaptureImplicit, true));
  Action* a;
  if (int code = action_fill(&a, {dst, 1, 1, bytes, unsigned(value) & 255u, bytes}, this_device())) return fail(code);
  return run_synchronously(a);
}
API int hipMemsetAsync(void* dst, int value, size_t bytes, Handle stream) {
  ENTER();
  return fill_async(dst, 1, unsigned(value) & 255u, bytes, 1, bytes, stream);
}
API int hipMemsetD16Async(void* dst, unsigned short value, size_t count, Handle stream) {
  ENTER();
  return fill_async(dst, 2, value, count, 1, count * 2, stream);
}
API int hipMemsetD32Async(void* dst, int value, size_t count, Handle stream) {
  ENTER();
  return fill_async(dst, 4, unsigned(value), count, 1, count * 4, stream);
}
API int hipMemset2DAsync(void* dst, size_t pitch, int value, size_t width, size_t height, Handle stream) {
  ENTER();
  return fill_async(dst, 1, unsigned(value) & 255u, width, height, pitch, stream);
}

// ---- modules ----------------------------------------------------------------------------------------------------------------
// How many bytes an ELF image has: its section headers stand at its end.
inline size_t image_bytes(const unsigned char* image) {
  if (memcmp(image, "\177ELF\2", 5)) return 0;
  uint64_t sections;
  uint16_t each, count;
  memcpy(&sections, image + 40, 8);
  memcpy(&each, image + 58, 2);
  memcpy(&count, image + 60, 2);
  size_t bytes = size_t(sections) + size_t(each) * count;
  for (uint16_t i = 0; i < count; ++i) {  // and where a section stands behind them, at that section's end
    uint32_t type;
    uint64_t offset, size;
    const unsigned char* header = image + sections + size_t(i) * each;
    memcpy(&type, header + 4, 4);
    memcpy(&offset, header + 24, 8);
    memcpy(&size, header + 32, 8);
    if (type != 8 && offset + size > bytes) bytes = size_t(offset + size);
  }
  return bytes;
}
// The file stays open while the library is loaded: the loader knows libraries by path, and this path holds the file's number.
inline void* library_from_memory(const void* image, size_t bytes, int* kept) {
  int file = -1;
  char path[256];
  const char* folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/hgcpu-XXXXXX", folder ? folder : P_tmpdir);
#if defined(__linux__) && defined(SYS_memfd_create)
  file = int(syscall(SYS_memfd_create, "hgcpu-kernels", 1u));
#endif
  bool named = file < 0;
  if (named) file = mkstemp(path);
  else snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  if (file < 0) return nullptr;
  const char* from = static_cast<const char*>(image);
  for (size_t done = 0; done < bytes;) {
    ssize_t n = write(file, from + done, bytes - done);
    if (n <= 0) {
      close(file);
      return nullptr;
    }
    done += size_t(n);
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (named) unlink(path);
  if (library && !named) *kept = file;
  else close(file);
  return library;
}
// A file that is loaded already is loaded from a copy, because each module has its own variables.
inline void* library_from_file(const char* path, int* kept) {
  void* loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!loaded) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  dlclose(loaded);
  FILE* f = fopen(path, "rb");
  if (!f) return nullptr;
  void* library = nullptr;
  struct stat about;
  if (!fstat(fileno(f), &about)) {
    size_t bytes = size_t(about.st_size);
    void* image = must_alloc(bytes);
    if (fread(image, 1, bytes, f) == bytes) library = library_from_memory(image, bytes, kept);
    free(image);
  }
  fclose(f);
  return library;
}
// Why a kernel failed last, for the message of an error.
API int hgcpuLastFault(char* text, size_t bytes) {
  Guard<Mutex> g(g_fault.lock);
  snprintf(text, bytes, "%s", g_fault.text);
  return hipSuccess;
}
// Tells the sanitizer the name of memory that an array has; a null name takes back one that was told of it.
API int hgcpuNameArray(const void* pointer, size_t bytes, const char* name) {
  name_array(pointer, bytes, name);
  return hipSuccess;
}
// For who calls the entries of a kernel library themselves.
API void* hgcpuBlockWorker() { return reinterpret_cast<void*>(block_worker); }
API int hipModuleLoadData(Handle* out, const void* image) {
  ENTER();
  REQUIRE(out && image, hipErrorInvalidValue);
  if (int code = unsafe_call()) return fail(code);
  void* library = nullptr;
  int file = -1;
  if (!memcmp(image, "HGCPU:", 6)) {
    library = library_from_file(static_cast<const char*>(image) + 6, &file);
  } else if (size_t bytes = image_bytes(static_cast<const unsigned char*>(image))) {
    library = library_from_memory(image, bytes, &file);
  }
  REQUIRE(library, hipErrorInvalidImage);
  auto entry = reinterpret_cast<const hgcpu_module_info* (*)()>(dlsym(library, "hgcpu_module"));
  const hgcpu_module_info* info = entry ? entry() : nullptr;
  if (!info || info->abi != hgcpu_abi) {
    dlclose(library);
    if (file >= 0) close(file);
    return fail(hipErrorInvalidImage);
  }
  Module* m = create<Module>();
  m->file = file;
  m->device = this_device();
  m->refs.set_relaxed(1);
  m->library = library;
  m->info = info;
  m->instrumented = instrumented_open(library);
  if (m->instrumented) g_sanitized_modules.add(1);
  *out = m->handle = g_handles.add(kModule, m);
  return hipSuccess;
}
API int hipModuleUnload(Handle module) {
  ENTER();
  HELD(Module, m, module);
  if (int code = unsafe_call()) return fail(code);
  g_handles.remove(module);
  for (Function* f : m->functions) {
    g_handles.remove(f->handle);
    discard(f);
  }
  m->functions.clear();
  module_release(m);  // the library goes with the last node that has one of its kernels
  return hipSuccess;
}
API int hipModuleGetFunction(Handle* out, Handle module, const char* name) {
  ENTER();
  REQUIRE(out && name, hipErrorInvalidValue);
  HELD(Module, m, module);
  static Mutex lock;
  Guard<Mutex> g(lock);
  for (Function* f : m->functions) {
    if (!strcmp(f->info->name, name)) {
      *out = f->handle;
      return hipSuccess;
    }
  }
  for (uint32_t i = 0; i < m->info->n_kernels; ++i) {
    if (strcmp(m->info->kernels[i].name, name)) continue;
    Function* f = create<Function>();
    f->module = m;
    f->info = &m->info->kernels[i];
    *out = f->handle = g_handles.add(kFunction, f);
    m->functions.push(f);
    return hipSuccess;
  }
  return fail(hipErrorNotFound);
}
// What a function is called and how its parameters are packed, for as long as its module is loaded.
API int hgcpuFunctionInfo(Handle function, const char** name, unsigned* count, const hgcpu_param_info** params) {
  ENTER();
  HELD(Function, f, function);
  REQUIRE(name && count && params, hipErrorInvalidValue);
  *name = f->info->name;
  *count = f->info->n_params;
  *params = f->info->params;
  return hipSuccess;
}
API int hipModuleGetGlobal(void** out, size_t* bytes, Handle module, const char* name) {
  ENTER();
  REQUIRE(name, hipErrorInvalidValue);
  HELD(Module, m, module);
  for (uint32_t i = 0; i < m->info->n_symbols; ++i) {
    const hgcpu_symbol_info& s = m->info->symbols[i];
    if (strcmp(s.name, name)) continue;
    if (out) *out = s.address;
    if (bytes) *bytes = size_t(s.bytes);
    return hipSuccess;
  }
  return fail(hipErrorNotFound);
}
inline int launch_kernel(Handle function, dim3 grid, dim3 block, unsigned shared, Handle stream, void** params, void** extra,
                         bool cooperative) {
  STREAM(s, stream);
  Action* a;
  if (int code = action_kernel(&a, function, grid, block, shared, params, extra)) return fail(code);
  if (a->kernel.module->device != s->device) {
    action_release(a);
    return fail(hipErrorInvalidDevice);
  }
  if (!s->capture.relaxed()) {
    a->kernel.launch.cooperative = cooperative;
    return fail(stream_submit(s, a, nullptr, nullptr));
  }
  Node* node = nullptr;
  if (int code = capture_add(s, a, &node)) return fail(code);
  node->cooperative = cooperative;
  return hipSuccess;
}
API int hipModuleLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, Handle stream, void** params, void** extra) {
  ENTER();
  return launch_kernel(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, params, extra, false);
}
API int hipModuleLaunchCooperativeKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                         unsigned bz, unsigned shared, Handle stream, void** params) {
  ENTER();
  return launch_kernel(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, params, nullptr, true);
}
