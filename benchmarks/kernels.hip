// Kernels of the benchmarks that are for developers.

// Maxwell's equations on Yee's grid, n x n x n cells that wrap around, one kernel for each component

extern "C" __global__ void update_ex(float* ex, const float* hy, const float* hz, float c, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * n * n) return;
  const int x = at / n / n, y = at / n % n, z = at % n;
  ex[at] += c * ((hz[at] - hz[(x * n + (y + n - 1) % n) * n + z]) - (hy[at] - hy[(x * n + y) * n + (z + n - 1) % n]));
}
extern "C" __global__ void update_ey(float* ey, const float* hz, const float* hx, float c, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * n * n) return;
  const int x = at / n / n, y = at / n % n, z = at % n;
  ey[at] += c * ((hx[at] - hx[(x * n + y) * n + (z + n - 1) % n]) - (hz[at] - hz[(((x + n - 1) % n) * n + y) * n + z]));
}
extern "C" __global__ void update_ez(float* ez, const float* hx, const float* hy, float c, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * n * n) return;
  const int x = at / n / n, y = at / n % n, z = at % n;
  ez[at] += c * ((hy[at] - hy[(((x + n - 1) % n) * n + y) * n + z]) - (hx[at] - hx[(x * n + (y + n - 1) % n) * n + z]));
}
extern "C" __global__ void update_hx(float* hx, const float* ey, const float* ez, float c, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * n * n) return;
  const int x = at / n / n, y = at / n % n, z = at % n;
  hx[at] -= c * ((ez[(x * n + (y + 1) % n) * n + z] - ez[at]) - (ey[(x * n + y) * n + (z + 1) % n] - ey[at]));
}
extern "C" __global__ void update_hy(float* hy, const float* ez, const float* ex, float c, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * n * n) return;
  const int x = at / n / n, y = at / n % n, z = at % n;
  hy[at] -= c * ((ex[(x * n + y) * n + (z + 1) % n] - ex[at]) - (ez[(((x + 1) % n) * n + y) * n + z] - ez[at]));
}
extern "C" __global__ void update_hz(float* hz, const float* ex, const float* ey, float c, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * n * n) return;
  const int x = at / n / n, y = at / n % n, z = at % n;
  hz[at] -= c * ((ey[(((x + 1) % n) * n + y) * n + z] - ey[at]) - (ex[(x * n + (y + 1) % n) * n + z] - ex[at]));
}

// Lanes

// A chain of dependent operations, so that `steps` alone says how long a block takes.
extern "C" __global__ void spin(const float* x, float* y, int steps) {
  float v = x[threadIdx.x];
  for (int k = 0; k < steps; ++k) v = v * 0.9999f + 0.5f;
  y[threadIdx.x] = v;
}

// Tiled Cholesky: tiles of 32 x 32, row by row, blocks of 256 threads; each thread has column t % 32 of rows t / 32 + 8 m

