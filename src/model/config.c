/* Finding the architecture of a file, and what the entries share. */
#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/architecture.h"

enum { CONFIG_MAX = 1 << 20, NAMES_MAX = 128 };

const struct architecture *const architectures[] = {
#define SOL_ARCHITECTURE(id) &architecture_##id,
#include "model/architectures.list"
#undef SOL_ARCHITECTURE
};
const int architecture_count = sizeof architectures / sizeof *architectures;

int64_t model_layers(const struct model_config *config)
{
    return config->all_layers ? config->all_layers : config->n_layers;
}

int64_t model_layer_window(const struct model_config *config, int64_t layer)
{
    return config->arch->window(config, config->first_layer + layer);
}

void model_rope_frequencies(const struct model_config *config, bool rounded, float *inv_freq,
                            float *factor)
{
    config->arch->frequencies(config, rounded, inv_freq, factor);
}

enum sol_status config_check_heads(const char *name, const struct model_config *c)
{
    if (c->head_dim % 2) {
        return status_set(SOL_E_UNSUPPORTED, "%s: odd head dimension %lld", name,
                          (long long)c->head_dim);
    }
    if (c->n_heads % c->n_kv_heads) {
        return status_set(SOL_E_FORMAT, "%s: %lld query heads are no multiple of %lld key heads",
                          name, (long long)c->n_heads, (long long)c->n_kv_heads);
    }
    return SOL_OK;
}

/* To a list for people. */
static void add_name(char list[NAMES_MAX], const char *name)
{
    size_t at = strlen(list);
    snprintf(list + at, NAMES_MAX - at, "%s%s", at ? ", " : "", name);
}

/* ---- GGUF ---- */

static const struct dialect *find_dialect(struct gguf_string name, const struct architecture **arch)
{
    for (int i = 0; i < architecture_count; i++) {
        const struct dialect *dialects = architectures[i]->dialects;
        *arch = architectures[i];
        for (const struct dialect *d = dialects; d < dialects + (*arch)->n_dialects; d++)
            if (d->gguf && name.length == strlen(d->gguf) &&
                memcmp(name.data, d->gguf, name.length) == 0)
                return d;
    }
    return NULL;
}

static enum sol_status unknown_architecture(const struct gguf *file, struct gguf_string name)
{
    char known[NAMES_MAX] = "";
    for (int i = 0; i < architecture_count; i++)
        if (architectures[i]->from_gguf) add_name(known, architectures[i]->dialects[0].gguf);
    return status_set(SOL_E_UNSUPPORTED, "%s: architecture '%.*s' is not served; sol runs %s",
                      gguf_name(file), (int)(name.length < 64 ? name.length : 64), name.data,
                      known);
}

enum sol_status config_dialect_of_gguf(const struct gguf *file, const struct architecture **arch,
                                       const struct dialect **dialect)
{
    struct gguf_string name = {"", 0};
    uint64_t parts = 1;
    bool found;
    SOL_TRY(gguf_get_string(file, "general.architecture", &name, NULL));
    *dialect = find_dialect(name, arch);
    if (!*dialect) return unknown_architecture(file, name);
    SOL_TRY(gguf_get_u64(file, "split.count", &parts, &found));
    if (parts > 1 && parts != (uint64_t)gguf_part_count(file)) {
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: one of %llu parts of a split model without the others",
                          gguf_name(file), (unsigned long long)parts);
    }
    return SOL_OK;
}

enum sol_status config_from_gguf(const struct gguf *file, struct model_config *out)
{
    const struct architecture *arch;
    const struct dialect *dialect;
    SOL_TRY(config_dialect_of_gguf(file, &arch, &dialect));
    SOL_TRY(arch->from_gguf(file, out));
    out->arch = arch;
    return SOL_OK;
}

/* ---- config.json ---- */

/* By the type that it says, else by what its architecture knows it by, else the first. */
static enum sol_status find_by_json(const char *path, const json_t *root,
                                    const struct architecture **out)
{
    const json_t *type = json_object_get(root, "model_type");
    const char *name = type ? json_string_value(type) : NULL;
    char known[NAMES_MAX] = "";
    for (int i = 0; i < architecture_count; i++) {
        const struct architecture *a = *out = architectures[i];
        if (name ? strcmp(name, a->model_type) == 0 : !type && a->knows && a->knows(root))
            return SOL_OK;
        add_name(known, a->model_type);
    }
    *out = architectures[0];
    if (!type) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s: model_type '%.40s' is not served; sol runs %s", path,
                      name ? name : "?", known);
}

