"""Parts of an exported HIP C++ program that do not depend on the workflow: each stands in a program that uses it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["FIXED_NAMES", "PARTS", "cuda_names", "needed_parts"]

PARTS: Final[dict[str, str]] = {
    "CHECK": r"""
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
""",
    "fail": r"""
// Ends the program with a message.
template <typename... T>
[[noreturn]] void fail(const char* format, T... values) {
  if constexpr (sizeof...(values) == 0) std::fputs(format, stderr);
  else std::fprintf(stderr, format, values...);
  std::fputc('\n', stderr);
  std::exit(2);
}
""",
    "label": r"""
// Name of a node in a loop; valid until the next call.
template <typename... T>
const char* label(const char* format, T... numbers) {
  static char text[512];
  std::snprintf(text, sizeof text, format, long(numbers)...);
  return text;
}
""",
    "NOT_WRITTEN": r"""
// Stands where code of yours is missing, and says so once.
#define NOT_WRITTEN(name)                                                                                     \
  do {                                                                                                        \
    static bool said = false;                                                                                 \
    if (!said) std::fprintf(stderr, "%s:%d: '%s' is not written yet and does nothing\n", __FILE__, __LINE__, name); \
    said = true;                                                                                              \
  } while (false)
""",
    "Bytes": r"""
// A value of a type that only kernels know, by its bytes: a struct, a vector, a half.
template <size_t N>
struct Bytes {
  unsigned char data[N];
};
""",
    "with_arguments": r"""
// Calls `use` with the table of pointers to a kernel's arguments, each converted to the type of the parameter.
#if defined(HIP_CPU)
template <typename T>
struct Aligned {
  alignas(16) T value;
};
template <typename F, typename... A>
void with_arguments(hipFunction_t kernel, F use, A... values) {
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
void with_arguments(void (*kernel)(P...), F use, A... values) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel gets as many arguments as it has parameters");
  std::tuple<P...> arguments{converted<P>(values)...};
  std::apply(
      [&](P&... each) {
        void* table[] = {(void*)&each..., nullptr};
        use((void*)kernel, table);
      },
      arguments);
}
#endif
""",
    "allow_shared": r"""
// More than 48 KiB of dynamic shared memory must be asked for.
void allow_shared(const void* kernel, unsigned bytes, const char* name) {
#if defined(HIP_CPU)
  (void)kernel, (void)bytes, (void)name;
#else
  if (bytes > 48 * 1024)
    CHECK(hipFuncSetAttribute(kernel, hipFuncAttributeMaxDynamicSharedMemorySize, int(bytes)), name);
#endif
}
""",
    "Nodes": r"""
using Nodes = std::initializer_list<hipGraphNode_t>;
""",
    "add_kernel": r"""
template <typename K, typename... A>
hipGraphNode_t add_kernel(hipGraph_t graph, const char* name, Nodes after, K kernel, dim3 grid, dim3 block, unsigned shared,
                          A... values) {
  hipGraphNode_t node = nullptr;
  with_arguments(
      kernel,
      [&](void* function, void** arguments) {
        //@shared        allow_shared(function, shared, name);
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
""",
    "cooperative": r"""
// All blocks of this kernel are resident at once and may synchronise with each other.
hipGraphNode_t cooperative(hipGraphNode_t node, const char* name) {
  hipKernelNodeAttrValue value = {};
  value.cooperative = 1;
  CHECK(hipGraphKernelNodeSetAttribute(node, hipKernelNodeAttributeCooperative, &value), name);
  return node;
}
""",
    "with_priority": r"""
// Priority among kernels of the device; lower runs first.
hipGraphNode_t with_priority(hipGraphNode_t node, int priority, const char* name) {
#if !defined(HIP_VERSION) || HIP_VERSION >= 70000000
  hipKernelNodeAttrValue value = {};
  value.priority = priority;
  CHECK(hipGraphKernelNodeSetAttribute(node, hipKernelNodeAttributePriority, &value), name);
#endif
  return node;
}
""",
    "with_cluster": r"""
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
""",
    "add_copy": r"""
hipGraphNode_t add_copy(hipGraph_t graph, const char* name, Nodes after, void* to, const void* from, size_t bytes,
                        hipMemcpyKind kind) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddMemcpyNode1D(&node, graph, after.begin(), after.size(), to, from, bytes, kind), name);
  return node;
}
""",
    "box": r"""
// A copy of `depth` slices of `height` rows of `width` bytes. Pitch: bytes from row to row; rows: rows from slice to slice.
struct Pitched {
  void* data;
  size_t pitch, rows;
};
hipMemcpy3DParms box(Pitched to, Pitched from, size_t width, size_t height, size_t depth, hipMemcpyKind kind) {
  hipMemcpy3DParms params = {};
  params.dstPtr = make_hipPitchedPtr(to.data, to.pitch, to.pitch, to.rows);
  params.srcPtr = make_hipPitchedPtr(from.data, from.pitch, from.pitch, from.rows);
  params.extent = make_hipExtent(width, height, depth);
  params.kind = kind;
  return params;
}
""",
    "add_copy_3d": r"""
hipGraphNode_t add_copy_3d(hipGraph_t graph, const char* name, Nodes after, const hipMemcpy3DParms& params) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddMemcpyNode(&node, graph, after.begin(), after.size(), &params), name);
  return node;
}
""",
    "add_memset": r"""
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
""",
    "bits": r"""
