#include "driver/fake_cuda_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* An allocation takes whole ones of them, as on a device. */
static const size_t memory_unit = (size_t)2 << 20;
enum { ALIGNMENT = 256 };

cuda_result fake_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    CALL_IN(fake_current);
    *free_bytes = fake_cuda.params.memory - fake_current->bytes;
    *total_bytes = fake_cuda.params.memory;
    return CUDA_OK;
}

/* The region that holds [address, address + bytes); NULL: none does. */
static struct region *region_of(cuda_address address, size_t bytes)
{
    for (struct region *r = fake_cuda.regions; r; r = r->next) {
        cuda_address begin = (uintptr_t)r->data;
        if (address >= begin && address + bytes <= begin + r->mapped) return r;
    }
    return NULL;
}

int fake_protection(void)
{
    return fake_cuda.open ? PROT_READ | PROT_WRITE : PROT_NONE;
}

/* Memory that can be used until hide(); pinned memory always can, and has an address as well. */
static void *show(cuda_address address, size_t bytes)
{
    struct region *r = fake_cuda.open ? NULL : region_of(address, bytes);
    if (r) mprotect(r->data, r->mapped, PROT_READ | PROT_WRITE);
    return (void *)(uintptr_t)address;
}

static void hide(cuda_address address, size_t bytes)
{
    struct region *r = fake_cuda.open ? NULL : region_of(address, bytes);
    if (r) mprotect(r->data, r->mapped, PROT_NONE);
}

/* It ends, but for what alignment takes, where a page begins that nobody may read: who goes beyond
 * its end, also an emulated kernel, faults there. */
cuda_result fake_memory_alloc(cuda_address *address, size_t bytes)
{
    CALL_IN(fake_current);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t mapped = (room + page - 1) / page * page;
    size_t units = (bytes + memory_unit - 1) / memory_unit * memory_unit;
    if (bytes == 0 || units > fake_cuda.params.memory - fake_current->bytes) return CUDA_E_MEMORY;
    struct region *r = calloc(1, sizeof *r);
    if (!r) return CUDA_E_MEMORY;
    char *data = mmap(NULL, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        free(r);
        return CUDA_E_MEMORY;
    }
    mprotect(data, mapped, fake_protection());
    *address = (uintptr_t)data + mapped - room;
    *r = (struct region){data, *address, units, mapped, fake_current, fake_cuda.regions, 0};
    fake_cuda.regions = r;
    fake_cuda.live++;
    fake_current->bytes += units;
    return CUDA_OK;
}

cuda_result fake_memory_free(cuda_address address)
{
    LOCKED();
    bool failed = fake_fails(__func__);
    struct region **at = &fake_cuda.regions;
    while (*at && (*at)->address != address) at = &(*at)->next;
    struct region *r = *at;
    fake_cuda.misuses += !r;
    if (!r) return 1;
    fake_belongs(r->context);
    *at = r->next;
    fake_cuda.live--;
    r->context->bytes -= r->bytes;
    munmap(r->data, r->mapped + (size_t)sysconf(_SC_PAGESIZE));
    free(r);
    return failed ? fake_cuda.failure : CUDA_OK;
}

/* ---- memory that several devices reach ---- */

cuda_result fake_physical_create(unsigned long long *physical, size_t bytes,
                                 const struct cuda_physical *what, unsigned long long flags)
{
    CALL();
    struct context *c = &fake_cuda.contexts[what->place.device];
    if (flags || what->kind != CUDA_PHYSICAL_PINNED || what->place.kind != CUDA_PLACE_DEVICE ||
        bytes % memory_unit || !bytes)
        return CUDA_E_VALUE;
    if (bytes > fake_cuda.params.memory - c->bytes) return CUDA_E_MEMORY;
    struct object *o = fake_make(0, "physical memory");
    if (!o) return CUDA_E_MEMORY;
    o->bytes = bytes;
    o->context = c;
    c->bytes += bytes;
    *physical = (uintptr_t)o;
    return CUDA_OK;
}

cuda_result fake_physical_release(unsigned long long physical)
{
    LOCKED();
    const bool failed = fake_fails(__func__);
    struct object *o = (struct object *)(uintptr_t)physical;
    o->context->bytes -= o->bytes;
    fake_cuda.live--;
    free(o);
    return failed ? fake_cuda.failure : CUDA_OK;
}

cuda_result fake_address_reserve(cuda_address *address, size_t bytes, size_t alignment,
                                 cuda_address wanted, unsigned long long flags)
{
    CALL();
    if (alignment || wanted || flags || bytes % memory_unit || !bytes) return CUDA_E_VALUE;
    void *data = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return CUDA_E_MEMORY;
    fake_cuda.live++;
    *address = (uintptr_t)data;
    return CUDA_OK;
}

