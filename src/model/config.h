/* Where a configuration comes from: which architecture a file is of, what its entry reads (model/
 * architecture.h), and what entries share. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <jansson.h>

#include "format/gguf.h"
#include "model/model.h"

struct dialect;

/* The architecture and the dialect that a GGUF file says it is of. SOL_E_UNSUPPORTED for others,
 * and for a part of a split model without the rest. */
enum sol_status config_dialect_of_gguf(const struct gguf *file, const struct architecture **arch,
                                       const struct dialect **dialect);
/* From its keys. Each value is checked against its range, and against the others.
 * SOL_E_UNSUPPORTED for what no model of the architecture has. */
enum sol_status config_from_gguf(const struct gguf *file, struct model_config *out);

/* From a config.json; `path` is the file. */
enum sol_status config_from_json(const char *path, struct model_config *out);
/* The same from memory; `name` is for messages. */
enum sol_status config_from_json_text(const char *name, const char *text, size_t size,
                                      struct model_config *out);
/* The config.json that transformers, or who else wrote such files, reads; NULL (message set) when
 * memory is short. `mxfp4`: the experts are stored quantised. Free with json_decref. */
json_t *config_to_json(const struct model_config *config, bool mxfp4);

/* ---- for entries ---- */

/* Even, and a multiple of key heads for the query heads; `name` is for messages. */
enum sol_status config_check_heads(const char *name, const struct model_config *config);

/* A number of config.json under one of several names, the first that is there, into the field of
 * struct model_config at `offset`; what is missing and not required leaves the field as it is, and
 * null is an error. Tables end where the array does. */
enum { CONFIG_NAMES = 4 };
struct config_integer {
    const char *names[CONFIG_NAMES];
    size_t offset; /* of an int64_t */
    int64_t min, max;
    bool required;
};
struct config_float {
    const char *names[CONFIG_NAMES];
    size_t offset; /* of a float */
    double min, max;
};
enum sol_status config_get_integers(const char *path, const json_t *object,
                                    const struct config_integer *keys, size_t n,
                                    struct model_config *out);
enum sol_status config_get_floats(const char *path, const json_t *object,
                                  const struct config_float *keys, size_t n,
                                  struct model_config *out);
#define CONFIG_FIELD(name) offsetof(struct model_config, name)
/* A float32 as the shortest decimal that gives it back: 1e-05 and not 9.99999974e-06. */
json_t *config_json_float(float value);

#endif
