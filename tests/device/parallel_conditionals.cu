/* The body of a `while` holds an `if` and another `while`, which no path orders. With driver 580.159 (CUDA 13.0, H200) a launch of
 * such a graph does not end, most often the first: the GPU is idle, and the stream waits for ever. It makes no difference what
 * the body of the `if` holds. Where one waits for the other, twenty launches end, and where other processes use the GPU they may.
 *
 *   nvcc -arch=sm_90 -rdc=true -o conditionals parallel_conditionals.cu -lcudadevrt && ./conditionals chain; ./conditionals
 */
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <time.h>
#include <vector>

#define CHECK(call)                                                                \
  do {                                                                             \
    const cudaError_t found = (call);                                              \
    if (found != cudaSuccess) {                                                    \
      printf("%s: %s (%d)\n", #call, cudaGetErrorString(found), (int)found);       \
      _Exit(2);                                                                    \
    }                                                                              \
  } while (0)

typedef std::vector<cudaGraphNode_t> Nodes;

__global__ void set(cudaGraphConditionalHandle handle, const unsigned *word) { cudaGraphSetConditional(handle, *word); }
__global__ void less(unsigned *word) {
  if (*word) *word -= 1;
}

static cudaGraphNode_t kernel(cudaGraph_t graph, const Nodes &after, void *function, void **args) {
  cudaKernelNodeParams params = {};
  params.func = function;
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = args;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
  return node;
}

static cudaGraphNode_t fill(cudaGraph_t graph, const Nodes &after, unsigned *word, unsigned value) {
  cudaMemsetParams params = {};
  params.dst = word;
  params.value = value;
  params.elementSize = 4;
  params.width = params.height = 1;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddMemsetNode(&node, graph, after.data(), after.size(), &params));
  return node;
}

/* Gives the word a value, hands it to a conditional node, and adds that; returns its body. */
static cudaGraph_t conditional(cudaGraph_t graph, cudaGraphConditionalNodeType type, unsigned *word, unsigned value, Nodes after,
                               cudaGraphConditionalHandle *handle, cudaGraphNode_t *node) {
  CHECK(cudaGraphConditionalHandleCreate(handle, graph, 0, 0));
  void *args[] = {handle, &word};
  cudaGraphNode_t before = kernel(graph, {fill(graph, after, word, value)}, (void *)set, args);
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = *handle;
  params.conditional.type = type;
  params.conditional.size = 1;
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphAddNode(node, graph, &before, nullptr, 1, &params));
#else
  CHECK(cudaGraphAddNode(node, graph, &before, 1, &params));
#endif
  return params.conditional.phGraph_out[0];
}

int main(int argc, char **argv) {
  const bool chain = argc > 1 && !strcmp(argv[1], "chain");
  const char *how = chain ? "one after the other" : "side by side";
  unsigned *words;
  CHECK(cudaMalloc(&words, 4 * sizeof(unsigned)));
  unsigned *other = words + 3;
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle outer, choice, inner;
  cudaGraphNode_t node, chosen, repeated;
  cudaGraph_t body = conditional(graph, cudaGraphCondTypeWhile, words, 1, {}, &outer, &node);
  cudaGraph_t inside = conditional(body, cudaGraphCondTypeIf, words + 1, 0, {}, &choice, &chosen);
  void *args[] = {&other};
  kernel(inside, {}, (void *)less, args);
  cudaGraph_t again = conditional(body, cudaGraphCondTypeWhile, words + 2, 0, chain ? Nodes{chosen} : Nodes{}, &inner, &repeated);
  unsigned *word = words + 2;
  void *of_inner[] = {&word}, *to_inner[] = {&inner, &word};
  kernel(again, {kernel(again, {}, (void *)less, of_inner)}, (void *)set, to_inner);
  void *of_outer[] = {&words}, *to_outer[] = {&outer, &words};
  cudaGraphNode_t last = kernel(body, chain ? Nodes{repeated} : Nodes{}, (void *)less, of_outer);
  kernel(body, {chosen, repeated, last}, (void *)set, to_outer);

  cudaGraphExec_t exec;
  cudaStream_t stream;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int launch = 0; launch < 20; ++launch) {
    CHECK(cudaGraphLaunch(exec, stream));
    cudaError_t code = cudaErrorNotReady;
    for (time_t start = time(nullptr); code == cudaErrorNotReady && time(nullptr) < start + 4;) code = cudaStreamQuery(stream);
    if (code == cudaErrorNotReady) {
      printf("%s: launch %d does not end\n", how, launch);
      fflush(stdout);
      _Exit(1);
    }
    CHECK(code);
  }
  printf("%s: 20 launches have ended\n", how);
  return 0;
}