// The bytes of a value as a number.
template <typename T>
unsigned bits(T value) {
  static_assert(sizeof value <= sizeof(unsigned), "a memset takes up to 4 bytes");
  unsigned result = 0;
  std::memcpy(&result, &value, sizeof value);
  return result;
}
""",
    "Fill": r"""
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
""",
    "add_fill": r"""
template <typename T, typename E>
hipGraphNode_t add_fill(hipGraph_t graph, const char* name, Nodes after, T* data, E value, unsigned item, Fill fill) {
  return with_words(value, [&](const unsigned long long* w) {
    return add_kernel(graph, name, after, KERNEL(hipgraphdsl_fill), dim3((fill.count + 255) / 256), dim3(256), 0,
                      (unsigned char*)data, fill.count, item, fill.n[0], fill.n[1], fill.n[2], fill.stride[0], fill.stride[1],
                      fill.stride[2], fill.stride[3], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
  });
}
""",
    "add_alloc": r"""
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
""",
    "add_free": r"""
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
""",
    "host_function": r"""
// A host node takes a C function and one pointer: here the pointer is to the call that is to be made.
std::deque<std::function<void()>> host_calls;
hipHostNodeParams host_function(std::function<void()> call) {
  host_calls.push_back(std::move(call));
  hipHostNodeParams params = {};
  params.fn = [](void* made) { (*static_cast<std::function<void()>*>(made))(); };
  params.userData = &host_calls.back();
  return params;
}
""",
    "add_host": r"""
hipGraphNode_t add_host(hipGraph_t graph, const char* name, Nodes after, std::function<void()> call) {
  const hipHostNodeParams params = host_function(std::move(call));
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddHostNode(&node, graph, after.begin(), after.size(), &params), name);
  return node;
}
""",
    "add_empty": r"""
hipGraphNode_t add_empty(hipGraph_t graph, const char* name, Nodes after) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddEmptyNode(&node, graph, after.begin(), after.size()), name);
  return node;
}
""",
    "add_record": r"""
hipGraphNode_t add_record(hipGraph_t graph, const char* name, Nodes after, hipEvent_t event) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddEventRecordNode(&node, graph, after.begin(), after.size(), event), name);
  return node;
}
""",
    "add_wait": r"""
hipGraphNode_t add_wait(hipGraph_t graph, const char* name, Nodes after, hipEvent_t event) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddEventWaitNode(&node, graph, after.begin(), after.size(), event), name);
  return node;
}
""",
    "add_child": r"""
hipGraphNode_t add_child(hipGraph_t graph, const char* name, Nodes after, hipGraph_t child) {
  hipGraphNode_t node = nullptr;
  CHECK(hipGraphAddChildGraphNode(&node, graph, after.begin(), after.size(), child), name);
  CHECK(hipGraphDestroy(child), name);  // the node has a copy
  return node;
}
""",
    "add_captured": r"""
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
""",
    "memory_op": r"""
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
""",
    "add_memory_ops": r"""
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
  CHECK(hipDevicePrimaryCtxRetain(&params.ctx, 0), name);
  params.count = 1;
  for (hipStreamBatchMemOpParams& op : kept.back()) {  // before HIP 7.15, AMD runs the operations of one node at once
    const hipGraphNode_t before = node;
    params.paramArray = &op;
    CHECK(hipGraphAddBatchMemOpNode(&node, graph, before ? &before : after.begin(), before ? 1 : after.size(), &params), name);
  }
#endif
  return node;
}
""",
    "load": r"""
