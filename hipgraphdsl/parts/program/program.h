// What all exported programs share. A program holds a copy of the parts that it uses, and of those that they use: each goes from
// its line "//@part NAMES", which lists what it declares, to the next such line. Programs of several graphs, between which the host
// acts, hold the branches of SEGMENTS, others the other ones. Compiled by itself, with SEGMENTS and without, this file checks them all.
#if defined(__CUDACC__)
#include "cuda.h"
#else
#include <hip/hip_runtime.h>
#endif

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace program {
// What each program says for itself.
static int device = 0;

//@section Errors and helpers

//@part CHECK checked
// Every call goes through CHECK: on failure it says which call, for which node, with which error, and ends the program.
void checked(hipError_t error, const char* call, const char* node, int line) {
  if (error == hipSuccess) return;
  std::fprintf(stderr, "%s:%d: ", __FILE__, line);
  if (*node) std::fprintf(stderr, "node '%s': ", node);
  std::fprintf(stderr, "%.*s failed: %s (%d), %s\n", (int)std::strcspn(call, "("), call, hipGetErrorName(error), (int)error,
               hipGetErrorString(error));
  std::exit(1);
}
#define CHECK(call, node) checked((call), #call, node, __LINE__)

//@part KERNEL
// A kernel as calls take it: a CPU's are compiled apart.
#if defined(HIP_CPU)
#define KERNEL(...) hip_cpu_kernel(#__VA_ARGS__)
#else
#define KERNEL(...) (__VA_ARGS__)
#endif

//@part SYMBOL
// Sets a pointer to the address of a variable of the device.
#if defined(HIP_CPU)
#define SYMBOL(name, pointer) hip_cpu_symbol(#name, (void**)&pointer)
#else
#define SYMBOL(name, pointer) CHECK(hipGetSymbolAddress((void**)&pointer, HIP_SYMBOL(name)), "")
#endif

//@part fail
// Ends the program with a message.
template <typename... T>
[[noreturn]] void fail(const char* format, T... values) {
  if constexpr (sizeof...(values) == 0) std::fputs(format, stderr);
  else std::fprintf(stderr, format, values...);
  std::fputc('\n', stderr);
  std::exit(2);
}

//@part label Label
// Name of a node in a loop; valid until the statement ends.
struct Label {
  char text[512];
  operator const char*() const { return text; }
};
template <typename... T>
Label label(const char* format, T... numbers) {
  Label made;
  std::snprintf(made.text, sizeof made.text, format, long(numbers)...);
  return made;
}

//@part NOT_WRITTEN
// Stands where code of yours is missing, and says so once.
#define NOT_WRITTEN(name)                                                                                     \
  do {                                                                                                        \
    static bool said = false;                                                                                 \
    if (!said) std::fprintf(stderr, "%s:%d: '%s' is not written yet and does nothing\n", __FILE__, __LINE__, name); \
    said = true;                                                                                              \
  } while (false)

//@part Bytes
// A value of a type that only kernels know, by its bytes: a struct, a vector, a half.
template <size_t N>
struct Bytes {
  unsigned char data[N];
};

//@part with_arguments Aligned converted
// Calls `use` with the table of pointers to a kernel's arguments, each converted to the type of the parameter.
#if defined(HIP_CPU)
template <typename T>
struct Aligned {
  alignas(16) T value;
};
template <typename F, typename... A>
void with_arguments(hipFunction_t kernel, unsigned, const char*, F use, A... values) {
  std::tuple<Aligned<A>...> arguments{Aligned<A>{values}...};
  std::apply(
      [&](auto&... each) {
        void* table[] = {(void*)&each..., nullptr};
        use((void*)kernel, table);
      },
      arguments);
}
#else
template <typename P, typename A>
P converted(A value) {
  if constexpr (std::is_arithmetic_v<P> || std::is_same_v<P, A>) {
    return P(value);
  } else if constexpr (std::is_pointer_v<P>) {
    return P(value);  // of the same bytes: double* for double2*
  } else {
    P result;
    static_assert(sizeof(value) >= sizeof result, "an argument is smaller than the kernel's parameter");
    std::memcpy((void*)&result, &value, sizeof result);
    return result;
  }
}
template <typename F, typename... P, typename... A>
void with_arguments(void (*kernel)(P...), unsigned shared, const char* name, F use, A... values) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel gets as many arguments as it has parameters");
  if (shared > 48 * 1024)  // which must be asked for
    CHECK(hipFuncSetAttribute((const void*)kernel, hipFuncAttributeMaxDynamicSharedMemorySize, int(shared)), name);
  std::tuple<P...> arguments{converted<P>(values)...};
  std::apply(
      [&](P&... each) {
        void* table[] = {(void*)&each..., nullptr};
        use((void*)kernel, table);
      },
      arguments);
}
#endif

