/* Streams of events from a server, which may send anything: however the bytes are cut, the same
 * events come out, and what they say is read or refused. */
#include <string.h>

#include "bench/serve_chunk.h"
#include "bench/serve_sse.h"
#include "support/fuzz.h"

struct events {
    uint64_t hash; /* of all */
    size_t count, bytes, most;
};

static bool hear(void *arg, const char *data, size_t length)
{
    struct events *e = arg;
    struct serve_chunk chunk;
    FUZZ_REQUIRE(length <= SSE_EVENT_MAX);
    for (size_t i = 0; i < length; i++) e->hash = (e->hash ^ (uint8_t)data[i]) * 0x100000001b3u;
    e->hash = (e->hash ^ 256) * 0x100000001b3u;
    e->count++;
    e->bytes += length;
    if (serve_chunk_read(data, length, &chunk)) {
        FUZZ_REQUIRE(chunk.output_tokens >= -1 && chunk.prompt_tokens >= -1);
        FUZZ_REQUIRE(memchr(chunk.error, '\0', sizeof chunk.error));
        FUZZ_REQUIRE(!chunk.done || (!chunk.text && !chunk.failed));
    }
    return e->count != e->most;
}

/* The first byte says how the rest is cut. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sse_reader reader = {.seen = 0};
    struct events whole = {.hash = 1}, pieces = {.hash = 1}, few = {.hash = 1, .most = 2};
    char text[CHUNK_ERROR];
    if (size == 0) return 0;
    const size_t step = data[0] % 17 + 1u;
    const char *stream = (const char *)data + 1;
    size--;
    const enum sse_result result = sse_read(&reader, stream, size, hear, &whole);
    FUZZ_REQUIRE(result == SSE_FINE || result == SSE_TOO_LONG);
    FUZZ_REQUIRE(whole.bytes <= size);
    sse_restart(&reader);
    enum sse_result cut = SSE_FINE;
    for (size_t at = 0; at < size && cut == SSE_FINE; at += step)
        cut = sse_read(&reader, stream + at, size - at < step ? size - at : step, hear, &pieces);
    FUZZ_REQUIRE(cut == result && whole.hash == pieces.hash && whole.count == pieces.count);
    sse_restart(&reader);
    const enum sse_result stopped = sse_read(&reader, stream, size, hear, &few);
    FUZZ_REQUIRE(whole.count < 2 || stopped == SSE_STOPPED);
    FUZZ_REQUIRE(strlen(serve_error_text(stream, size, text)) < CHUNK_ERROR);
    sse_free(&reader);
    return 0;
}
