/* See tuning_file.h.
 *
 *     {"format": "sol tuning", "version": 1, "devices": [
 *       {"device": "NVIDIA H100 80GB HBM3", "capability": "9.0", "driver": "CUDA 13.0",
 *        "build": "0.1.0 b49b102cd", "kernels": {"attention": "8f3c...", "gemm": "02d1..."},
 *        "entries": [
 *          {"op": "gemm", "dtype": "bf16", "n": 4096, "k": 2880, "rows": 16, "from": 9, "to": 16,
 *           "numerics": "i8", "variant": "gemm_wgmma_cuda", "choice": "gemm_wgmma_bf16_16",
 *           "ns": 13400, "usual": "gemv_bf16_cuda", "usual_choice": "", "usual_ns": 15100}]}]}
 */
#include "ops/tuning_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cache.h"
#include "base/memory.h"
#include "format/output_file.h"
#include "ops/problem.h"

enum { VERSION = 1, FILE_BYTES_MAX = 16 << 20, ENTRIES_MAX = 20000 };
static const char format_name[] = "sol tuning";

enum sol_status tuning_path(char *out, size_t size)
{
    return cache_path("tuning.json", out, size);
}

/* ---- one entry ---- */

static json_t *entry_json(const struct tuning_entry *e)
{
    struct op_problem problem = e->problem;
    json_t *json =
        json_pack("{s:s, s:s}", "op", e->op->name, "dtype", dtype_info(problem.dtype)->name);
    for (int i = 0; i < OP_SIZES; i++) {
        const int64_t value = *op_size(&problem, i);
        const char *const *words = op_size_words(i);
        if (value)
            json_object_set_new(json, op_size_name(i),
                                words ? json_string(words[value]) : json_integer(value));
    }
    json_t *rest =
        json_pack("{s:I, s:I, s:s, s:s, s:s, s:f, s:s, s:s, s:f}", "from", (json_int_t)e->rows_from,
                  "to", (json_int_t)e->rows_to, "numerics", op_numerics_name(e->loosest), "variant",
                  e->variant, "choice", e->choice, "ns", e->ns, "usual", e->usual, "usual_choice",
                  e->usual_choice, "usual_ns", e->usual_ns);
    json_object_update(json, rest);
    json_decref(rest);
    return json;
}

static bool take_text(const json_t *json, const char *name, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(json, name));
    return text && (size_t)snprintf(out, size, "%s", text) < size;
}

static bool take_count(const json_t *json, const char *name, int64_t *out)
{
    const json_t *value = json_object_get(json, name);
    *out = value ? json_integer_value(value) : 0;
    return !value || (json_is_integer(value) && *out >= 0 && *out <= INT64_C(1) << 40);
}

/* Also one that is a word. */
static bool take_size(const json_t *json, int i, int64_t *out)
{
    const char *const *words = op_size_words(i);
    const json_t *value = json_object_get(json, op_size_name(i));
    const char *text = json_string_value(value);
    *out = 0;
    if (!words) return take_count(json, op_size_name(i), out);
    while (text && words[*out] && strcmp(words[*out], text) != 0) ++*out;
    return !value || (text && words[*out]);
}

static bool take_time(const json_t *json, const char *name, double *out)
{
    *out = json_number_value(json_object_get(json, name));
    return isfinite(*out) && *out > 0;
}

static bool take_numerics(const json_t *json, enum op_numerics *out)
{
    const char *name = json_string_value(json_object_get(json, "numerics"));
    return name && op_numerics_from_name(name, out);
}

static bool take_entry(const json_t *json, struct tuning_entry *e)
{
    const char *op = json_string_value(json_object_get(json, "op"));
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    struct op_problem *p = &e->problem;
    *e = (struct tuning_entry){.op = op ? op_find(op) : NULL};
    if (!e->op || !dtype || !dtype_from_name(dtype, &p->dtype)) return false;
    for (int i = 0; i < OP_SIZES; i++)
        if (!take_size(json, i, op_size(p, i))) return false;
    return take_count(json, "from", &e->rows_from) && take_count(json, "to", &e->rows_to) &&
           p->rows >= 1 && e->rows_from <= p->rows && e->rows_to >= p->rows &&
           take_numerics(json, &e->loosest) &&
           take_text(json, "variant", e->variant, sizeof e->variant) &&
           take_text(json, "choice", e->choice, sizeof e->choice) &&
           take_text(json, "usual", e->usual, sizeof e->usual) &&
           take_text(json, "usual_choice", e->usual_choice, sizeof e->usual_choice) &&
           take_time(json, "ns", &e->ns) && take_time(json, "usual_ns", &e->usual_ns);
}

/* ---- sections ---- */