//@part Nodes
using Nodes = std::initializer_list<hipGraphNode_t>;

//@part floor_div
// Integer division that rounds down, as the expressions of the workflow do.
long long floor_div(long long a, long long b) {
  if (b == 0) fail("division by zero (%lld / 0)", a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

//@part floor_mod
long long floor_mod(long long a, long long b) { return a - floor_div(a, b) * b; }

//@part ceil_div
long long ceil_div(long long a, long long b) { return -floor_div(-a, b); }

//@part narrowed
// The value of an expression, which the type must hold.
template <typename T>
T narrowed(long long value, const char* text, long long least = std::numeric_limits<T>::lowest()) {
  bool below = std::is_unsigned<T>::value ? value < 0 || value < least : value < least;
  bool above = value > 0 && (unsigned long long)value > (unsigned long long)std::numeric_limits<T>::max();
  if (below || above) fail("%s is %lld, which is out of range", text, value);
  return (T)value;
}

//@part add_kernel
template <typename K, typename... A>
hipGraphNode_t add_kernel(hipGraph_t graph, const char* name, Nodes after, K kernel, dim3 grid, dim3 block, unsigned shared,
                          A... values) {
  hipGraphNode_t node = nullptr;
  with_arguments(
      kernel, shared, name,
      [&](void* function, void** arguments) {
        hipKernelNodeParams params = {};
        params.func = function;
        params.gridDim = grid;
        params.blockDim = block;
        params.sharedMemBytes = shared;
        params.kernelParams = arguments;
        CHECK(hipGraphAddKernelNode(&node, graph, after.begin(), after.size(), &params), name);
      },
      values...);
  return node;
}

//@part with_cooperative
// All blocks of this kernel are resident at once and may synchronise with each other. AMD ignores the attribute of a node: a program
// that is written for AMD captures such kernels.
hipGraphNode_t with_cooperative(hipGraphNode_t node, const char* name) {
  hipKernelNodeAttrValue value = {};
  value.cooperative = 1;
  CHECK(hipGraphKernelNodeSetAttribute(node, hipKernelNodeAttributeCooperative, &value), name);
  return node;
}

//@part with_priority
// Priority among kernels of the device; lower runs first. AMD's versions before 7.11 refuse every priority.
hipGraphNode_t with_priority(hipGraphNode_t node, int priority, const char* name) {
#if !defined(HIP_VERSION) || HIP_VERSION >= 71100000
  hipKernelNodeAttrValue value = {};
  value.priority = priority;
  CHECK(hipGraphKernelNodeSetAttribute(node, hipKernelNodeAttributePriority, &value), name);
#endif
  return node;
}

//@part with_cluster
// Blocks that run at the same time and reach each other's shared memory: on CUDA, where the device has clusters. HIP and the CPU
// have none, and launch the kernel without.
hipGraphNode_t with_cluster(hipGraphNode_t node, dim3 cluster, const char* name) {
#if defined(__CUDACC__)
  int clusters = 0;
  CHECK(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device), name);
  cudaKernelNodeAttrValue value = {};
  value.clusterDim.x = cluster.x, value.clusterDim.y = cluster.y, value.clusterDim.z = cluster.z;
  if (clusters) CHECK(cudaGraphKernelNodeSetAttribute(node, cudaKernelNodeAttributeClusterDimension, &value), name);
#else
  (void)cluster, (void)name;
#endif
  return node;
}

//@part add_copy
hipGraphNode_t add_copy(hipGraph_t graph, const char* name, Nodes after, void* to, const void* from, size_t bytes,
                        hipMemcpyKind kind) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddMemcpyNode1D(&node, graph, after.begin(), after.size(), to, from, bytes, kind), name);
  return node;
}

//@part box Pitched
// A copy of `depth` slices of `height` rows of `width` bytes. Pitch: bytes from row to row; rows: rows from slice to slice; x, y, z:
// bytes, rows and slices before the box.
struct Pitched {
  void* data;
  size_t pitch, rows, x = 0, y = 0, z = 0;
};
hipMemcpy3DParms box(Pitched to, Pitched from, size_t width, size_t height, size_t depth, hipMemcpyKind kind) {
  hipMemcpy3DParms params = {};
  params.dstPtr = make_hipPitchedPtr(to.data, to.pitch, to.pitch, to.rows);
  params.srcPtr = make_hipPitchedPtr(from.data, from.pitch, from.pitch, from.rows);
  params.dstPos = {to.x, to.y, to.z};
  params.srcPos = {from.x, from.y, from.z};
  params.extent = make_hipExtent(width, height, depth);
  params.kind = kind;
  return params;
}

