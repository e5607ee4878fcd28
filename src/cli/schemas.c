#include "cli/schemas.h"

#include <jansson.h>
#include <string.h>

#define SCHEMA(id, name) extern const char sol_schema_##id[];
#include "cli/schemas.list"
#undef SCHEMA

const struct schema schemas[] = {
#define SCHEMA(id, name) {name, sol_schema_##id},
#include "cli/schemas.list"
#undef SCHEMA
};

const size_t schema_count = sizeof schemas / sizeof *schemas;

char *schema_title(const struct schema *schema)
{
    json_t *json = json_loads(schema->text, 0, NULL);
    const char *title = json_string_value(json_object_get(json, "title"));
    char *copy = title ? strdup(title) : NULL;
    json_decref(json);
    return copy;
}
