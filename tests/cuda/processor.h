// Kernels on the processor: a thread for each thread of a block, the blocks one after the other.
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <tuple>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __restrict__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct Place { unsigned x, y; };
static thread_local Place threadIdx, blockIdx;
static Place blockDim, gridDim;
static std::barrier<>* together;

static void __syncthreads() { together->arrive_and_wait(); }
static int __float_as_int(float value) { int bits; std::memcpy(&bits, &value, 4); return bits; }
static long long __double_as_longlong(double value) { long long bits; std::memcpy(&bits, &value, 8); return bits; }
static double __longlong_as_double(long long bits) { double value; std::memcpy(&value, &bits, 8); return value; }
static float __double2float_rd(double value) {
    float near = float(value);
    return near > value ? std::nextafterf(near, -INFINITY) : near;
}
static float __fmaf_rd(float a, float b, float c) { return __double2float_rd(double(a) * b + c); }
static double __dadd_rd(double a, double b) { return a + b; }
static double __fma_rd(double a, double b, double c) { return std::fma(a, b, c); }
using std::fabs, std::fma, std::fmax;

template <typename N> static void atomicMax(N* place, N value) {
    std::atomic_ref<N> now(*place);
    for (N old = now; old < value && !now.compare_exchange_weak(old, value);) {}
}

template <typename... Given, std::size_t... I>
static void start(void (*kernel)(Given...), void** given, std::index_sequence<I...>) {
    std::barrier<> meeting(blockDim.x);
    together = &meeting;
    auto work = [&](unsigned thread) {
        for (unsigned y = 0; y < gridDim.y; ++y)
            for (unsigned x = 0; x < gridDim.x; ++x) {
                threadIdx = {thread, 0};
                blockIdx = {x, y};
                kernel(*static_cast<Given*>(given[I])...);
                __syncthreads();
            }
    };
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < blockDim.x; ++thread) threads.emplace_back(work, thread);
    for (auto& thread : threads) thread.join();
}

template <typename... Given>
static void start(void (*kernel)(Given...), void** given) {
    start(kernel, given, std::index_sequence_for<Given...>());
}
