/* Where machine code comes from, in this order: an edited source, the embedded image, the embedded
 * source. A kernel is found once and kept until the GPU is closed. What loads and looks up has the
 * GPU's lock and its context. */
#include "gpu/kernel.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes_hash.h"
#include "base/memory.h"
#include "driver/nvrtc.h"
#include "gpu/gpu_private.h"

enum { HEADERS_MAX = 192, PATH_SIZE = 4096 };

/* ---- sources ---- */

enum sol_status gpu_use_sources(struct gpu *gpu, const char *folder)
{
    if (access(folder, R_OK | X_OK) != 0)
        return status_set(SOL_E_IO, "cannot read the folder '%s': %s", folder, strerror(errno));
    char *copy = strdup(folder);
    if (!copy) return status_set(SOL_E_MEMORY, "no memory for a path");
    free(gpu->sources);
    gpu->sources = copy;
    return SOL_OK;
}

/* `embedded`, or the text of the edited file, malloc'ed into *edited. */
static enum sol_status source_text(const struct gpu *gpu, const char *name, const char *embedded,
                                   const char **text, char **edited)
{
    char path[PATH_SIZE];
    struct mapped_file file;
    *text = embedded;
    *edited = NULL;
    if (!gpu->sources) return SOL_OK;
    if (snprintf(path, sizeof path, "%s/%s", gpu->sources, name) >= PATH_SIZE)
        return status_set(SOL_E_ARGUMENT, "the path '%s' is too long", gpu->sources);
    if (access(path, F_OK) != 0) return SOL_OK;
    SOL_TRY(mapped_file_open(path, &file));
    *edited = calloc(1, file.size + 1);
    if (*edited && file.size) memcpy(*edited, file.data, file.size);
    mapped_file_close(&file);
    *text = *edited;
    return *edited ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for '%s'", path);
}

/* An image and the headers that it includes, directly or through others. No other is hashed, and no
 * other is given to the compiler. */
struct sources {
    const char *text;
    char *edited; /* the text, when it came from a file */
    struct nvrtc_header headers[HEADERS_MAX];
    int n_headers;
    /* in the order of gpu_headers */
    bool included[HEADERS_MAX];
    char *edited_headers[HEADERS_MAX]; /* the text, when it came from a file */
    uint64_t hash;
};

static void sources_free(struct sources *s)
{
    free(s->edited);
    for (int i = 0; i < HEADERS_MAX; i++) free(s->edited_headers[i]);
}

static void add_hash(struct sources *s, const char *text)
{
    s->hash = bytes_hash_mix(s->hash ^ bytes_hash(text, strlen(text)));
}

static void mark_all(bool included[HEADERS_MAX])
{
    for (int i = 0; gpu_headers[i].name; i++) included[i] = true;
}

/* What follows "#include": "name" or <name>. A name that is none of ours is the compiler's own in
 * <>; else it is unknown what is meant (a macro, a path), and it may be any. */
static void mark_include(const char *what, bool included[HEADERS_MAX])
{
    const char *name = what + 1;
    if (*what != '"' && *what != '<') {
        mark_all(included);
        return;
    }
    size_t length = strcspn(name, "\">\n");
    int i = 0;
    while (gpu_headers[i].name && (strlen(gpu_headers[i].name) != length ||
                                   memcmp(gpu_headers[i].name, name, length) != 0))
        i++;
    if (gpu_headers[i].name)
        included[i] = true;
    else if (*what == '"')
        mark_all(included);
}

/* Those in comments and in branches that are left out count as well: a hash may change without
 * need, but has to change where the code does. */
static void mark_includes(const char *text, bool included[HEADERS_MAX])
{
    static const char blanks[] = " \t", word[] = "include";
    for (const char *at = strchr(text, '#'); at; at = strchr(at, '#')) {
        at += 1 + strspn(at + 1, blanks);
        if (strncmp(at, word, strlen(word)) != 0) continue;
        at += strlen(word) + strspn(at + strlen(word), blanks);
        mark_include(at, included);
    }
}

/* The included headers, until none of them includes a further one. */
static enum sol_status read_headers(const struct gpu *gpu, struct sources *s)
{
    const char *texts[HEADERS_MAX] = {NULL};
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; gpu_headers[i].name; i++) {
            const struct gpu_source_header *h = &gpu_headers[i];
            if (!s->included[i] || texts[i]) continue;
            SOL_TRY(source_text(gpu, h->name, h->text, &texts[i], &s->edited_headers[i]));
            mark_includes(texts[i], s->included);
            more = true;
        }
    }
    for (int i = 0; gpu_headers[i].name; i++)
        if (texts[i])
            s->headers[s->n_headers++] = (struct nvrtc_header){gpu_headers[i].name, texts[i]};
    return SOL_OK;
}