//@part add_copy_3d
hipGraphNode_t add_copy_3d(hipGraph_t graph, const char* name, Nodes after, const hipMemcpy3DParms& params) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddMemcpyNode(&node, graph, after.begin(), after.size(), &params), name);
  return node;
}

//@part add_memset
// Sets `height` rows of `width` elements of 1, 2 or 4 bytes, `pitch` bytes from row to row.
hipGraphNode_t add_memset(hipGraph_t graph, const char* name, Nodes after, void* data, unsigned element, unsigned value,
                          size_t width, size_t height = 1, size_t pitch = 0) {
  hipMemsetParams params = {};
  params.dst = data;
  params.elementSize = element;
  params.value = value;
  params.width = width;
  params.height = height;
  params.pitch = pitch;
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddMemsetNode(&node, graph, after.begin(), after.size(), &params), name);
  return node;
}

//@part from_bits
// A number by its bytes: a NaN of which the literal NAN has other ones.
template <typename T>
T from_bits(unsigned long long bytes) {
  T result;
  std::memcpy(&result, &bytes, sizeof result);
  return result;
}

//@part bits
// The bytes of a value as a number.
template <typename T>
unsigned bits(T value) {
  static_assert(sizeof value <= sizeof(unsigned), "a memset takes up to 4 bytes");
  unsigned result = 0;
  std::memcpy(&result, &value, sizeof value);
  return result;
}

//@part Fill with_words
// What no memset can: elements of up to 64 bytes, in up to four strided dimensions, innermost first.
struct Fill {
  unsigned long long count, n[3], stride[4];
};
template <typename T, typename F>
auto with_words(T value, F use) {
  unsigned long long w[8] = {};
  std::memcpy(w, &value, sizeof value);
  return use(w);
}

//@part add_fill
template <typename T, typename E>
hipGraphNode_t add_fill(hipGraph_t graph, const char* name, Nodes after, T* data, E value, unsigned item, Fill fill) {
  return with_words(value, [&](const unsigned long long* w) {
    return add_kernel(graph, name, after, KERNEL(hipgraphdsl_fill), dim3((fill.count + 255) / 256), dim3(256), 0,
                      (unsigned char*)data, fill.count, item, fill.n[0], fill.n[1], fill.n[2], fill.stride[0], fill.stride[1],
                      fill.stride[2], fill.stride[3], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
  });
}

//@part add_alloc
// Memory that lives inside the graph; its address is known at once, its contents only between this node and the free node.
template <typename T>
hipGraphNode_t add_alloc(hipGraph_t graph, const char* name, Nodes after, T** data, size_t bytes) {
  hipGraphNode_t node = nullptr;
#if defined(HIP_VERSION) && HIP_VERSION < 60000000  // no such node: memory that is there from the beginning
  CHECK(hipMalloc((void**)data, bytes), name);
  CHECK(hipGraphAddEmptyNode(&node, graph, after.begin(), after.size()), name);
#else
  hipMemAllocNodeParams params = {};
  params.poolProps.allocType = hipMemAllocationTypePinned;
  params.poolProps.location.type = hipMemLocationTypeDevice;
  params.poolProps.location.id = device;
  params.bytesize = bytes;
  CHECK(hipGraphAddMemAllocNode(&node, graph, after.begin(), after.size(), &params), name);
  *data = (T*)params.dptr;
#endif
  return node;
}

//@part add_free
hipGraphNode_t add_free(hipGraph_t graph, const char* name, Nodes after, void* data) {
  hipGraphNode_t node = nullptr;
#if defined(HIP_VERSION) && HIP_VERSION < 60000000
  (void)data;
  CHECK(hipGraphAddEmptyNode(&node, graph, after.begin(), after.size()), name);
#else
  CHECK(hipGraphAddMemFreeNode(&node, graph, after.begin(), after.size(), data), name);
#endif
  return node;
}

//@part host_function host_calls
// A host node takes a C function and one pointer: here the pointer is to the call that is to be made.
std::deque<std::function<void()>> host_calls;
hipHostNodeParams host_function(std::function<void()> call) {
  host_calls.push_back(std::move(call));
  hipHostNodeParams params = {};
  params.fn = [](void* made) { (*static_cast<std::function<void()>*>(made))(); };
  params.userData = &host_calls.back();
  return params;
}

//@part add_host
hipGraphNode_t add_host(hipGraph_t graph, const char* name, Nodes after, std::function<void()> call) {
  const hipHostNodeParams params = host_function(std::move(call));
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddHostNode(&node, graph, after.begin(), after.size(), &params), name);
  return node;
}

//@part add_empty
hipGraphNode_t add_empty(hipGraph_t graph, const char* name, Nodes after) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddEmptyNode(&node, graph, after.begin(), after.size()), name);
  return node;
}

