/* Kernels of the library's own, for what no memset or copy engine does well. */
// Fills what no memset can: elements of 1 to 64 bytes in up to four strided dimensions, innermost first.
extern "C" __global__ void hipgraphdsl_fill(
    unsigned char* dst, unsigned long long count, unsigned int itemsize,
    unsigned long long n0, unsigned long long n1, unsigned long long n2,
    unsigned long long s0, unsigned long long s1, unsigned long long s2, unsigned long long s3,
    unsigned long long w0, unsigned long long w1, unsigned long long w2, unsigned long long w3,
    unsigned long long w4, unsigned long long w5, unsigned long long w6, unsigned long long w7) {
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned long long words[8] = {w0, w1, w2, w3, w4, w5, w6, w7};
  unsigned char* p = dst + (i % n0) * s0 + (i / n0 % n1) * s1 + (i / n0 / n1 % n2) * s2 + (i / n0 / n1 / n2) * s3;
  for (unsigned int b = 0; b < itemsize; ++b) p[b] = (unsigned char)(words[b >> 3] >> (8 * (b & 7)));
}

// Copies `wide` 16-byte words and `rest` bytes after them; both pointers are 16-byte aligned unless `wide` is 0.
extern "C" __global__ void hipgraphdsl_copy(
    unsigned char* dst, const unsigned char* src, unsigned long long wide, unsigned long long rest) {
  unsigned long long first = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  unsigned long long step = gridDim.x * (unsigned long long)blockDim.x;
  uint4* to = (uint4*)dst;
  const uint4* from = (const uint4*)src;
  for (unsigned long long i = first; i < wide; i += step) to[i] = from[i];
  for (unsigned long long i = 16 * wide + first; i < 16 * wide + rest; i += step) dst[i] = src[i];
}