/* Also after an error to be given to sources_free. */
static enum sol_status sources_read(const struct gpu *gpu, const struct gpu_image *image,
                                    struct sources *s)
{
    *s = (struct sources){0};
    for (int i = 0; gpu_headers[i].name; i++)
        if (i == HEADERS_MAX) return status_set(SOL_E_INTERNAL, "more than %d headers", i);
    char *edited;
    SOL_TRY(source_text(gpu, image->name, image->source, &s->text, &edited));
    mark_includes(s->text, s->included);
    enum sol_status status = read_headers(gpu, s);
    s->edited = edited;
    if (status != SOL_OK) return status;
    add_hash(s, s->text);
    for (int i = 0; i < s->n_headers; i++) add_hash(s, s->headers[i].text);
    return SOL_OK;
}

static bool is_edited(const struct sources *s)
{
    bool edited = s->edited != NULL;
    for (int i = 0; i < HEADERS_MAX; i++) edited |= s->edited_headers[i] != NULL;
    return edited;
}

enum sol_status gpu_sources_hash(const struct gpu *gpu, const char *folder, char out[17])
{
    struct sources sources;
    uint64_t hash = 0;
    enum sol_status status = SOL_OK;
    for (const struct gpu_image *i = gpu_images; i->name && status == SOL_OK; i++) {
        if (strncmp(i->name, folder, strlen(folder)) != 0) continue;
        status = sources_read(gpu, i, &sources);
        hash = bytes_hash_mix(hash ^ sources.hash);
        sources_free(&sources);
    }
    snprintf(out, 17, "%016llx", (unsigned long long)hash);
    return status;
}

/* ---- modules ---- */

void gpu_architecture(const struct gpu_info *info, char out[16])
{
    snprintf(out, 16, "%d%s", 10 * info->major + info->minor, info->major >= 9 ? "a" : "");
}

static bool has_no_code(cuda_result result)
{
    return result == CUDA_E_NO_BINARY || result == CUDA_E_BAD_IMAGE || result == CUDA_E_BAD_PTX ||
           result == CUDA_E_PTX_TOO_NEW;
}

static enum sol_status load_compiled(struct gpu *gpu, const struct sources *s, struct gpu_module *m)
{
    char arch[16];
    void *cubin;
    size_t size;
    gpu_architecture(&gpu->info, arch);
    SOL_TRY(nvrtc_compile(m->image->name, s->text, arch, s->headers, s->n_headers, &cubin, &size));
    cuda_result result = gpu->cuda->module_load(&m->handle, cubin);
    free(cubin);
    m->compiled_here = true;
    if (!has_no_code(result)) return cuda_status(gpu->cuda, result, m->image->name);
    return status_set(SOL_E_UNSUPPORTED,
                      "the driver (CUDA %d.%d) does not take what NVRTC makes of %s: update the "
                      "driver, or use an NVRTC of its version",
                      gpu->info.driver_version / 1000, gpu->info.driver_version % 1000 / 10,
                      m->image->name);
}

static enum sol_status load_module(struct gpu *gpu, const struct sources *s, bool compile,
                                   struct gpu_module *m)
{
    if (m->image->fatbin && !compile && !is_edited(s)) {
        cuda_result result = gpu->cuda->module_load(&m->handle, m->image->fatbin);
        if (!has_no_code(result)) return cuda_status(gpu->cuda, result, m->image->name);
    }
    enum sol_status status = load_compiled(gpu, s, m);
    if (status != SOL_E_UNSUPPORTED) return status;
    return status_prefix(status,
                         "no machine code of %s for %s (sm_%d%d), and it cannot be compiled",
                         m->image->name, gpu->info.name, gpu->info.major, gpu->info.minor);
}

static const struct gpu_image *find_image(const char *name)
{
    for (const struct gpu_image *i = gpu_images; i->name; i++)
        if (strcmp(i->name, name) == 0) return i;
    return NULL;
}

