// What `hipgraphdsl bench ranks` compares with: NCCL called by hand from two processes, one GPU each.
//
//   nvcc -O2 -o ranks ranks.cpp -lnccl && ./ranks 65536 16777216
//
// With a third argument both processes use one GPU, and NCCL takes them for two machines.
//
// Prints lines "name median_us": an exchange of so many bytes in both directions, and an all-reduce of so many floats, until done;
// issued on a stream, and as a graph that was captured; and what the calls on a stream take, without the wait (`submit`).

#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CUDA(call) \
  if (cudaError_t code = (call)) { fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code)); exit(1); }
#define NCCL(call) \
  if (ncclResult_t code = (call)) { fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(code)); exit(1); }

static double median_us(const std::function<void()>& once, int rounds) {
  for (int i = 0; i < rounds / 5 + 5; ++i) once();
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto began = std::chrono::steady_clock::now();
    once();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}

static void measure(const char* name, int rank, cudaStream_t stream, const std::function<void()>& issue, int rounds) {
  const double eager = median_us([&] { issue(); CUDA(cudaStreamSynchronize(stream)); }, rounds);
  const double submitted = median_us(issue, 200);
  CUDA(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  issue();
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  const double captured = median_us([&] { CUDA(cudaGraphLaunch(exec, stream)); CUDA(cudaStreamSynchronize(stream)); }, rounds);
  if (rank == 0) printf("%s_eager %.3f\n%s_submit_eager %.3f\n%s_captured %.3f\n", name, eager, name, submitted, name, captured);
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
}

int main(int argc, char** argv) {
  const size_t bytes = argc > 1 ? atoll(argv[1]) : 65536, count = argc > 2 ? atoll(argv[2]) : 1 << 24;
  const bool one_gpu = argc > 3;
  int ends[2];
  if (pipe(ends)) return 1;
  const pid_t child = fork();  // before anything of CUDA
  const int rank = child ? 0 : 1;
  ncclUniqueId id;
  if (one_gpu) setenv("NCCL_HOSTID", rank ? "rank1" : "rank0", 1);
  CUDA(cudaSetDevice(one_gpu ? 0 : rank));
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    if (write(ends[1], &id, sizeof id) != sizeof id) return 1;
  } else if (read(ends[0], &id, sizeof id) != sizeof id) {
    return 1;
  }
  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, 2, id, rank));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  char *to, *from;
  float* values;
  CUDA(cudaMalloc(&to, bytes));
  CUDA(cudaMalloc(&from, bytes));
  CUDA(cudaMalloc(&values, count * sizeof(float)));
  CUDA(cudaMemset(values, 0, count * sizeof(float)));
  measure("exchange", rank, stream, [&] {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(from, bytes, ncclInt8, 1 - rank, comm, stream));
    NCCL(ncclRecv(to, bytes, ncclInt8, 1 - rank, comm, stream));
    NCCL(ncclGroupEnd());
  }, 2000);
  const auto reduce = [&] { NCCL(ncclAllReduce(values, values, count, ncclFloat, ncclSum, comm, stream)); };
  measure("all_reduce", rank, stream, reduce, one_gpu ? 30 : 300);
  NCCL(ncclCommDestroy(comm));
  int status = 0;
  if (child && waitpid(child, &status, 0) < 0) return 1;
  return status != 0;
}