static enum sol_status read_config(const char *path, const json_t *root, struct model_config *c)
{
    const struct architecture *arch;
    if (!json_is_object(root)) return status_set(SOL_E_FORMAT, "%s: no JSON object", path);
    SOL_TRY(find_by_json(path, root, &arch));
    SOL_TRY(arch->from_json(path, root, c));
    c->arch = arch;
    return SOL_OK;
}

enum sol_status config_from_json_text(const char *name, const char *text, size_t size,
                                      struct model_config *out)
{
    json_error_t error;
    if (size > CONFIG_MAX)
        return status_set(SOL_E_FORMAT, "%s: %zu bytes are no configuration", name, size);
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return status_set(SOL_E_FORMAT, "%s: no valid JSON (line %d, column %d)", name, error.line,
                          error.column);
    enum sol_status status = read_config(name, root, out);
    json_decref(root);
    return status;
}

enum sol_status config_from_json(const char *path, struct model_config *out)
{
    struct mapped_file map;
    SOL_TRY(mapped_file_open(path, &map));
    enum sol_status status = config_from_json_text(path, map.data ? map.data : "", map.size, out);
    mapped_file_close(&map);
    return status;
}

json_t *config_to_json(const struct model_config *config, bool mxfp4)
{
    json_t *root = config->arch->to_json(config, mxfp4);
    if (!root) status_set(SOL_E_MEMORY, "no memory for config.json");
    return root;
}

json_t *config_json_float(float value)
{
    for (int digits = 1; digits <= 9; digits++) {
        char text[40];
        snprintf(text, sizeof text, "%.*e", digits - 1, (double)value);
        if (strtof(text, NULL) == value) return json_real(strtod(text, NULL));
    }
    return json_real((double)value);
}

/* ---- numbers of config.json ---- */

/* *value is NULL where none of the names is there. null says that there is none, which is not the
 * same as saying nothing: no default may take its place. */
static enum sol_status get(const char *path, const json_t *object, const char *const *names,
                           const char **name, const json_t **value)
{
    const char *null = NULL;
    *name = names[0];
    *value = NULL;
    for (int i = 0; i < CONFIG_NAMES && names[i] && !*value; i++) {
        *value = json_object_get(object, names[i]);
        if (*value) *name = names[i];
        if (!json_is_null(*value)) continue;
        null = names[i];
        *value = NULL;
    }
    if (*value || !null) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s: '%s' is null; sol runs no model without it", path,
                      null);
}

static enum sol_status get_integer(const char *path, const json_t *object,
                                   const struct config_integer *key, int64_t *out)
{
    const char *name;
    const json_t *value;
    SOL_TRY(get(path, object, key->names, &name, &value));
    if (!value && key->required) return status_set(SOL_E_FORMAT, "%s: '%s' is missing", path, name);
    if (!value) return SOL_OK;
    if (!json_is_integer(value))
        return status_set(SOL_E_FORMAT, "%s: '%s' is no integer", path, name);
    json_int_t number = json_integer_value(value);
    if (number < key->min || number > key->max)
        return status_set(SOL_E_FORMAT, "%s: '%s' is %lld, outside %lld to %lld", path, name,
                          (long long)number, (long long)key->min, (long long)key->max);
    *out = (int64_t)number;
    return SOL_OK;
}

static enum sol_status get_float(const char *path, const json_t *object,
                                 const struct config_float *key, float *out)
{
    const char *name;
    const json_t *value;
    SOL_TRY(get(path, object, key->names, &name, &value));
    if (!value) return SOL_OK;
    if (!json_is_number(value))
        return status_set(SOL_E_FORMAT, "%s: '%s' is no number", path, name);
    double number = json_number_value(value);
    if (!(number >= key->min && number <= key->max))
        return status_set(SOL_E_FORMAT, "%s: '%s' is %g, outside %g to %g", path, name, number,
                          key->min, key->max);
    *out = (float)number;
    return SOL_OK;
}

enum sol_status config_get_integers(const char *path, const json_t *object,
                                    const struct config_integer *keys, size_t n,
                                    struct model_config *out)
{
    for (size_t i = 0; i < n; i++)
        SOL_TRY(
            get_integer(path, object, &keys[i], (int64_t *)(void *)((char *)out + keys[i].offset)));
    return SOL_OK;
}

enum sol_status config_get_floats(const char *path, const json_t *object,
                                  const struct config_float *keys, size_t n,
                                  struct model_config *out)
{
    for (size_t i = 0; i < n; i++)
        SOL_TRY(get_float(path, object, &keys[i], (float *)(void *)((char *)out + keys[i].offset)));
    return SOL_OK;
}