/* `compile`: not what nvcc made of it. */
static enum sol_status module_for(struct gpu *gpu, const char *name, bool compile,
                                  const struct gpu_module **out)
{
    struct sources sources;
    for (const struct gpu_module *m = gpu->modules; m; m = m->next)
        if (strcmp(m->image->name, name) == 0 && (m->compiled_here || !compile)) {
            *out = m;
            return SOL_OK;
        }
    const struct gpu_image *image = find_image(name);
    if (!image) return status_set(SOL_E_INTERNAL, "there is no kernel file %s", name);
    struct gpu_module *m = calloc(1, sizeof *m);
    if (!m) return status_set(SOL_E_MEMORY, "no memory for a kernel's tables");
    m->image = image;
    enum sol_status status = sources_read(gpu, image, &sources);
    snprintf(m->source_hash, sizeof m->source_hash, "%016llx", (unsigned long long)sources.hash);
    if (status == SOL_OK) status = load_module(gpu, &sources, compile, m);
    sources_free(&sources);
    if (status != SOL_OK) {
        free(m);
        return status;
    }
    m->next = gpu->modules;
    gpu->modules = m;
    *out = m;
    return SOL_OK;
}

void gpu_modules_unload(struct gpu *gpu)
{
    while (gpu->kernels) {
        struct gpu_kernel *next = gpu->kernels->next;
        free(gpu->kernels);
        gpu->kernels = next;
    }
    while (gpu->modules) {
        struct gpu_module *next = gpu->modules->next;
        gpu->cuda->module_unload(gpu->modules->handle);
        free(gpu->modules);
        gpu->modules = next;
    }
}

/* ---- kernels ---- */

enum { KNOWS_SHARED_WISH = 12080 }; /* drivers of CUDA 12.8 and later */