//@part add_record
hipGraphNode_t add_record(hipGraph_t graph, const char* name, Nodes after, hipEvent_t event) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddEventRecordNode(&node, graph, after.begin(), after.size(), event), name);
  return node;
}

//@part add_wait
hipGraphNode_t add_wait(hipGraph_t graph, const char* name, Nodes after, hipEvent_t event) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddEventWaitNode(&node, graph, after.begin(), after.size(), event), name);
  return node;
}

//@part add_child
hipGraphNode_t add_child(hipGraph_t graph, const char* name, Nodes after, hipGraph_t child) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddChildGraphNode(&node, graph, after.begin(), after.size(), child), name);
  CHECK(hipGraphDestroy(child), name);  // the node has a copy
  return node;
}

//@part add_captured
// What `issue` puts on a stream, as a child graph.
hipGraphNode_t add_captured(hipGraph_t graph, const char* name, Nodes after, const std::function<void(hipStream_t)>& issue) {
  hipStream_t stream;
  hipGraph_t child;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), name);
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal), name);
  issue(stream);
  CHECK(hipStreamEndCapture(stream, &child), name);
  CHECK(hipStreamDestroy(stream), name);
  return add_child(graph, name, after, child);
}

//@part memory_op
// Writes a value to device memory (condition -1), or waits until it compares: 0 at least, 1 equal, 2 any common bit, 3 nor.
hipStreamBatchMemOpParams memory_op(void* address, unsigned bytes, unsigned long long value, int condition) {
  hipStreamBatchMemOpParams op = {};
  if (condition < 0) {
    op.operation = bytes == 4 ? hipStreamMemOpWriteValue32 : hipStreamMemOpWriteValue64;
    op.writeValue.address = (hipDeviceptr_t)address;
    op.writeValue.value64 = value;
  } else {
    op.operation = bytes == 4 ? hipStreamMemOpWaitValue32 : hipStreamMemOpWaitValue64;
    op.waitValue.address = (hipDeviceptr_t)address;
    op.waitValue.value64 = value;
    op.waitValue.flags = condition;
  }
  return op;
}

//@part add_memory_ops
hipGraphNode_t add_memory_ops(hipGraph_t graph, const char* name, Nodes after,
                              std::initializer_list<hipStreamBatchMemOpParams> ops) {
  static std::deque<std::vector<hipStreamBatchMemOpParams>> kept;  // HIP's nodes keep the address of their operations
  kept.emplace_back(ops);
  hipGraphNode_t node = nullptr;
  hipBatchMemOpNodeParams params = {};
#if defined(__CUDACC__)
  params.count = unsigned(ops.size());
  params.paramArray = kept.back().data();
  cuCtxGetCurrent(&params.ctx);
  if (cuGraphAddBatchMemOpNode(&node, graph, after.begin(), after.size(), &params))
    CHECK(cudaErrorInvalidValue, name);
#else
  CHECK(hipDevicePrimaryCtxRetain(&params.ctx, device), name);
  params.count = unsigned(ops.size());
  params.paramArray = kept.back().data();
  CHECK(hipGraphAddBatchMemOpNode(&node, graph, after.begin(), after.size(), &params), name);
#endif
  return node;
}

//@part load
template <typename K>
void load(K kernel) {
#if defined(HIP_CPU)
  (void)kernel;
#else
  hipFuncAttributes attributes;
  CHECK(hipFuncGetAttributes(&attributes, (const void*)kernel), "");
#endif
}

//@part launch
template <typename K, typename... A>
void launch(hipStream_t stream, const char* name, K kernel, dim3 grid, dim3 block, unsigned shared, A... values) {
  with_arguments(
      kernel, shared, name,
      [&](void* function, void** arguments) {
        CHECK(hipLaunchKernel(function, grid, block, arguments, shared, stream), name);
      },
      values...);
}

