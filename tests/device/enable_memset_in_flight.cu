/* A node of an instantiated graph is disabled while a launch of the graph is in flight. CUDA's reference says of
 * cudaGraphNodeSetEnabled: "This API only affects future launches". With driver 580.159 a launch in flight fails with error 719
 * where the node is a memset; kernel and memcpy nodes are right.
 *
 *   nvcc -o enable enable_memset_in_flight.cu && ./enable memset && ./enable kernel && ./enable memcpy
 */
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    cudaError_t code = (call);                                                               \
    if (code != cudaSuccess) {                                                               \
      printf("round %d: %s: %s (%d)\n", round, #call, cudaGetErrorString(code), (int)code); \
      return 1;                                                                              \
    }                                                                                        \
  } while (0)

__global__ void add(int *x, int n, int by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;
}

/* Keeps the stream busy for so many clock cycles of a multiprocessor. */
__global__ void spin(long long cycles) {
  for (long long start = clock64(); clock64() - start < cycles;) {
  }
}

int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "memset";
  int k = !strcmp(kind, "kernel") ? 1 : !strcmp(kind, "memcpy") ? 2 : 0;
  const int n = 16, bytes = n * sizeof(int);
  int round = 0, *x, *y;
  cudaStream_t stream;
  CHECK(cudaMalloc(&x, bytes));
  CHECK(cudaMalloc(&y, bytes));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (; round < 2000; ++round) {
    cudaGraph_t graph;
    cudaGraphNode_t nodes[3];
    cudaGraphExec_t exec;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fill = {};
    fill.dst = x, fill.value = 7, fill.elementSize = 4, fill.width = n, fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&nodes[0], graph, nullptr, 0, &fill));
    int by = 3, count = n;
    void *args[] = {&x, &count, &by};
    cudaKernelNodeParams launch = {};
    launch.func = (void *)add, launch.gridDim = 1, launch.blockDim = 32, launch.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&nodes[1], graph, &nodes[0], 1, &launch));
    CHECK(cudaGraphAddMemcpyNode1D(&nodes[2], graph, &nodes[1], 1, y, x, bytes, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int again = 0; again < 20; ++again) {
      spin<<<1, 1, 0, stream>>>(500000);
      CHECK(cudaGraphLaunch(exec, stream));
      CHECK(cudaGraphNodeSetEnabled(exec, nodes[k], 0));
      CHECK(cudaGraphLaunch(exec, stream));
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaGraphNodeSetEnabled(exec, nodes[k], 1));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
  }
  printf("%s: %d rounds without error\n", kind, round);
  return 0;
}
