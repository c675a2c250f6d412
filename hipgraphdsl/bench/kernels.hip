// Kernels of the benchmarks.

// Graphs of a shape and a size

extern "C" __global__ void empty(const float* x, float* y, int n) {}
extern "C" __global__ void axpy(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = y[i] * 0.5f + x[i];
}

// Graphs of a shape: the wave

extern "C" __global__ void wave(const float* U0, const float* U1, float* U2, const float* V, int n) {
  const int i0 = blockIdx.y * blockDim.y + threadIdx.y;
  const int i1 = blockIdx.x * blockDim.x + threadIdx.x;
  if (i0 < 2 || i0 >= n - 2 || i1 < 2 || i1 >= n - 2) return;
  const int at = i0 * n + i1;
  const float far = -1.0f / 12.0f, near = 4.0f / 3.0f, here = -2.5f;
  const float along0 = far * (U1[at - 2 * n] + U1[at + 2 * n]) + near * (U1[at - n] + U1[at + n]) + here * U1[at];
  const float along1 = far * (U1[at - 2] + U1[at + 2]) + near * (U1[at - 1] + U1[at + 1]) + here * U1[at];
  float next = 2.0f * U1[at] - U0[at] + V[at] * (along0 + along1);
  if (i0 == n / 2 && i1 == n / 2) next += 1.0f;
  U2[at] = next;
}

// Graphs of a shape: Maxwell's equations on Yee's grid, n x n x n cells that wrap around, one kernel for each component

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

// One token through a transformer: vectors of n elements, one block of n threads each

extern "C" __global__ void rms_norm(const float* x, const float* gain, float* y, int n) {
  float sum = 0.0f;
  for (int k = 0; k < n; ++k) sum += x[k] * x[k];
  int i = threadIdx.x;
  if (i < n) y[i] = x[i] * gain[i] / sqrtf(sum / n + 1e-5f);
}
extern "C" __global__ void project(const float* x, const float* W, float* y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < n; ++k) sum += W[k * n + i] * x[k];
  y[i] = sum;
}
extern "C" __global__ void add_projected(const float* x, const float* W, float* y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < n; ++k) sum += W[k * n + i] * x[k];
  y[i] += sum;
}
extern "C" __global__ void rotate(float* q, float* k, int n) {
  int i = 2 * threadIdx.x;
  if (i + 1 >= n) return;
  float c = cosf(i * 0.01f), s = sinf(i * 0.01f), q0 = q[i], q1 = q[i + 1], k0 = k[i], k1 = k[i + 1];
  q[i] = c * q0 - s * q1; q[i + 1] = s * q0 + c * q1;
  k[i] = c * k0 - s * k1; k[i + 1] = s * k0 + c * k1;
}
extern "C" __global__ void store(const float* k, const float* v, float* keys, float* values, int n) {
  int i = threadIdx.x;
  if (i < n) { keys[i] = k[i]; values[i] = v[i]; }
}
extern "C" __global__ void attend(const float* q, const float* keys, const float* values, float* y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f, weights = 0.0f;
  for (int t = 0; t < 16; ++t) {
    float score = 0.0f;
    for (int k = 0; k < 16; ++k) score += q[k] * keys[t * n + k];
    float weight = expf(fminf(score, 20.0f));
    weights += weight;
    sum += weight * values[t * n + i];
  }
  y[i] = sum / weights;
}
extern "C" __global__ void gate(const float* g, float* u, int n) {
  int i = threadIdx.x;
  if (i < n) u[i] *= g[i] / (1.0f + expf(-g[i]));
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