//@part fill_on
template <typename T, typename E>
void fill_on(hipStream_t stream, const char* name, T* data, E value, unsigned item, Fill fill) {
  with_words(value, [&](const unsigned long long* w) {
    launch(stream, name, KERNEL(hipgraphdsl_fill), dim3((fill.count + 255) / 256), dim3(256), 0, (unsigned char*)data,
           fill.count, item, fill.n[0], fill.n[1], fill.n[2], fill.stride[0], fill.stride[1], fill.stride[2], fill.stride[3],
           w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
  });
}

//@part launch_cooperative
// All blocks of this kernel are resident at once and may synchronise with each other.
template <typename K, typename... A>
void launch_cooperative(hipStream_t stream, const char* name, K kernel, dim3 grid, dim3 block, unsigned shared, A... values) {
  with_arguments(
      kernel, shared, name,
      [&](void* function, void** arguments) {
        CHECK(hipLaunchCooperativeKernel(function, grid, block, arguments, shared, stream), name);
      },
      values...);
}

//@part copy_3d
void copy_3d(hipStream_t stream, const char* name, const hipMemcpy3DParms& params) {
  CHECK(hipMemcpy3DAsync(&params, stream), name);
}

//@part call_host
void call_host(hipStream_t stream, const char* name, std::function<void()> call) {
  const hipHostNodeParams params = host_function(std::move(call));
  CHECK(hipLaunchHostFunc(stream, params.fn, params.userData), name);
}

//@part captured_nodes
// The graph that a stream is being captured into, and the nodes that its next call will follow.
std::vector<hipGraphNode_t> captured_nodes(hipStream_t stream, const char* name, hipGraph_t* graph = nullptr) {
  hipStreamCaptureStatus status;
  hipGraph_t into = nullptr;
  const hipGraphNode_t* nodes = nullptr;
  size_t count = 0;
  CHECK(hipStreamGetCaptureInfo_v2(stream, &status, nullptr, &into, &nodes, &count), name);
  if (graph) *graph = into;
  return std::vector<hipGraphNode_t>(nodes, nodes + count);
}

//@part insert
// Puts a node into the capture that no call on a stream records: add(graph, nodes before it, how many) makes it.
template <typename F>
void insert(hipStream_t stream, const char* name, F add) {
  hipGraph_t graph;
  const std::vector<hipGraphNode_t> before = captured_nodes(stream, name, &graph);
  // First without edges, because a list of them is what the functions above take.
  hipGraphNode_t node = add(graph);
  const std::vector<hipGraphNode_t> after(before.size(), node);
  if (!before.empty()) CHECK(hipGraphAddDependencies(graph, before.data(), after.data(), before.size()), name);
  CHECK(hipStreamUpdateCaptureDependencies(stream, &node, 1, hipStreamSetCaptureDependencies), name);
}

//@part begin_capture end_capture capture_event
// Begins a capture on the first of several streams; the others come into it by waiting for an event of the first.
hipEvent_t capture_event;
void begin_capture(hipStream_t* stream, int count) {
  for (int i = 0; i < count; ++i) CHECK(hipStreamCreateWithFlags(&stream[i], hipStreamNonBlocking), "");
  CHECK(hipEventCreateWithFlags(&capture_event, hipEventDisableTiming), "");
  CHECK(hipStreamBeginCapture(stream[0], hipStreamCaptureModeThreadLocal), "");
  if (count > 1) CHECK(hipEventRecord(capture_event, stream[0]), "");
  for (int i = 1; i < count; ++i) CHECK(hipStreamWaitEvent(stream[i], capture_event, 0), "");
}

// Lets the first stream wait for all others, which ends the capture of them all, and returns what was recorded.
hipGraph_t end_capture(hipStream_t* stream, int count) {
  for (int i = 1; i < count; ++i) {
    CHECK(hipEventRecord(capture_event, stream[i]), "");
    CHECK(hipStreamWaitEvent(stream[0], capture_event, 0), "");
  }
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(stream[0], &graph), "");
  CHECK(hipEventDestroy(capture_event), "");
  for (int i = 0; i < count; ++i) CHECK(hipStreamDestroy(stream[i]), "");
  return graph;
}

//@part fill_words
// Sets elements of 2 or 4 bytes, for which CUDA's runtime has no call.
void fill_words(hipStream_t stream, const char* name, void* data, unsigned element, unsigned value, size_t width) {
  insert(stream, name, [=](hipGraph_t graph) { return add_memset(graph, name, {}, data, element, value, width); });
}

//@part mark follow Mark
// What the next call on a stream follows, so that other calls can follow it too. Events would say the same, but streams that wait
// for each other's events in a ring make AMD's hipStreamEndCapture recurse without end.
using Mark = std::vector<hipGraphNode_t>;
Mark mark(hipStream_t stream) { return captured_nodes(stream, ""); }
void follow(hipStream_t stream, std::initializer_list<Mark> others) {
  Mark all;  // each once
  for (const Mark& other : others)
    for (hipGraphNode_t node : other) {
      bool known = false;
      for (hipGraphNode_t before : all) known = known || before == node;
      if (!known) all.push_back(node);
    }
  CHECK(hipStreamUpdateCaptureDependencies(stream, all.data(), all.size(), hipStreamSetCaptureDependencies), "");
}

//@part executables instantiate
// The graphs that `launch_all` launches.
std::vector<std::pair<hipGraph_t, hipGraphExec_t>> executables;
hipGraphExec_t instantiate(hipGraph_t graph, unsigned flags) {
  hipGraphExec_t executable;
  CHECK(hipGraphInstantiateWithFlags(&executable, graph, flags), "");
  executables.emplace_back(graph, executable);
  return executable;
}