static enum sol_status read_attributes(struct gpu_kernel *k)
{
    const struct {
        int *value, which;
    } list[] = {
        {&k->info.threads_max, CUDA_FUNCTION_THREADS_MAX},
        {&k->info.shared_static, CUDA_FUNCTION_SHARED_STATIC},
        {&k->info.local, CUDA_FUNCTION_LOCAL},
        {&k->info.registers, CUDA_FUNCTION_REGISTERS},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        GPU_TRY(k->gpu, function_attribute(list[i].value, list[i].which, k->handle), k->name);
    /* Dynamic shared memory beyond 48 KiB must be asked for; what static leaves is allowed at once.
     */
    int most = k->gpu->info.shared_per_block - k->info.shared_static;
    GPU_TRY(k->gpu, function_set(k->handle, CUDA_FUNCTION_SHARED_DYNAMIC_MAX, most), k->name);
    return SOL_OK;
}

/* Where nvcc compiled for other architectures, the driver takes the PTX that every card can run. It
 * lacks kernels that are made for some architectures only: the source has them for this one. */
static enum sol_status find_function(struct gpu *gpu, const char *image, const char *function,
                                     const struct gpu_module **module, cuda_function *handle)
{
    SOL_TRY(module_for(gpu, image, false, module));
    cuda_result result = gpu->cuda->module_function(handle, (*module)->handle, function);
    if (result == CUDA_E_NOT_FOUND && !(*module)->compiled_here) {
        SOL_TRY(module_for(gpu, image, true, module));
        result = gpu->cuda->module_function(handle, (*module)->handle, function);
    }
    return cuda_status(gpu->cuda, result, function);
}

static enum sol_status find(struct gpu *gpu, const char *image, const char *function,
                            const struct gpu_kernel **out)
{
    const struct gpu_module *module;
    cuda_function handle;
    for (const struct gpu_kernel *k = gpu->kernels; k; k = k->next)
        if (strcmp(k->name, function) == 0 && strcmp(k->module->image->name, image) == 0) {
            *out = k;
            return SOL_OK;
        }
    SOL_TRY(find_function(gpu, image, function, &module, &handle));
    struct gpu_kernel *k = calloc(1, sizeof *k);
    if (!k) return status_set(SOL_E_MEMORY, "no memory for a kernel's tables");
    *k = (struct gpu_kernel){.gpu = gpu, .module = module, .handle = handle, .name = function};
    k->info.compiled_here = module->compiled_here;
    memcpy(k->info.source_hash, module->source_hash, sizeof k->info.source_hash);
    enum sol_status status = read_attributes(k);
    if (status != SOL_OK) {
        free(k);
        return status;
    }
    k->next = gpu->kernels;
    gpu->kernels = k;
    *out = k;
    return SOL_OK;
}

enum sol_status gpu_kernel_find(struct gpu *gpu, const char *image, const char *function,
                                const struct gpu_kernel **out)
{
    *out = NULL;
    SOL_TRY(cuda_status(gpu->cuda, gpu_enter(gpu), function));
    pthread_mutex_lock(&gpu->lock);
    enum sol_status status = find(gpu, image, function, out);
    pthread_mutex_unlock(&gpu->lock);
    return status;
}

const struct gpu_kernel_info *gpu_kernel_info(const struct gpu_kernel *kernel)
{
    return &kernel->info;
}

enum sol_status gpu_kernel_occupancy(const struct gpu_kernel *k, int threads, size_t shared_bytes,
                                     int *blocks)
{
    GPU_TRY(k->gpu, occupancy(blocks, k->handle, threads, shared_bytes), k->name);
    return SOL_OK;
}

static enum sol_status find_and_launch(struct gpu_stream *stream, const char *image,
                                       const char *function, const struct gpu_launch *launch,
                                       const void *args)
{
    const struct gpu_kernel *kernel;
    SOL_TRY(gpu_kernel_find(stream->gpu, image, function, &kernel));
    if (stream->rehearsing) return SOL_OK;
    return gpu_launch(stream, kernel, launch, args);
}

void gpu_put(struct gpu_stream *stream, const char *image, const char *function,
             const struct gpu_launch *launch, const void *args)
{
    if (stream->put_status == SOL_OK)
        gpu_keep(stream, find_and_launch(stream, image, function, launch, args));
}

/* How many blocks an SM has room for, whatever they share. */
static int blocks_beside(const struct gpu_kernel *k, int threads)
{
    enum { THREADS = 2048, BLOCKS = 32, REGISTERS = 65536, ROUNDED = 8 };
    int each = (k->info.registers + ROUNDED - 1) / ROUNDED * ROUNDED * threads;
    int most = THREADS / threads < BLOCKS ? THREADS / threads : BLOCKS;
    return each && REGISTERS / each < most ? REGISTERS / each : most;
}

/* An SM divides its memory between shared and first cache, and must have ended all of its blocks to
 * divide it anew. Left to the driver each kernel has a division of its own, and where one took much
 * the next ones, which start early, run with little cache. So all that can have the same, 100 KiB,
 * and others the least that holds their blocks. Percent of all; 0: what the driver likes, also
 * where an SM has less than 200 KiB. */
static int shared_wish(const struct gpu_kernel *k, const struct gpu_launch *launch)
{
    enum { KIB = 1024, RESERVED = KIB /* of a block */ };
    static const int sizes[] = {100 * KIB, 132 * KIB, 164 * KIB};
    const int all = k->gpu->info.shared_per_sm;
    if (all < 2 * sizes[0] || k->gpu->info.driver_version < KNOWS_SHARED_WISH) return 0;
    int threads = 1;
    for (int i = 0; i < 3; i++) threads *= launch->block[i] ? (int)launch->block[i] : 1;
    int need = k->info.shared_static + (int)launch->shared_bytes + RESERVED;
    need *= blocks_beside(k, threads);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (need <= sizes[i]) return (int)((int64_t)sizes[i] * 100 / all);
    return 0;
}

static void fill(unsigned to[3], const unsigned from[3])
{
    for (int i = 0; i < 3; i++) to[i] = from[i] ? from[i] : 1;
}

enum sol_status gpu_launch(struct gpu_stream *stream, const struct gpu_kernel *k,
                           const struct gpu_launch *launch, const void *args)
{
    struct cuda_launch_attribute attributes[4];
    struct cuda_launch config = {
        .shared_bytes = launch->shared_bytes, .stream = stream->handle, .attributes = attributes};
    assert(k->gpu == stream->gpu);
    fill(config.grid, launch->grid);
    fill(config.block, launch->block);
    if (launch->cluster)
        attributes[config.n_attributes++] = (struct cuda_launch_attribute){
            .id = CUDA_LAUNCH_CLUSTER, .value.cluster = {launch->cluster, 1, 1}};
    if (launch->overlaps && k->gpu->info.major >= 9)
        attributes[config.n_attributes++] =
            (struct cuda_launch_attribute){.id = CUDA_LAUNCH_PROGRAMMATIC, .value.flag = 1};
    if (launch->together)
        attributes[config.n_attributes++] =
            (struct cuda_launch_attribute){.id = CUDA_LAUNCH_COOPERATIVE, .value.flag = 1};
    const int shared = shared_wish(k, launch);
    if (shared)
        attributes[config.n_attributes++] =
            (struct cuda_launch_attribute){.id = CUDA_LAUNCH_SHARED, .value.flag = shared};
    void *parameters[] = {(void *)(uintptr_t)args};
    SOL_TRY(gpu_watch_before(stream));
    GPU_TRY(k->gpu, launch(&config, k->handle, parameters, NULL), k->name);
    stream->kernels += !stream->capturing;
    return gpu_watch_behind(stream, k->name);
}