static bool take_key(const json_t *section, struct device_key *key)
{
    *key = (struct device_key){0};
    return take_text(section, "device", key->device, sizeof key->device) &&
           take_text(section, "capability", key->capability, sizeof key->capability) &&
           take_text(section, "driver", key->driver, sizeof key->driver) &&
           take_text(section, "build", key->build, sizeof key->build);
}

static bool is_gpu(const struct device_key *key)
{
    return *key->kernels;
}

/* Whether what the section says of an op was measured with the kernels that the op has now. */
static bool has_kernels_of(const json_t *section, const struct device_key *key, const struct op *op)
{
    const json_t *of = json_object_get(json_object_get(section, "kernels"), op->name);
    const char *then = json_string_value(of);
    return !is_gpu(key) || (then && strcmp(then, op_kernels_of(&key->op_kernels, op)) == 0);
}

static void note_changed(const bool changed[OP_COUNT], char note[TUNING_NOTE_MAX])
{
    char names[TUNING_NOTE_MAX / 2] = "";
    for (int i = 0; i < OP_COUNT; i++) {
        size_t at = strlen(names);
        if (changed[i])
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", op_table[i]->name);
    }
    if (*names)
        snprintf(note, TUNING_NOTE_MAX,
                 "the tuning record is of other kernels of %s and ignored there; sol tune measures "
                 "anew",
                 names);
}

static enum sol_status read_entries(const json_t *section, const struct device_key *key,
                                    struct tuning *out, char note[TUNING_NOTE_MAX])
{
    const json_t *list = json_object_get(section, "entries");
    size_t useless = 0, count = json_array_size(list);
    bool changed[OP_COUNT] = {false};
    if (count > ENTRIES_MAX) count = 0, useless = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        struct tuning_entry entry;
        if (!take_entry(json_array_get(list, i), &entry))
            useless++;
        else if (has_kernels_of(section, key, entry.op))
            SOL_TRY(tuning_add(out, &entry));
        else
            changed[op_index(entry.op)] = true;
    }
    note_changed(changed, note);
    if (useless || !json_is_array(list))
        snprintf(note, TUNING_NOTE_MAX,
                 "the tuning record has %zu entries that make no sense here; they are ignored",
                 useless);
    return SOL_OK;
}

/* NULL, with a note, where the text is no record. */
static json_t *read_record(const char *text, size_t length, char note[TUNING_NOTE_MAX])
{
    json_error_t error;
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    const char *format = json_string_value(json_object_get(json, "format"));
    if (json && format && strcmp(format, format_name) == 0 &&
        json_integer_value(json_object_get(json, "version")) == VERSION &&
        json_is_array(json_object_get(json, "devices")))
        return json;
    if (!json)
        snprintf(note, TUNING_NOTE_MAX,
                 "the tuning record is damaged (line %d) and ignored; sol tune writes a new one",
                 error.line);
    else
        snprintf(
            note, TUNING_NOTE_MAX,
            "the tuning record is none of this version and ignored; sol tune writes a new one");
    json_decref(json);
    return NULL;
}

enum sol_status tuning_parse(const char *text, size_t length, const struct device_key *key,
                             struct tuning *out, char note[TUNING_NOTE_MAX])
{
    size_t i;
    json_t *section;
    enum sol_status status = SOL_OK;
    *out = (struct tuning){0};
    note[0] = '\0';
    json_t *record = read_record(text, length, note);
    json_array_foreach(json_object_get(record, "devices"), i, section)
    {
        struct device_key its;
        if (!take_key(section, &its) || !device_key_same_device(&its, key)) continue;
        if (device_key_same(&its, key)) {
            note[0] = '\0';
            if (is_gpu(key) && !json_is_object(json_object_get(section, "kernels")))
                snprintf(note, TUNING_NOTE_MAX,
                         "the tuning record is of an earlier form, which does not say of which "
                         "kernels, and ignored; sol tune writes a new one");
            else
                status = read_entries(section, key, out, note);
            break;
        }
        snprintf(note, TUNING_NOTE_MAX,
                 "the tuning record is of %s%ssol %s and ignored; sol tune writes a new one",
                 its.driver, *its.driver ? ", " : "", its.build);
    }
    json_decref(record);
    if (status != SOL_OK) tuning_clear(out);
    return status;
}

/* ---- what the program brings ---- */

extern const char sol_tuning_shipped[]; /* tuning_shipped.S */

