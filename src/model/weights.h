/* The tensors of a model, from its architecture's tables: what each is called in files, its shape
 * in terms of the configuration, and the field of struct model or struct layer_weights that it
 * fills. Loading, checking, converting, synthesis and `sol model info` walk this list. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "model/model.h"

enum weight_role { /* what a synthetic model needs to know */
                   ROLE_NORM,
                   ROLE_BIAS,
                   ROLE_SINKS,
                   ROLE_EMBED,
                   ROLE_HEAD,
                   ROLE_DENSE,  /* q k v o */
                   ROLE_ROUTER, /* and other small gates: kept exact */
                   ROLE_EXPERT,
};

struct weight {
    char name[64]; /* in the architecture's first dialect */
    int64_t layer; /* -1: outside the layers */
    enum weight_role role;
    bool vector;                /* const float * (groups 1 unless per expert), else struct tensor */
    int64_t groups, rows, cols; /* a vector has rows 1 */
    size_t offset;              /* of the field; private */
    const struct weight_spec *spec; /* model/architecture.h */
};

int64_t weight_count(const struct model_config *config);
/* Number `index` of 0..weight_count-1. */
struct weight weight_at(const struct model_config *config, int64_t index);
/* The number that it has in `whole`, of which `part` is a rank's part. */
int64_t weight_of_whole(const struct model_config *part, const struct model_config *whole,
                        int64_t index);
int64_t weight_elements(const struct weight *weight);
bool weight_per_expert(const struct weight *weight); /* each has its own group */
/* What it is called in a dialect of the architecture. */
enum { WEIGHT_NAME_MAX = 112 };
const char *weight_name(const struct weight *weight, int dialect, char buffer[WEIGHT_NAME_MAX]);
/* The field of the model: a const float * for a vector, else a struct tensor. */
const void *weight_field(const struct model *model, const struct weight *weight);

/* Points the model's field at `data`: float32 for a vector. */
void weight_bind(struct model *model, const struct weight *weight, enum dtype dtype,
                 const void *data);

#endif
