#include "generate/recommended.h"

#include <math.h>

#include "base/log.h"
#include "base/status.h"
#include "model/files.h"
#include "model/source.h"

static bool get_real(const struct gguf *file, const char *key, double most, double *out)
{
    double value;
    bool found = false;
    enum sol_status status = gguf_get_f64(file, key, &value, &found);
    if (status == SOL_OK && !found) return false;
    if (status == SOL_OK && value >= 0 && value <= most) {
        *out = round(value * 1e6) / 1e6; /* 0.95 as it was meant, not as a float32 has it */
        return true;
    }
    LOG_WARN("%s: '%s' is passed over: expected a number from 0 to %g", gguf_name(file), key, most);
    return false;
}

/* -1 means all of them, as 0 does. */
static bool get_top_k(const struct gguf *file, int64_t *out)
{
    uint64_t value;
    bool found = false;
    if (gguf_get_u64(file, "general.sampling.top_k", &value, &found) != SOL_OK) return false;
    if (!found || value > INT32_MAX) return false;
    *out = (int64_t)value;
    return true;
}

bool file_recommends(const struct gguf *file, struct sampler_params *params)
{
    bool any = false;
    any |= get_real(file, "general.sampling.temp", 1000, &params->temperature);
    any |= get_real(file, "general.sampling.top_p", 1, &params->top_p);
    any |= get_real(file, "general.sampling.min_p", 1, &params->min_p);
    any |= get_top_k(file, &params->top_k);
    if (params->top_p <= 0) params->top_p = 1; /* no sampler takes 0 */
    return any;
}

bool model_recommends(const struct model *model, struct sampler_params *params)
{
    bool mapped;
    const struct model_files *files = model_files_of(model, &mapped);
    return files && files->gguf && file_recommends(files->gguf, params);
}
