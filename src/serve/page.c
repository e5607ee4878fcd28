#include "serve/page.h"

#include <assert.h>
#include <nettle/base64.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

extern const char sol_page[]; /* page_text.S */

enum { DIGEST_TEXT = BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE) + 1 };

static void digest_text(const char *data, size_t length, char out[DIGEST_TEXT])
{
    struct sha256_ctx sum;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&sum);
    sha256_update(&sum, length, (const uint8_t *)data);
    sha256_digest(&sum, sizeof digest, digest);
    base64_encode_raw(out, sizeof digest, digest);
    out[DIGEST_TEXT - 1] = 0;
}

/* Of what is between two tags, as a browser takes it. */
static void digest_between(const char *open, const char *close, char out[DIGEST_TEXT])
{
    const char *begin = strstr(sol_page, open);
    assert(begin);
    begin += strlen(open);
    const char *end = strstr(begin, close);
    assert(end);
    digest_text(begin, (size_t)(end - begin), out);
}

static struct page page;

/* The hashes are made of the page that is sent, so they cannot disagree with it. */
static void make_page(void)
{
    char style[DIGEST_TEXT], script[DIGEST_TEXT], whole[DIGEST_TEXT];
    page.html = sol_page;
    page.length = strlen(sol_page);
    digest_between("<style>", "</style>", style);
    digest_between("<script>", "</script>", script);
    digest_text(page.html, page.length, whole);
    snprintf(page.etag, sizeof page.etag, "\"%s\"", whole);
    snprintf(
        page.policy, sizeof page.policy,
        "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
        script, style);
}

const struct page *page_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_page);
    return &page;
}
