#include "cli/gate_options.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "format/output_file.h"

static enum sol_status add_all(const struct gate_options *o, struct manifest *m)
{
    if (o->learn && !o->manifest)
        return status_set(SOL_E_ARGUMENT, "--learn needs --manifest FILE to write to");
    if (o->learn) SOL_TRY(output_file_check(o->manifest, OUTPUT_STREAM));
    for (size_t i = 0; i < o->expect.count; i++) SOL_TRY(manifest_expect(m, o->expect.values[i]));
    for (size_t i = 0; i < o->forbid.count; i++) SOL_TRY(manifest_forbid(m, o->forbid.values[i]));
    for (size_t i = 0; i < o->max_share.count; i++)
        SOL_TRY(manifest_max_share(m, o->max_share.values[i]));
    return o->manifest && !o->learn ? manifest_read(m, o->manifest) : SOL_OK;
}

enum sol_status gate_options_create(const struct gate_options *options, struct manifest **out)
{
    SOL_TRY(manifest_create(out));
    enum sol_status status = add_all(options, *out);
    if (status == SOL_OK) return SOL_OK;
    manifest_destroy(*out);
    *out = NULL;
    return status;
}

static enum sol_status learn(const char *path, const struct gate_kernel *kernels, size_t n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) return status_set(SOL_E_MEMORY, "out of memory for a manifest");
    enum sol_status status = manifest_learn(kernels, n, to);
    if (fclose(to) != 0 && status == SOL_OK)
        status = status_set(SOL_E_MEMORY, "out of memory for a manifest");
    if (status == SOL_OK) status = output_file_text(path, text, size);
    if (status == SOL_OK) fprintf(stderr, "wrote %zu kernels to %s\n", n, path);
    free(text);
    return status;
}

enum sol_status gate_options_apply(const struct gate_options *options, struct manifest *manifest,
                                   const struct gate_kernel *kernels, size_t n,
                                   const struct rules_violation **violations, size_t *n_violations)
{
    *violations = NULL;
    *n_violations = 0;
    if (options->learn) SOL_TRY(learn(options->manifest, kernels, n));
    return manifest_check(manifest, kernels, n, violations, n_violations);
}

void gate_options_print(const struct rules_violation *violations, size_t n)
{
    for (size_t i = 0; i < n; i++) fprintf(stderr, "violated: %s\n", violations[i].text);
}
