/* An NVRTC that finds everything right and makes a byte of it: where sol was built without nvcc, it
 * would have its kernels compiled before they are launched, which the emulation does not need. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvrtcCreateProgram(void **out, const char *text, const char *name, int n_headers,
                              const char *const *headers, const char *const *names)
{
    static char program;
    (void)text, (void)name, (void)n_headers, (void)headers, (void)names;
    *out = &program;
    return 0;
}

EXPORT int nvrtcDestroyProgram(void **program)
{
    *program = NULL;
    return 0;
}

EXPORT int nvrtcCompileProgram(void *program, int n_options, const char *const *options)
{
    (void)program, (void)n_options, (void)options;
    return 0;
}

EXPORT int nvrtcGetCUBINSize(void *program, size_t *size)
{
    (void)program;
    *size = 1;
    return 0;
}

EXPORT int nvrtcGetCUBIN(void *program, char *to)
{
    (void)program;
    *to = 0;
    return 0;
}

EXPORT int nvrtcGetProgramLogSize(void *program, size_t *size)
{
    return nvrtcGetCUBINSize(program, size);
}

EXPORT int nvrtcGetProgramLog(void *program, char *to)
{
    return nvrtcGetCUBIN(program, to);
}

EXPORT const char *nvrtcGetErrorString(int result)
{
    return result ? "error" : "success";
}
