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