template <typename K>
void load(K kernel) {
#if defined(HIP_CPU)
  (void)kernel;
#else
  hipFuncAttributes attributes;
  CHECK(hipFuncGetAttributes(&attributes, (const void*)kernel), "");
#endif
}
""",
    "launch": r"""
template <typename K, typename... A>
void launch(hipStream_t stream, const char* name, K kernel, dim3 grid, dim3 block, unsigned shared, A... values) {
  with_arguments(
      kernel,
      [&](void* function, void** arguments) {
        //@shared        allow_shared(function, shared, name);
        CHECK(hipLaunchKernel(function, grid, block, arguments, shared, stream), name);
      },
      values...);
}
""",
    "fill_on": r"""
template <typename T, typename E>
void fill_on(hipStream_t stream, const char* name, T* data, E value, unsigned item, Fill fill) {
  with_words(value, [&](const unsigned long long* w) {
    launch(stream, name, KERNEL(hipgraphdsl_fill), dim3((fill.count + 255) / 256), dim3(256), 0, (unsigned char*)data,
           fill.count, item, fill.n[0], fill.n[1], fill.n[2], fill.stride[0], fill.stride[1], fill.stride[2], fill.stride[3],
           w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
  });
}
""",
    "launch_cooperative": r"""
// All blocks of this kernel are resident at once and may synchronise with each other.
template <typename K, typename... A>
void launch_cooperative(hipStream_t stream, const char* name, K kernel, dim3 grid, dim3 block, unsigned shared, A... values) {
  with_arguments(
      kernel,
      [&](void* function, void** arguments) {
        //@shared        allow_shared(function, shared, name);
        CHECK(hipLaunchCooperativeKernel(function, grid, block, arguments, shared, stream), name);
      },
      values...);
}
""",
    "copy_3d": r"""
void copy_3d(hipStream_t stream, const char* name, const hipMemcpy3DParms& params) {
  CHECK(hipMemcpy3DAsync(&params, stream), name);
}
""",
    "call_host": r"""
void call_host(hipStream_t stream, const char* name, std::function<void()> call) {
  const hipHostNodeParams params = host_function(std::move(call));
  CHECK(hipLaunchHostFunc(stream, params.fn, params.userData), name);
}
""",
    "captured_nodes": r"""
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
""",
    "insert": r"""
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
""",
    "mark_by_event": r"""
// What has been put on a stream so far, so that another stream can wait for it.
using Mark = hipEvent_t;
std::vector<hipEvent_t> marks;
Mark mark(hipStream_t stream) {
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming), "");
  CHECK(hipEventRecord(event, stream), "");
  marks.push_back(event);
  return event;
}
void wait(hipStream_t stream, std::initializer_list<Mark> others) {
  for (Mark other : others) CHECK(hipStreamWaitEvent(stream, other, 0), "");
}
""",
    "mark_by_node": r"""
// What has been put on a stream so far, so that another stream can wait for it. Events would say the same, but here streams
// wait for each other in a ring, and with that AMD's hipStreamEndCapture never ends.
using Mark = std::vector<hipGraphNode_t>;
Mark mark(hipStream_t stream) { return captured_nodes(stream, ""); }
void wait(hipStream_t stream, std::initializer_list<Mark> others) {
  for (Mark other : others)
    CHECK(hipStreamUpdateCaptureDependencies(stream, other.data(), other.size(), hipStreamAddCaptureDependencies), "");
}
""",
    "set": r"""
// Sets the first values of an array, wherever it lives: to value(i) for element i.
template <typename T, typename F>
void set(T* array, size_t count, F value) {
  std::unique_ptr<T[]> values(new T[count]);
  for (size_t i = 0; i < count; ++i) values[i] = value(i);
  CHECK(hipMemcpy(array, values.get(), count * sizeof(T), hipMemcpyDefault), "");
}
""",
    "set_list": r"""
// Sets the first values of an array to a list, again and again where the array is longer.
template <typename T>
void set_list(T* array, size_t count, std::initializer_list<T> list) {
  const size_t period = list.size();
  std::unique_ptr<T[]> values(new T[count]);
  for (size_t i = 0; i < count; ++i) values[i] = list.begin()[i % period];
  CHECK(hipMemcpy(array, values.get(), count * sizeof(T), hipMemcpyDefault), "");
}
""",
    "npy": r"""
// Reads an array from a .npy file of NumPy: versions 1 to 3, C order, of the array's own type and shape.
void read_npy(const Array& array, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) fail("%s, for array '%s', cannot be opened: %s; name the file by --in %s=FILE", path.c_str(), array.name,
                  std::strerror(errno), array.name);
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
""",
    "number": r"""