//@part word_of
// The condition of a node, when everything on the stream has finished.
unsigned word_of(const void* condition, hipStream_t stream, const char* name) {
  static unsigned* word = nullptr;
  if (!word) CHECK(hipHostMalloc((void**)&word, sizeof *word, hipHostMallocDefault), name);
  CHECK(hipMemcpyAsync(word, condition, sizeof *word, hipMemcpyDefault, stream), name);
  CHECK(hipStreamSynchronize(stream), name);
  return *word;
}

//@part Array Place DEVICE PINNED PAGEABLE
// An array that the program allocates; files are read into it and written from it by its name.
enum Place { DEVICE, PINNED, PAGEABLE };
struct Array {
  const char* name;
  void** data;
  size_t bytes;
  Place place;
  const char* dtype;  // as the header of a .npy file has it
  const char* shape;
  const char* file;  // of its first values, where they do not stand here
};

//@part set
// Sets the first values of an array, wherever it lives: to value(i) for element i.
template <typename T, typename F>
void set(T* array, size_t count, F value) {
  std::unique_ptr<T[]> values(new T[count]);
  for (size_t i = 0; i < count; ++i) values[i] = value(i);
  CHECK(hipMemcpy(array, values.get(), count * sizeof(T), hipMemcpyDefault), "");
}

//@part set_list
// Sets the first values of an array to a list, again and again where the array is longer.
template <typename T>
void set_list(T* array, size_t count, std::initializer_list<T> list) {
  const size_t period = list.size();
  std::unique_ptr<T[]> values(new T[count]);
  for (size_t i = 0; i < count; ++i) values[i] = list.begin()[i % period];
  CHECK(hipMemcpy(array, values.get(), count * sizeof(T), hipMemcpyDefault), "");
}

//@section Files and options

//@part read_npy write_npy
// Reads an array from a .npy file of NumPy: versions 1 to 3, C order, of the array's own type and shape.
void read_npy(const Array& array, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) fail("%s, for array '%s', cannot be opened: %s; name the file by --in %s=FILE, or its folder by --data-dir DIR",
                  path.c_str(), array.name, std::strerror(errno), array.name);
  unsigned char head[12] = {};
  size_t length = 0;
  bool good = std::fread(head, 1, 8, file) == 8 && !std::memcmp(head, "\x93NUMPY", 6) && head[6] >= 1 && head[6] <= 3;
  const size_t wide = head[6] == 1 ? 2 : 4;
  good = good && std::fread(head + 8, 1, wide, file) == wide;
  for (size_t i = wide; i-- > 0;) length = length * 256 + head[8 + i];
  std::string text(good && length < (1u << 20) ? length : 0, ' ');
  if (text.empty() || std::fread(&text[0], 1, length, file) != length) fail("%s is no .npy file", path.c_str());
  std::string header;  // as Python prints a dict, without its spaces
  for (char c : text)
    if (!std::isspace((unsigned char)c)) header += c;
  if (header.find(std::string("'descr':") + array.dtype + ",") == std::string::npos ||
      header.find(std::string("'shape':") + array.shape + ",") == std::string::npos)
    fail("%s: array '%s' has dtype %s and shape %s; the file says %s", path.c_str(), array.name, array.dtype, array.shape,
         header.c_str());
  if (header.find("'fortran_order':False") == std::string::npos)
    fail("%s is in Fortran order; save numpy.ascontiguousarray(...)", path.c_str());
  std::vector<char> bytes(array.bytes);
  if (std::fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) fail("%s ends too early", path.c_str());
  std::fclose(file);
  CHECK(hipMemcpy(*array.data, bytes.data(), array.bytes, hipMemcpyDefault), "");
}

// Writes an array as a .npy file, whole or not at all.
void write_npy(const Array& array, const std::string& path) {
  std::vector<char> bytes(array.bytes);
  CHECK(hipMemcpy(bytes.data(), *array.data, array.bytes, hipMemcpyDefault), "");
  std::string header = std::string("{'descr': ") + array.dtype + ", 'fortran_order': False, 'shape': " + array.shape + ", }";
  while ((10 + header.size() + 1) % 64) header += ' ';
  header += '\n';
  const unsigned char head[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(header.size() & 255),
                                (unsigned char)(header.size() >> 8)};
  const std::string beside = path + ".part";
  std::FILE* file = std::fopen(beside.c_str(), "wb");
  const bool good = file && std::fwrite(head, 1, sizeof head, file) == sizeof head &&
                    std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
                    std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if ((file && std::fclose(file)) || !good || std::rename(beside.c_str(), path.c_str()))
    fail("%s, for array '%s', cannot be written: %s", path.c_str(), array.name, std::strerror(errno));
}

