// Does racecheck of compute-sanitizer follow cp.async.mbarrier.arrive.noinc? One warp copies to shared memory and
// arrives so at a barrier, another waits for the barrier and reads. There is no race; what the tool says of it tells
// what to make of the same report about kernels/grouped_gemm/grouped_wgmma.cuh.
//   nvcc -arch=sm_90a -o racecheck_arrive bench/racecheck_arrive.cu && compute-sanitizer --tool racecheck ./racecheck_arrive
#include <cstdio>

__global__ void copy_and_read(const int4 *from, int *to)
{
    __shared__ int4 words[32];
    __shared__ unsigned long long barrier;
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(at) : "memory");
    __syncthreads();
    if (threadIdx.x < 32) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(words + lane)),
                     "l"(from + lane)
                     : "memory");
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        return;
    }
    unsigned done;
    do {
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(at)
                     : "memory");
    } while (!done);
    to[lane] = words[lane ^ 1].x;
}

int main()
{
    int4 *from;
    int *to, host[32];
    cudaMalloc(&from, 512);
    cudaMalloc(&to, 128);
    cudaMemset(from, 1, 512);
    copy_and_read<<<1, 64>>>(from, to);
    cudaMemcpy(host, to, 128, cudaMemcpyDeviceToHost);
    printf("%s, %08x\n", cudaGetErrorString(cudaGetLastError()), host[0]);
    return host[0] != 0x01010101;
}
