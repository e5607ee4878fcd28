/* Does compute-sanitizer's initcheck see what bulk copies store? Three pieces of memory of the device: one
 * written by plain stores, one by cp.async.bulk from shared memory, one by nobody; each is then read by a
 * kernel named after it. A tool that sees all stores reports read_nothing alone. What is read is printed,
 * so that the bulk copies are known to have arrived.
 *
 *   nvcc -arch=sm_90a -o initcheck_bulk bench/initcheck_bulk.cu
 *   compute-sanitizer --tool initcheck ./initcheck_bulk */
#include <stdio.h>

enum { COUNT = 256 };

__global__ void store_plain(int *to)
{
    to[threadIdx.x] = (int)threadIdx.x;
}

__global__ void store_bulk(int *to)
{
    __shared__ __align__(16) int from[COUNT];
    from[threadIdx.x] = (int)threadIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x) return;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"((unsigned)__cvta_generic_to_shared(from)), "n"(sizeof from)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
}

__global__ void read_plain(const int *from, int *sum)
{
    atomicAdd(sum, from[threadIdx.x]);
}

__global__ void read_bulk(const int *from, int *sum)
{
    atomicAdd(sum, from[threadIdx.x]);
}

__global__ void read_nothing(const int *from, int *sum)
{
    atomicAdd(sum, from[threadIdx.x]);
}

int main(void)
{
    int *memory[3], *sums, found[3];
    for (int i = 0; i < 3; i++) cudaMalloc(&memory[i], COUNT * sizeof(int));
    cudaMalloc(&sums, sizeof found);
    cudaMemset(sums, 0, sizeof found);
    store_plain<<<1, COUNT>>>(memory[0]);
    store_bulk<<<1, COUNT>>>(memory[1]);
    read_plain<<<1, COUNT>>>(memory[0], sums);
    read_bulk<<<1, COUNT>>>(memory[1], sums + 1);
    read_nothing<<<1, COUNT>>>(memory[2], sums + 2);
    if (cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
    int right = COUNT * (COUNT - 1) / 2;
    printf("plain stores: %s, bulk copies: %s\n", found[0] == right ? "arrived" : "LOST",
           found[1] == right ? "arrived" : "LOST");
    return found[0] != right || found[1] != right;
}