//@part number
// The number in an option's text, decimal or with 0x, which must be one that the parameter can hold.
template <typename T>
T number(const std::string& option, const char* text) {
  char* end = nullptr;
  const int base = std::strpbrk(text, "xX") ? 16 : 10;
  errno = 0;
  bool good = false;
  T result = T();
  if constexpr (std::is_same_v<T, bool>) {
    const std::string word = text;
    for (const char* yes : {"1", "true", "True"})
      if (word == yes) return true;
    for (const char* no : {"0", "false", "False"})
      if (word == no) return false;
    fail("%s is 0 or 1 (got '%s')", option.c_str(), text);
  } else if constexpr (std::is_floating_point_v<T>) {
    result = sizeof(T) == 4 ? T(std::strtof(text, &end)) : T(std::strtod(text, &end));
    good = errno == 0 || std::isfinite(result);  // what is nearest to a very small number is no error
  } else if constexpr (std::is_signed_v<T>) {
    const long long value = std::strtoll(text, &end, base);
    result = T(value);
    good = errno == 0 && result == value;
  } else {
    const unsigned long long value = std::strtoull(text, &end, base);
    result = T(value);
    good = errno == 0 && result == value && !std::strchr(text, '-');
  }
  if (!good || end == text || *end) fail("%s takes a number that its type can hold (got '%s')", option.c_str(), text);
  return result;
}

//@part Option
// An option that gives a parameter its value; `take` reads its text once the arrays are allocated.
struct Option {
  std::string flag;
  bool required, given;
  std::string text;
  std::function<void(const Option&, const std::vector<Array>&)> take;
};

//@part value_option
template <typename T>
Option value_option(const char* flag, T& value, bool required = false) {
  return {flag, required, false, "", [&value](const Option& option, const std::vector<Array>&) {
            if (option.given) value = number<T>(option.flag, option.text.c_str());
          }};
}

//@part array_named
const Array& array_named(const std::vector<Array>& arrays, const std::string& name) {
  for (const Array& array : arrays)
    if (name == array.name) return array;
  fail("there is no array '%s'; see --help", name.c_str());
}

//@part array_option
// The option names the array that stands for a parameter of so many bytes; it must if `name` is empty, and need not if it is null.
template <typename T>
Option array_option(const char* flag, T*& data, size_t bytes, const char* name) {
  return {flag, name && !*name, false, name ? name : "", [&data, bytes](const Option& option, const std::vector<Array>& arrays) {
            if (option.text.empty()) return;
            const Array& array = array_named(arrays, option.text);
            if (array.bytes != bytes) fail("%s takes an array of %zu bytes", option.flag.c_str(), bytes);
            data = (T*)*array.data;
          }};
}

//@part Program
// What a program has of its own, and what its options say.
struct Program {
  const char* help;
  std::vector<Array> arrays;
  std::vector<Option> options;
  void (*initialise)();  // gives arrays their first values and creates events
#if defined(SEGMENTS)
  void (*build_graphs)();
  void (*launch_all)(hipStream_t stream);  // one launch: the graphs, and what the host does between them
#else
  hipGraph_t (*build_graph)();
  unsigned flags;  // of hipGraphInstantiateWithFlags
#endif
  int repeat = 1, warm_up = 0;
  bool quiet = false;
  std::string out_dir = "", data_dir = ".";
  std::map<std::string, std::string> inputs = {}, outputs = {};  // files by the names of arrays
};

//@part read_options
void read_options(Program& program, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    bool whole = false;  // names of nodes, before those of their children's parameters, may hold "="
    for (const Option& own : program.options) whole |= own.flag == option;
    const size_t equals = whole ? std::string::npos : option.find('=');
    option = option.substr(0, equals);
    if (option == "--help") std::exit(std::fputs(program.help, stdout) < 0);
    if (option == "--quiet") {
      program.quiet = true;
      continue;
    }
    const char* text = equals == std::string::npos ? argv[++i] : argv[i] + equals + 1;
    if (!text) fail("option %s is not there, or needs a value; see --help", option.c_str());
    if (option == "--repeat") program.repeat = number<int>(option, text);
    else if (option == "--warm-up") program.warm_up = number<int>(option, text);
    else if (option == "--device") device = number<int>(option, text);
    else if (option == "--out-dir") program.out_dir = text;
    else if (option == "--data-dir") program.data_dir = text;
    else if (option == "--in" || option == "--out") {
      const char* equals = std::strchr(text, '=');
      if (!equals) fail("%s takes NAME=FILE.npy (got '%s')", option.c_str(), text);
      std::string name(text, equals);
      for (const Array& array : program.arrays) {  // whose name may hold "=" too
        const size_t length = std::strlen(array.name);
        if (length > name.size() && !std::strncmp(text, array.name, length) && text[length] == '=') name = array.name;
      }
      array_named(program.arrays, name);
      (option == "--in" ? program.inputs : program.outputs)[name] = text + name.size() + 1;
    } else {
      bool known = false;
      for (Option& own : program.options)
        if (own.flag == option) own.text = text, own.given = known = true;
      if (!known) fail("there is no option %s; see --help", option.c_str());
    }
  }
  if (program.repeat < 1 || program.warm_up < 0) fail("--repeat is at least 1, --warm-up at least 0");
  for (const Option& own : program.options)
    if (own.required && !own.given) fail("%s must be given; see --help", own.flag.c_str());
}