cuda_result fake_address_free(cuda_address address, size_t bytes)
{
    LOCKED();
    const bool failed = fake_fails(__func__);
    munmap((void *)(uintptr_t)address, bytes);
    fake_cuda.live--;
    return failed ? fake_cuda.failure : CUDA_OK;
}

cuda_result fake_physical_map(cuda_address address, size_t bytes, size_t from,
                              unsigned long long physical, unsigned long long flags)
{
    CALL();
    const struct object *o = (const struct object *)(uintptr_t)physical;
    if (from || flags || o->bytes != bytes) return CUDA_E_VALUE;
    struct region *r = calloc(1, sizeof *r);
    if (!r) return CUDA_E_MEMORY;
    *r = (struct region){.bytes = bytes, .mapped = bytes, .context = o->context};
    r->data = (char *)(uintptr_t)address;
    r->address = address;
    r->physical = physical;
    r->next = fake_cuda.regions;
    fake_cuda.regions = r;
    fake_cuda.live++;
    return CUDA_OK;
}

cuda_result fake_physical_unmap(cuda_address address, size_t bytes)
{
    LOCKED();
    const bool failed = fake_fails(__func__);
    struct region **at = &fake_cuda.regions;
    while (*at && (*at)->address != address) at = &(*at)->next;
    struct region *r = *at;
    fake_cuda.misuses += !r || r->bytes != bytes || !r->physical;
    if (!r) return CUDA_E_VALUE;
    *at = r->next;
    fake_cuda.live--;
    free(r);
    return failed ? fake_cuda.failure : CUDA_OK;
}

cuda_result fake_access_set(cuda_address address, size_t bytes, const struct cuda_access *who,
                            size_t count)
{
    CALL();
    const struct region *r = region_of(address, bytes);
    if (!r) return CUDA_E_VALUE;
    for (size_t i = 0; i < count; i++) {
        const bool own = &fake_cuda.contexts[who[i].place.device] == r->context;
        if (who[i].flags != CUDA_ACCESS_READ_WRITE || (fake_cuda.params.apart && !own))
            return CUDA_E_VALUE;
    }
    /* Devices share the host's page tables: those that are running may have it at once. */
    mprotect(r->data, r->mapped, fake_protection());
    return CUDA_OK;
}

cuda_result fake_host_alloc(void **address, size_t bytes, unsigned flags)
{
    CALL_IN(fake_current);
    (void)flags;
    struct object *o = bytes ? fake_make(bytes, "pinned memory") : NULL;
    if (!o) return CUDA_E_MEMORY;
    *address = o + 1;
    return CUDA_OK;
}

cuda_result fake_host_free(void *address)
{
    return fake_unmake(__func__, (struct object *)address - 1);
}

cuda_result fake_copy_in(cuda_address to, const void *from, size_t bytes, cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    memcpy(show(to, bytes), from, bytes);
    hide(to, bytes);
    fake_cuda.copied += bytes;
    return CUDA_OK;
}

cuda_result fake_copy_out(void *to, cuda_address from, size_t bytes, cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    memcpy(to, show(from, bytes), bytes);
    hide(from, bytes);
    fake_cuda.copied += bytes;
    return CUDA_OK;
}

cuda_result fake_copy_on(cuda_address to, cuda_address from, size_t bytes, cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    memmove(show(to, bytes), show(from, bytes), bytes);
    hide(to, bytes);
    hide(from, bytes);
    return CUDA_OK;
}

cuda_result fake_copy_box(const struct cuda_copy_box *copy, cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    const struct cuda_box_end *from = &copy->from, *to = &copy->to;
    if (from->kind != CUDA_MEMORY_DEVICE || to->kind != CUDA_MEMORY_DEVICE ||
        from->pitch < copy->width || to->pitch < copy->width ||
        (copy->depth > 1 && (from->height < copy->height || to->height < copy->height)))
        return CUDA_E_VALUE;
    for (size_t i = 0; i < copy->height * copy->depth; i++) {
        const size_t y = i % copy->height, z = i / copy->height;
        cuda_address a = from->device + (z * from->height + y) * from->pitch,
                     b = to->device + (z * to->height + y) * to->pitch;
        memmove(show(b, copy->width), show(a, copy->width), copy->width);
        hide(b, copy->width);
        hide(a, copy->width);
    }
    return CUDA_OK;
}

cuda_result fake_fill_bytes(cuda_address to, unsigned char value, size_t count, cuda_stream stream)
{
    CALL_IN(fake_of_stream(stream));
    memset(show(to, count), value, count);
    hide(to, count);
    return CUDA_OK;
}