// The number in an option's text, which must be one that the parameter can hold.
template <typename T>
T number(const std::string& option, const char* text) {
  char* end = nullptr;
  errno = 0;
  bool good = false;
  T result = T();
  if constexpr (std::is_same_v<T, bool>) {
    const std::string word = text;
    good = word == "0" || word == "1" || word == "true" || word == "false";
    return good ? word == "1" || word == "true" : (fail("%s is 0 or 1 (got '%s')", option.c_str(), text), false);
  } else if constexpr (std::is_floating_point_v<T>) {
    result = sizeof(T) == 4 ? T(std::strtof(text, &end)) : T(std::strtod(text, &end));
    good = errno == 0 || result == 0;
  } else if constexpr (std::is_signed_v<T>) {
    const long long value = std::strtoll(text, &end, 0);
    result = T(value);
    good = errno == 0 && result == value;
  } else {
    const unsigned long long value = std::strtoull(text, &end, 0);
    result = T(value);
    good = errno == 0 && result == value && !std::strchr(text, '-');
  }
  if (!good || end == text || *end) fail("%s takes a number that its type can hold (got '%s')", option.c_str(), text);
  return result;
}
""",
}
"""Helpers by name, in the order in which a program holds them."""

# What each part uses of the others.
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "add_kernel": ("with_arguments", "Nodes"),
    "add_fill": ("add_kernel", "Fill"),
    "fill_on": ("launch", "Fill"),
    "launch": ("with_arguments",),
    "launch_cooperative": ("with_arguments",),
    "add_copy_3d": ("box", "Nodes"),
    "copy_3d": ("box",),
    "call_host": ("host_function",),
    "add_host": ("host_function", "Nodes"),
    "add_captured": ("add_child",),
    "add_memory_ops": ("memory_op", "Nodes"),
    "insert": ("captured_nodes", "Nodes"),
    "mark_by_node": ("captured_nodes",),
    **dict.fromkeys(("add_copy", "add_memset", "add_alloc", "add_free", "add_empty", "add_record", "add_wait"), ("Nodes",)),
    "add_child": ("Nodes",),
}

FIXED_NAMES: Final[frozenset[str]] = frozenset(
    {
        "Array", "arrays", "build_graph", "capture_graph", "prepare", "initialise", "run", "main", "options", "help", "program",
        "graph", "stream", "streams", "parameters", "argc", "argv", "std", "n", "KERNEL", "SYMBOL", "array_named", "quiet",
        "HIP_CPU", "HIP_VERSION", "device", "dim3", "DEVICE", "PINNED", "PAGEABLE", "mark", "wait", "Mark", "marks", "start",
        "converted", "with_words", "Pitched", "host_calls", "checked", "read_npy", "write_npy", "hipgraphdsl_fill",
        "hipgraphdsl_copy", "size_t", "NAN", "INFINITY", "open_events", "capture", "out_dir", "data_dir", "inputs", "outputs",
        "text", "option", "repeat", "warm_up", "executable", "submit_sum", "done_sum", "submit_least", "done_least",
        *PARTS,
    }
)  # fmt: skip
"""Names that a program's own things must not take."""

_SPECIAL: Final = {
    "hipHostMalloc": "cudaHostAlloc",
    "hipHostMallocDefault": "cudaHostAllocDefault",
    "hipHostFree": "cudaFreeHost",
    "hipGraphAddBatchMemOpNode": "cuGraphAddBatchMemOpNode",
    "hipBatchMemOpNodeParams": "CUDA_BATCH_MEM_OP_NODE_PARAMS",
    "hipStreamBatchMemOpParams": "CUstreamBatchMemOpParams",
    "hipDeviceptr_t": "CUdeviceptr",
    "hipStreamMemOpWriteValue32": "CU_STREAM_MEM_OP_WRITE_VALUE_32",
    "hipStreamMemOpWriteValue64": "CU_STREAM_MEM_OP_WRITE_VALUE_64",
    "hipStreamMemOpWaitValue32": "CU_STREAM_MEM_OP_WAIT_VALUE_32",
    "hipStreamMemOpWaitValue64": "CU_STREAM_MEM_OP_WAIT_VALUE_64",
    "hipStreamGetCaptureInfo_v2": "",
    "hipStreamUpdateCaptureDependencies": "",
    "hipGraphAddDependencies": "",
    "hipDevicePrimaryCtxRetain": "",  # stands only where CUDA is not
    "hipFunction_t": "",  # stands only where the CPU's part is
    "make_hipPitchedPtr": "make_cudaPitchedPtr",
    "make_hipExtent": "make_cudaExtent",
}

