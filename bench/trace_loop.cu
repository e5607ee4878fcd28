// A launch-bound decode loop: steps of many tiny kernels, as they are or as one CUDA graph. What the
// tracer costs shows here at its largest.
//
// usage: trace_loop stream|graph SECONDS [ACTION]       (TRACE_LOOP_CYCLES: how long a kernel spins)
// Prints the median time of a step in ns, then how many kernels were launched. ACTION as the last thing:
// _exit, exec (runs itself for a fifth of a second), fork (a child that exits with 3), segv, kill.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

enum { KERNELS = 200, FLOATS = 4096 };

// For kernels as long as those of a real step: 0 is the shortest, about 1 us on an H100.
__device__ void spin(long long cycles)
{
    for (long long start = clock64(); clock64() - start < cycles;) {
    }
}

__global__ void tiny_add(float *x, float value, long long cycles)
{
    spin(cycles);
    x[blockIdx.x * blockDim.x + threadIdx.x] += value;
}

__global__ void tiny_scale(float *x, float value, long long cycles)
{
    spin(cycles);
    x[blockIdx.x * blockDim.x + threadIdx.x] *= value;
}

static void check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    exit(1);
}

static void launch_all(float *x, cudaStream_t stream)
{
    const char *text = getenv("TRACE_LOOP_CYCLES");
    static const long long cycles = text ? atoll(text) : 0;
    for (int i = 0; i < KERNELS; i += 2) {
        tiny_add<<<FLOATS / 128, 128, 0, stream>>>(x, 1.0f, cycles);
        tiny_scale<<<FLOATS / 128, 128, 0, stream>>>(x, 0.5f, cycles);
    }
}

static double seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void act(const char *action, char **argv)
{
    if (!strcmp(action, "_exit")) _exit(7);
    if (!strcmp(action, "segv")) raise(SIGSEGV);
    if (!strcmp(action, "kill")) raise(SIGKILL);
    if (!strcmp(action, "exec")) execl("/proc/self/exe", argv[0], argv[1], "0.2", (char *)NULL);
    if (!strcmp(action, "fork")) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) exit(3);
        waitpid(child, &status, 0);
        printf("child %d\n", WEXITSTATUS(status));
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    bool graph = !strcmp(argv[1], "graph");
    double until = atof(argv[2]);
    float *x, host = 0;
    cudaStream_t stream;
    cudaGraph_t captured;
    cudaGraphExec_t exec = NULL;
    check(cudaStreamCreate(&stream), "stream");
    check(cudaMalloc(&x, FLOATS * sizeof *x), "memory");
    check(cudaMemset(x, 0, FLOATS * sizeof *x), "memset");
    if (graph) {
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
        launch_all(x, stream);
        check(cudaStreamEndCapture(stream, &captured), "capture");
        check(cudaGraphInstantiate(&exec, captured, 0), "graph");
    }
    std::vector<double> times;
    long steps = 0;
    double start = seconds(), before = start, now = start;
    while (now - start < until) {
        if (graph)
            check(cudaGraphLaunch(exec, stream), "launch");
        else
            launch_all(x, stream);
        check(cudaMemcpyAsync(&host, x, sizeof host, cudaMemcpyDeviceToHost, stream), "copy");
        check(cudaStreamSynchronize(stream), "step");
        now = seconds();
        if (steps++ >= 20) times.push_back(now - before);
        before = now;
    }
    std::sort(times.begin(), times.end());
    printf("%.0f ns per step, %ld kernels\n", times.empty() ? 0 : 1e9 * times[times.size() / 2],
           steps * KERNELS);
    fflush(stdout);
    if (argc > 3) act(argv[3], argv);
    return argc > 3 ? 7 : 0;
}
