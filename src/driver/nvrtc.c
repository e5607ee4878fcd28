#include "driver/nvrtc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/library.h"

typedef struct _nvrtcProgram *program;

struct nvrtc_api {
    int (*create)(program *out, const char *text, const char *name, int n_headers,
                  const char *const *headers, const char *const *names);
    int (*destroy)(program *p);
    int (*compile)(program p, int n_options, const char *const *options);
    int (*cubin_size)(program p, size_t *size);
    int (*cubin)(program p, char *to);
    int (*log_size)(program p, size_t *size);
    int (*log)(program p, char *to);
    const char *(*error_string)(int result);
};

static const struct library_symbol symbols[] = {
    {"nvrtcCreateProgram", offsetof(struct nvrtc_api, create), false},
    {"nvrtcDestroyProgram", offsetof(struct nvrtc_api, destroy), false},
    {"nvrtcCompileProgram", offsetof(struct nvrtc_api, compile), false},
    {"nvrtcGetCUBINSize", offsetof(struct nvrtc_api, cubin_size), false},
    {"nvrtcGetCUBIN", offsetof(struct nvrtc_api, cubin), false},
    {"nvrtcGetProgramLogSize", offsetof(struct nvrtc_api, log_size), false},
    {"nvrtcGetProgramLog", offsetof(struct nvrtc_api, log), false},
    {"nvrtcGetErrorString", offsetof(struct nvrtc_api, error_string), false},
};
static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                    "/usr/local/cuda/lib64/libnvrtc.so", NULL};
static const struct library_spec spec = {"CUDA's run-time compiler (NVRTC)", names, symbols,
                                         sizeof symbols / sizeof *symbols};

static struct nvrtc_api api;
static bool usable;
static char reason[LIBRARY_REASON_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    usable = library_load(&spec, &api, reason);
}

/* What the compiler said becomes the message, cut to what a message holds. */
static enum sol_status compile_failed(program p, const char *name, int result)
{
    size_t size = 0;
    char *text = api.log_size(p, &size) == 0 && size ? malloc(size) : NULL;
    if (text && api.log(p, text) != 0) text[0] = '\0';
    enum sol_status status = status_set(SOL_E_FORMAT, "%s does not compile (%s): %s", name,
                                        api.error_string(result), text ? text : "");
    free(text);
    return status;
}

static enum sol_status take_cubin(program p, const char *name, void **cubin, size_t *size)
{
    int result = api.cubin_size(p, size);
    *cubin = result == 0 ? malloc(*size) : NULL;
    if (*cubin && (result = api.cubin(p, *cubin)) == 0) return SOL_OK;
    free(*cubin);
    *cubin = NULL;
    if (result == 0) return status_set(SOL_E_MEMORY, "no memory for the machine code of %s", name);
    return status_set(SOL_E_INTERNAL, "%s: no machine code (%s)", name, api.error_string(result));
}

static bool quick;

void nvrtc_be_quick(bool on)
{
    quick = on;
}

enum sol_status nvrtc_compile(const char *name, const char *text, const char *arch,
                              const struct nvrtc_header *headers, int n_headers, void **cubin,
                              size_t *size)
{
    enum { HEADERS_MAX = 192, INVALID_OPTION = 5 };
    const char *texts[HEADERS_MAX], *header_names[HEADERS_MAX];
    char target[64];
    program p;
    *cubin = NULL;
    *size = 0;
    pthread_once(&once, load);
    if (!usable) return status_set(SOL_E_UNSUPPORTED, "%s", reason);
    if (n_headers > HEADERS_MAX) return status_set(SOL_E_INTERNAL, "%d headers", n_headers);
    for (int i = 0; i < n_headers; i++) {
        texts[i] = headers[i].text;
        header_names[i] = headers[i].name;
    }
    snprintf(target, sizeof target, "--gpu-architecture=sm_%s", arch);
    const char *const options[] = {target, "--std=c++17", "--Ofast-compile=max"};
    int n_options = sizeof options / sizeof *options;
    int result = api.create(&p, text, name, n_headers, texts, header_names);
    if (result != 0) return status_set(SOL_E_INTERNAL, "%s: %s", name, api.error_string(result));
    result = api.compile(p, n_options - !quick, options);
    if (result == INVALID_OPTION && quick) /* before CUDA 12.8 */
        result = api.compile(p, n_options - 1, options);
    enum sol_status status =
        result == 0 ? take_cubin(p, name, cubin, size) : compile_failed(p, name, result);
    api.destroy(&p);
    return status;
}
