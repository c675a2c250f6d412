// HIP's functions that CUDA spells otherwise from version to version: what a program maps no name to.
#include <cuda_runtime.h>

//@part hipStreamGetCaptureInfo_v2
inline cudaError_t hipStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                              cudaGraph_t* graph, const cudaGraphNode_t** nodes, size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, nullptr, count);
#else
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
#endif
}

//@part hipStreamUpdateCaptureDependencies
inline cudaError_t hipStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes, size_t count,
                                                      unsigned flags) {
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(stream, nodes, nullptr, count, flags);
#else
  return cudaStreamUpdateCaptureDependencies(stream, nodes, count, flags);
#endif
}

//@part hipGraphAddDependencies
inline cudaError_t hipGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                           size_t count) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
#else
  return cudaGraphAddDependencies(graph, from, to, count);
#endif
}
//@end
