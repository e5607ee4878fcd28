#include "opt/gates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "store/store_json.h"

enum { GATES_KEPT = 200 };

static const char *const names[] = {"passed", "failed", "missing", "none"};

const char *gate_result_name(enum gate_result result)
{
    return names[result];
}

static const char *text_at(const json_t *gate, const char *key)
{
    const char *text = json_string_value(json_object_get(gate, key));
    return text ? text : "";
}

static bool is_result(const json_t *gate, enum gate_result result)
{
    return strcmp(text_at(gate, "result"), names[result]) == 0;
}

static json_t *gate_json(const char *tree, const char *gate, enum gate_result result,
                         const char *detail)
{
    char now[32];
    json_t *text = store_json_string(detail); /* of programs: any bytes */
    store_time_text(store_now_ns(), now);
    return json_pack("{s:s, s:s, s:o, s:s, s:s}", "gate", gate, "result", names[result], "detail",
                     text ? text : json_null(), "tree", tree, "time", now);
}

json_t *gates_read(const char *verify_json)
{
    json_t *json = verify_json ? json_loads(verify_json, 0, NULL) : NULL, *gates = json_array();
    const json_t *list = json_object_get(json, "gates");
    const char *command = json_string_value(json_object_get(json, "command"));
    if (list)
        json_array_extend(gates, (json_t *)(uintptr_t)list);
    else if (command) /* an older store kept the correctness gate alone */
        gates_note(gates, text_at(json, "tree"), "correctness",
                   json_is_true(json_object_get(json, "passed")) ? GATE_PASSED : GATE_FAILED,
                   command);
    json_decref(json);
    return gates;
}

void gates_note(json_t *gates, const char *tree, const char *gate, enum gate_result result,
                const char *detail)
{
    for (size_t i = json_array_size(gates); i-- > 0;) {
        const json_t *old = json_array_get(gates, i);
        if (strcmp(text_at(old, "gate"), gate) == 0 && strcmp(text_at(old, "tree"), tree) == 0)
            json_array_remove(gates, i);
    }
    json_array_append_new(gates, gate_json(tree, gate, result, detail));
    while (json_array_size(gates) > GATES_KEPT) json_array_remove(gates, 0);
}

const json_t *gates_failed(const json_t *gates, const char *tree)
{
    for (size_t i = 0; tree && i < json_array_size(gates); i++) {
        const json_t *gate = json_array_get(gates, i);
        bool disturbed = strcmp(text_at(gate, "gate"), "content") == 0;
        if (is_result(gate, GATE_FAILED) && strcmp(text_at(gate, "tree"), tree) == 0 && !disturbed)
            return gate;
    }
    return NULL;
}

const json_t *gates_of(const json_t *gates, const char *tree, const char *name)
{
    for (size_t i = 0; i < json_array_size(gates); i++) {
        const json_t *gate = json_array_get(gates, i);
        if (strcmp(text_at(gate, "gate"), name) == 0 && strcmp(text_at(gate, "tree"), tree) == 0)
            return gate;
    }
    return NULL;
}

const char *gates_newest(const json_t *gates)
{
    size_t count = json_array_size(gates);
    return count ? text_at(json_array_get(gates, count - 1), "tree") : NULL;
}

double gates_gain(const struct store_iteration *it, const char *state)
{
    const char *verdict = it->verdict ? it->verdict : "";
    if (strcmp(state, "accepted") == 0) return it->realised;
    json_t *gates = gates_read(it->verify_json);
    bool refused = gates_failed(gates, gates_newest(gates)) != NULL;
    json_decref(gates);
    bool wrong = strcmp(verdict, "incorrect") == 0 || strcmp(verdict, "failed") == 0;
    if (wrong) return 0;
    if (strcmp(verdict, "slower") == 0 || strcmp(verdict, "same") == 0)
        return fmin(it->realised, 0);
    return refused && strcmp(verdict, "faster") == 0 ? 0 : (double)NAN;
}

void gates_summary(const struct store_iteration *it, char text[80])
{
    json_t *gates = gates_read(it->verify_json);
    const char *tree = gates_newest(gates);
    const json_t *failed = gates_failed(gates, tree);
    size_t passed = 0;
    for (size_t i = 0; i < json_array_size(gates); i++) {
        const json_t *gate = json_array_get(gates, i);
        passed += is_result(gate, GATE_PASSED) && strcmp(text_at(gate, "tree"), tree) == 0;
    }
    text[0] = '\0';
    if (failed)
        snprintf(text, 80, "%s failed", text_at(failed, "gate"));
    else if (passed)
        snprintf(text, 80, "%zu passed", passed);
    json_decref(gates);
}

/* In the order in which they are asked; what is none of these comes last. */
static size_t place_of(const char *gate)
{
    static const char *const order[] = {"build",       "benchmark",  "comparison", "manifest",
                                        "correctness", "perplexity", "content"};
    size_t at = 0;
    while (at < sizeof order / sizeof *order && strcmp(order[at], gate) != 0) at++;
    return at;
}

enum { PLACES = 8 };

/* Whether a later one of the same name follows. */
static bool is_old(const json_t *gates, size_t at)
{
    const char *name = text_at(json_array_get(gates, at), "gate");
    for (size_t i = at + 1; i < json_array_size(gates); i++)
        if (strcmp(text_at(json_array_get(gates, i), "gate"), name) == 0) return true;
    return false;
}

enum sol_status gates_print(const json_t *gates, const char *tree, FILE *to)
{
    struct table *table;
    if (!tree) tree = gates_newest(gates);
    SOL_TRY(table_create("gate|result|~detail", &table));
    for (size_t i = 0; i < PLACES * json_array_size(gates); i++) {
        size_t at = i % json_array_size(gates), place = i / json_array_size(gates);
        const json_t *gate = json_array_get(gates, at);
        if (is_old(gates, at) || place_of(text_at(gate, "gate")) != place) continue;
        bool now = strcmp(text_at(gate, "tree"), tree) == 0;
        table_cell(table, "%s", text_at(gate, "gate"));
        table_cell(table, "%s", text_at(gate, "result"));
        table_cell(table, "%s%s", now ? "" : "of earlier files: ", text_at(gate, "detail"));
    }
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}