enum sol_status tuning_shipped_parse(const char *text, size_t length, const struct device_key *key,
                                     struct tuning *out)
{
    char note[TUNING_NOTE_MAX];
    size_t i;
    json_t *section;
    enum sol_status status = SOL_OK;
    *out = (struct tuning){.shipped = true};
    json_t *record = read_record(text, length, note);
    json_array_foreach(json_object_get(record, "devices"), i, section)
    {
        struct device_key its;
        if (!is_gpu(key) || !take_key(section, &its) || !device_key_same_device(&its, key))
            continue;
        status = read_entries(section, key, out, note);
        break;
    }
    json_decref(record);
    if (status != SOL_OK) tuning_clear(out);
    return status;
}

enum sol_status tuning_shipped(const struct device_key *key, struct tuning *out)
{
    return tuning_shipped_parse(sol_tuning_shipped, strlen(sol_tuning_shipped), key, out);
}

/* ---- files ---- */

/* False, with a note unless there is no file, where nothing can be read. */
static bool open_record(const char *path, struct mapped_file *out, char note[TUNING_NOTE_MAX])
{
    *out = (struct mapped_file){0};
    note[0] = '\0';
    if (access(path, F_OK) != 0) return false;
    if (mapped_file_open(path, out) == SOL_OK && out->size <= FILE_BYTES_MAX) return true;
    mapped_file_close(out);
    snprintf(note, TUNING_NOTE_MAX, "the tuning record cannot be read and is ignored");
    return false;
}

enum sol_status tuning_load(const char *path, const struct device_key *key, struct tuning *out,
                            char note[TUNING_NOTE_MAX])
{
    struct mapped_file file;
    enum sol_status status = SOL_OK;
    *out = (struct tuning){0};
    if (open_record(path, &file, note))
        status = tuning_parse(file.data ? file.data : "", file.size, key, out, note);
    mapped_file_close(&file);
    return status;
}

enum sol_status tuning_of(const struct op_device *device, struct tuning *out,
                          char note[TUNING_NOTE_MAX])
{
    char path[4200];
    struct device_key key;
    *out = (struct tuning){0};
    note[0] = '\0';
    SOL_TRY(device_key_of(device, &key));
    if (tuning_path(path, sizeof path) == SOL_OK) SOL_TRY(tuning_load(path, &key, out, note));
    return out->count ? SOL_OK : tuning_shipped(&key, out);
}

/* Of every op that has some, also where nothing was measured. NULL for a CPU. */
static json_t *kernels_json(const struct device_key *key)
{
    json_t *json = is_gpu(key) ? json_object() : NULL;
    for (int i = 0; json && i < OP_COUNT; i++)
        if (*key->op_kernels.of[i])
            json_object_set_new(json, op_table[i]->name, json_string(key->op_kernels.of[i]));
    return json;
}

static json_t *section_json(const struct device_key *key, const struct tuning *tuning)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < tuning->count; i++)
        json_array_append_new(entries, entry_json(&tuning->entries[i]));
    return json_pack("{s:s, s:s, s:s, s:s, s:o*, s:o}", "device", key->device, "capability",
                     key->capability, "driver", key->driver, "build", key->build, "kernels",
                     kernels_json(key), "entries", entries);
}

/* Takes `devices`. */
static enum sol_status record_text(json_t *devices, char **out)
{
    json_t *json =
        json_pack("{s:s, s:i, s:o}", "format", format_name, "version", VERSION, "devices", devices);
    *out = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    return *out ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for the tuning record");
}

enum sol_status tuning_text(const struct device_key *key, const struct tuning *tuning, char **out)
{
    json_t *devices = json_array();
    json_array_append_new(devices, section_json(key, tuning));
    return record_text(devices, out);
}

/* The file's sections but that of this device, and the new one. */
static enum sol_status merge(const char *path, const struct device_key *key,
                             const struct tuning *tuning, char **out)
{
    char note[TUNING_NOTE_MAX];
    size_t i;
    struct mapped_file file;
    json_t *section, *devices = json_array();
    bool there = open_record(path, &file, note);
    json_t *old = there && file.data ? read_record(file.data, file.size, note) : NULL;
    mapped_file_close(&file);
    json_array_foreach(json_object_get(old, "devices"), i, section)
    {
        struct device_key its;
        if (take_key(section, &its) && !device_key_same_device(&its, key))
            json_array_append(devices, section);
    }
    if (tuning->count) json_array_append_new(devices, section_json(key, tuning));
    json_decref(old);
    return record_text(devices, out);
}

enum sol_status tuning_save(const char *path, const struct device_key *key,
                            const struct tuning *tuning)
{
    char folder[4096], *text;
    SOL_TRY(cache_folder(folder, sizeof folder));
    int lock;
    SOL_TRY(cache_lock(path, &lock));
    enum sol_status status = merge(path, key, tuning, &text);
    if (status == SOL_OK) status = output_file_text(path, text, strlen(text));
    cache_unlock(lock);
    free(text);
    return status;
}