# CUDA 13 takes edge data in the same calls.
_BY_VERSION: Final = {
    "hipStreamGetCaptureInfo_v2": """\
inline cudaError_t hipStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                              cudaGraph_t* graph, const cudaGraphNode_t** nodes, size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, nullptr, count);
#else
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
#endif
}
""",
    "hipStreamUpdateCaptureDependencies": """\
inline cudaError_t hipStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes, size_t count,
                                                      unsigned flags) {
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(stream, nodes, nullptr, count, flags);
#else
  return cudaStreamUpdateCaptureDependencies(stream, nodes, count, flags);
#endif
}
""",
    "hipGraphAddDependencies": """\
inline cudaError_t hipGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                           size_t count) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
#else
  return cudaGraphAddDependencies(graph, from, to, count);
#endif
}
""",
}

# What kernels in HIP may say and CUDA lacks or spells otherwise. CUDA's warps have 32 threads.
_DEVICE: Final = {
    **{f"hip{a}_{x}": f"{a[0].lower()}{a[1:]}.{x}" for a in ("ThreadIdx", "BlockIdx", "BlockDim", "GridDim") for x in "xyz"},
    "HIP_DYNAMIC_SHARED(type, name)": "extern __shared__ type name[];",
    "__shfl(value, ...)": "__shfl_sync(0xffffffffu, value, __VA_ARGS__)",
    "__shfl_up(value, ...)": "__shfl_up_sync(0xffffffffu, value, __VA_ARGS__)",
    "__shfl_down(value, ...)": "__shfl_down_sync(0xffffffffu, value, __VA_ARGS__)",
    "__shfl_xor(value, ...)": "__shfl_xor_sync(0xffffffffu, value, __VA_ARGS__)",
    "__ballot(predicate)": "((unsigned long long)__ballot_sync(__activemask(), predicate))",
    "__any(predicate)": "__any_sync(__activemask(), predicate)",
    "__all(predicate)": "__all_sync(__activemask(), predicate)",
    "hipFloatComplex": "cuFloatComplex",
    "hipDoubleComplex": "cuDoubleComplex",
    "hipComplex": "cuComplex",
    "hip_bfloat16": "__nv_bfloat16",
    "__hip_bfloat16": "__nv_bfloat16",
}
_COMPLEX: Final = re.compile(
    r"^(make_)?hip((?:Float|Double)?Complex|C(?:add|sub|mul|div|fma|abs|real|imag|onj)f?|Complex(?:FloatToDouble|DoubleToFloat))$"
)
_WORD: Final = re.compile(r"\b(?:make_)?hip[A-Z]\w*")


_USERS: Final = (
    "hipEventCreateWithFlags", "hipEventDisableTiming", "hipEventRecord", "hipEvent_t", "hipLaunchKernel", "hipMemcpyAsync",
    "hipMemcpyDefault", "hipMemset2DAsync", "hipMemsetAsync", "hipStreamWaitEvent",
)  # fmt: skip


def cuda_names(program: str, kernels: str, captured: bool) -> list[str]:
    """Return the lines that map HIP's names to CUDA's: those that a program and its kernels use, and no others.

    Where functions of the user put work on a stream, also what they will need.
    """
    code = re.sub(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", "", program)
    words = sorted({*_WORD.findall(code), *(_USERS if captured else ())})
    names = set(re.findall(r"\w+", kernels + code))  # types of template arguments may stand in the program alone
    lines = []
    for word in words:
        if word in _DEVICE and word in names:
            continue
        cuda = _SPECIAL[word] if word in _SPECIAL else _COMPLEX.sub(r"\1cu\2", word).replace("hip", "cuda", 1)
        if cuda:
            lines.append(f"#define {word} {cuda}")
    if "hipGetSymbolAddress" in words:
        lines.append("#define HIP_SYMBOL(name) name")
    for word in words:
        if word in _BY_VERSION:
            lines += _BY_VERSION[word].rstrip("\n").split("\n")
    lines += [f"#define {left} {right}" for left, right in _DEVICE.items() if left.partition("(")[0] in names]
    return lines


def needed_parts(wanted: set[str]) -> list[str]:
    """Return the parts that a program holds, in their order."""
    found = set(wanted)
    queue = list(wanted)
    while queue:
        for other in _NEEDS.get(queue.pop(), ()):
            if other not in found:
                found.add(other)
                queue.append(other)
    return [name for name in PARTS if name in found]