extern "C" __global__ void potrf(float* a) {
  __shared__ float columns[2][32];
  const int j = threadIdx.x % 32, first = threadIdx.x / 32;
  float own[4];
  for (int m = 0; m < 4; ++m) own[m] = a[32 * (first + 8 * m) + j];
  float over = 0.0f;
  for (int k = 0; k < 32; ++k) {  // columns are scaled behind the last step, so that each step has one barrier
    float* column = columns[k % 2];
    if (j == k)
      for (int m = 0; m < 4; ++m) column[first + 8 * m] = own[m];
    __syncthreads();
    const float root = rsqrtf(column[k]);
    if (j == k) over = root;
    const float scaled = j > k ? column[j] * root * root : 0.0f;
    for (int m = 0; m < 4; ++m) own[m] -= column[first + 8 * m] * scaled;
  }
  for (int m = 0; m < 4; ++m) a[32 * (first + 8 * m) + j] = first + 8 * m >= j ? own[m] * over : 0.0f;
}
extern "C" __global__ void trsm(const float* l, float* a) {
  __shared__ float s[32][33], r[32][33], over[32];
  const int t = threadIdx.x, j = t % 32;
  for (int i = t / 32; i < 32; i += 8) {
    s[i][j] = l[32 * i + j];
    r[i][j] = a[32 * i + j];
  }
  if (t < 32) over[t] = 1.0f / l[33 * t];
  __syncthreads();
  if (t < 32) {  // each thread solves for its row, in registers
    float x[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) x[k] = r[t][k];
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      x[k] *= over[k];
#pragma unroll
      for (int n = k + 1; n < 32; ++n) x[n] -= x[k] * s[n][k];
    }
#pragma unroll
    for (int k = 0; k < 32; ++k) r[t][k] = x[k];
  }
  __syncthreads();
  for (int i = t / 32; i < 32; i += 8) a[32 * i + j] = r[i][j];
}
extern "C" __global__ void gemm(const float* a, const float* b, float* c) {
  __shared__ float s[32][33], r[32][33];
  const int j = threadIdx.x % 32, first = threadIdx.x / 32;
  for (int i = first; i < 32; i += 8) {
    s[i][j] = a[32 * i + j];
    r[i][j] = b[32 * i + j];
  }
  __syncthreads();
  float sum[4] = {};
  for (int k = 0; k < 32; ++k)
    for (int m = 0; m < 4; ++m) sum[m] += s[first + 8 * m][k] * r[j][k];
  for (int m = 0; m < 4; ++m) c[32 * (first + 8 * m) + j] -= sum[m];
}

// Segments

extern "C" __global__ void count_down(int* left) {
  if (threadIdx.x == 0) left[0] -= 1;
}

// Overlap

extern "C" __global__ void first(float* a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] += 1.0f;
}
extern "C" __global__ void second(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] += a[i] + 3.0f;
}
extern "C" __global__ void process(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = sqrtf(in[i]);
}

// Overlap: the wave

extern "C" __global__ void wave2d_4o(
    const float* U0, const float* U1, float* U2, const float* V, int N0, int N1,
    float dt2, float inv_dx02, float inv_dx12, int P0, int P1, float pi2fm2t2)
{
    const int i0 = blockIdx.y * blockDim.y + threadIdx.y;
    const int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 < 2 || i0 >= N0 - 2 || i1 < 2 || i1 >= N1 - 2) return;
    const int at = i0 * N1 + i1;
    const float far = -1.0f / 12.0f, near = 4.0f / 3.0f, here = -2.5f;
    const float along0 = far * (U1[at - 2 * N1] + U1[at + 2 * N1]) + near * (U1[at - N1] + U1[at + N1]) + here * U1[at];
    const float along1 = far * (U1[at - 2] + U1[at + 2]) + near * (U1[at - 1] + U1[at + 1]) + here * U1[at];
    float next = 2.0f * U1[at] - U0[at] + dt2 * V[at] * V[at] * (along0 * inv_dx02 + along1 * inv_dx12);
    if (i0 == P0 && i1 == P1) next += (1.0f - 2.0f * pi2fm2t2) * expf(-pi2fm2t2);
    U2[at] = next;
}

// Devices: a band of rows

extern "C" __global__ void wave2d_rows(
    const float* U0, const float* U1, float* U2, const float* V, int rows, int N1, float dt2, int P0, int P1, float push)
{
    const int i0 = blockIdx.y * blockDim.y + threadIdx.y;
    const int i1 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i0 >= rows || i1 < 2 || i1 >= N1 - 2) return;
    const size_t own = (size_t)i0 * N1 + i1;
    const size_t at = own + 2 * (size_t)N1;
    const float far = -1.0f / 12.0f, near = 4.0f / 3.0f, here = -2.5f;
    const float along0 = far * (U1[at - 2 * N1] + U1[at + 2 * N1]) + near * (U1[at - N1] + U1[at + N1]) + here * U1[at];
    const float along1 = far * (U1[at - 2] + U1[at + 2]) + near * (U1[at - 1] + U1[at + 1]) + here * U1[at];
    float next = 2.0f * U1[at] - U0[own] + dt2 * V[own] * V[own] * (along0 + along1);
    if (i0 == P0 && i1 == P1) next += push;
    U2[own] = next;
}