//@part prepare
// Allocates all arrays and gives them their first values; an array without any holds zeros.
void prepare(const Program& program) {
  CHECK(hipSetDevice(device), "");
  for (const Array& array : program.arrays) {
    if (array.place == DEVICE) {
      CHECK(hipMalloc(array.data, array.bytes), "");
      CHECK(hipMemset(*array.data, 0, array.bytes), "");
    } else if (array.place == PINNED) {
      CHECK(hipHostMalloc(array.data, array.bytes, hipHostMallocDefault), "");
      std::memset(*array.data, 0, array.bytes);
    } else {
      *array.data = std::calloc(array.bytes, 1);
      if (!*array.data) fail("there is no memory for array '%s'", array.name);
    }
  }
  for (const Option& option : program.options) option.take(option, program.arrays);
  program.initialise();
  for (const Array& array : program.arrays) {
    const auto given = program.inputs.find(array.name);
    if (given != program.inputs.end()) read_npy(array, given->second);
    else if (array.file) read_npy(array, program.data_dir + "/" + array.file);
  }
  CHECK(hipDeviceSynchronize(), "");
}

//@part measure
// Launches the graph and prints how long that took. Submit: until the call has returned. Done: until the graph has.
#if defined(SEGMENTS)
void measure(const Program& program, hipStream_t stream) {
#else
void measure(const Program& program, hipGraphExec_t executable, hipStream_t stream) {
#endif
  const int repeat = program.repeat;
  double submit_sum = 0, done_sum = 0, submit_least = INFINITY, done_least = INFINITY;
  for (int i = -program.warm_up; i < repeat; ++i) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
#if defined(SEGMENTS)
    program.launch_all(stream);
#else
    CHECK(hipGraphLaunch(executable, stream), "");
#endif
    const Clock::time_point submitted = Clock::now();
    CHECK(hipStreamSynchronize(stream), "");
    const Clock::time_point finished = Clock::now();
    if (i < 0) continue;
    const double submit = std::chrono::duration<double, std::micro>(submitted - begin).count();
    const double done = std::chrono::duration<double, std::micro>(finished - begin).count();
    submit_sum += submit, done_sum += done;
    submit_least = std::fmin(submit_least, submit), done_least = std::fmin(done_least, done);
  }
  if (!program.quiet)
    std::printf("%d launch%s, us: submit %.1f least, %.1f mean; until done %.1f least, %.1f mean\n", repeat,
                repeat > 1 ? "es" : "", submit_least, submit_sum / repeat, done_least, done_sum / repeat);
}

//@part write_outputs
void write_outputs(const Program& program) {
  for (const auto& [name, path] : program.outputs) write_npy(array_named(program.arrays, name), path);
  if (program.out_dir.empty()) return;
  std::map<std::string, int> written;
  for (const Array& array : program.arrays) {
    std::string name = array.name;
    for (char& c : name)
      if (c == '/') c = '.';
    while (written[name]++) name += '_';  // 'a.b' beside 'a/b'
    write_npy(array, program.out_dir + "/" + name + ".npy");
  }
}

//@part run
int run(Program program, int argc, char** argv) {
  read_options(program, argc, argv);
  prepare(program);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "");
#if defined(SEGMENTS)
  program.build_graphs();
  measure(program, stream);
  write_outputs(program);
  for (const auto& [graph, executable] : executables) {
    CHECK(hipGraphExecDestroy(executable), "");
    CHECK(hipGraphDestroy(graph), "");
  }
#else
  const hipGraph_t graph = program.build_graph();
  hipGraphExec_t executable;
  CHECK(hipGraphInstantiateWithFlags(&executable, graph, program.flags), "");
  measure(program, executable, stream);
  write_outputs(program);
  CHECK(hipGraphExecDestroy(executable), "");
  CHECK(hipGraphDestroy(graph), "");
#endif
  CHECK(hipStreamDestroy(stream), "");
  for (const Array& array : program.arrays) {
    if (array.place == DEVICE) CHECK(hipFree(*array.data), "");
    else if (array.place == PINNED) CHECK(hipHostFree(*array.data), "");
    else std::free(*array.data);
  }
  return 0;
}
//@end
}  // namespace program
