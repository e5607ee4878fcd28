/* What an architecture is to the model room: names in files, configuration, tensors, which layers
 * have a window. architectures.list names the entries; its forward pass is in infer/forward.h. */
#ifndef MODEL_ARCHITECTURE_H
#define MODEL_ARCHITECTURE_H

#include <jansson.h>

#include "format/gguf.h"
#include "format/gguf_write.h"
#include "model/weights.h"

/* Sizes in terms of the configuration; FIXED + n is n. */
/* clang-format off */
enum dim {
    ONE, LAYERS, HIDDEN, HEADS, KV_HEADS, Q_WIDTH, KV_WIDTH, EXPERTS, INTER, VOCAB,
    VOCAB_64, /* rounded up to a multiple of 64 */
    FIXED = 1 << 16
};
/* clang-format on */

/* Which part of a file's tensor a weight is: of rows one after the other (q, k, v), or of those of
 * gate and up. */
enum share { WHOLE, SHARE_Q, SHARE_K, SHARE_V, SHARE_GATE, SHARE_UP };

enum { DIALECTS_MAX = 4, SYNTHETIC_MAX = 4 };

struct weight_spec {
    enum weight_role role;
    bool vector;
    enum dim groups, rows, cols;
    size_t offset; /* of the field: IN_MODEL or IN_LAYER */
    /* In each of the architecture's dialects, and which part of that tensor it is. # stands for the
     * layer; NULL: as in the first dialect, whose name sol itself uses. */
    const char *names[DIALECTS_MAX];
    enum share shares[DIALECTS_MAX];
    /* Of the whole model's layers; NULL: always there. */
    bool (*absent)(const struct model_config *config, int64_t layer);
};

#define IN_MODEL(field) offsetof(struct model, field)
#define IN_LAYER(field) offsetof(struct layer_weights, field)

/* How tensors are named, and experts laid out, in one kind of files. A set of safetensors is of the
 * dialect under whose name its first weight is there. */
struct dialect {
    const char *gguf;  /* general.architecture of such files; NULL: safetensors */
    const char *parts; /* "_": MXFP4 is in NAME_blocks and NAME_scales */
    bool columns;      /* unquantised experts are [groups][cols][rows] */
    bool in_turn;      /* rows of gate and up alternate where they are one tensor */
};

/* For reports. */
struct config_field {
    const char *name;
    size_t offset; /* in struct model_config, of an int64_t or a float */
    bool real;
};

struct architecture {
    const char *name;
    const struct weight_spec *global, *layered;
    int n_global, n_layered;
    const struct dialect *dialects;
    int n_dialects;
    int folder_dialect; /* what `sol model convert` writes as a folder */

    /* Configurations: of files of one of its GGUF dialects, if it has any, and config.json. What is
     * read is checked; arch is set by the caller. */
    enum sol_status (*from_gguf)(const struct gguf *file, struct model_config *out);
    void (*to_gguf)(const struct model_config *config, const char *name, struct gguf_out *out);
    const char *model_type;            /* in config.json, where it is said */
    bool (*knows)(const json_t *root); /* a config.json that does not say it; NULL: none */
    enum sol_status (*from_json)(const char *path, const json_t *root, struct model_config *out);
    json_t *(*to_json)(const struct model_config *config, bool mxfp4);

    int64_t (*window)(const struct model_config *config, int64_t layer); /* of the whole model's */
    /* See model_rope_frequencies. */
    void (*frequencies)(const struct model_config *config, bool rounded, float *inv_freq,
                        float *factor);

    const struct config_field *fields;
    int n_fields;
    /* A few lines for people, each with its end. */
    void (*describe)(const struct model_config *config, char *text, size_t size);
    /* "synth:" and its sizes. */
    struct {
        const char *name;
        void (*set)(struct model_config *config);
    } synthetic[SYNTHETIC_MAX];
};

extern const struct architecture *const architectures[];
extern const int architecture_count;

#define SOL_ARCHITECTURE(id) extern const struct architecture architecture_##id;
#include "model/architectures.list"
#undef SOL_ARCHITECTURE

#endif
