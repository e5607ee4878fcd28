/* How a tree is built, measured and checked: sol-opt.json in its top folder.
 *
 *   "build"            command; NULL where nothing is built
 *   "benchmark"        command that is run in turn in both trees
 *   "metrics"          what decides, as sol compare --metric; []: every test that both print
 *   "expect"           OP or OP=VARIANT that the benchmark's JSON must name
 *   "manifest"         command that fails where an expected kernel did not run, or null
 *   "correctness"      command, or null only where "same_output" is true
 *   "same_output"      the correctness command (or the benchmark, where that is null) must print
 *                      what it prints in the baseline
 *   "ignore_lines"     extended regular expression of lines that may differ, or null
 *   "perplexity"       command, or null for a program that has no such figure
 *   "perplexity_value" where its figure is: json:PATH or regex:PATTERN
 *   "perplexity_percent" by how much it may differ from the baseline's
 *   "profile"          command, or null
 *   "exclude"          files that never belong to a change: patterns, or folders
 *   "link"             files outside git that the baseline needs; linked there
 *   "delta_percent"    smallest effect that counts
 *   "min_pairs", "max_pairs", "max_seconds", "warmup"   of the comparison
 *   "timeout_seconds"  of one command
 *
 * Commands are run by sh in the top folder of a tree. */
#ifndef OPT_CONFIG_H
#define OPT_CONFIG_H

#include <jansson.h>

#include "base/options.h"
#include "base/status.h"

#define OPT_CONFIG_FILE "sol-opt.json"

struct opt_config {
    json_t *json; /* owned; texts below live in it */
    const char *build, *benchmark, *manifest, *correctness, *ignore_lines, *perplexity,
        *perplexity_value, *profile;
    struct string_list metrics, expect, exclude, link;
    bool same_output;
    double perplexity_percent, delta_percent, max_seconds, timeout_s;
    int64_t min_pairs, max_pairs, warmup;
};

/* "sol", "llama.cpp", "make"; ends with NULL. */
extern const char *const opt_presets[];

/* A new reference. `model` replaces the preset's own, may be NULL. SOL_E_ARGUMENT for an unknown
 * name, with the known ones. */
enum sol_status opt_config_preset(const char *name, const char *model, json_t **out);

/* The preset that fits the files of a tree; "make" where nothing is known. */
const char *opt_config_guess(const char *tree);

/* Takes the reference of `json` over, also when it fails. SOL_E_FORMAT names what is wrong with the
 * text; `origin` is for the message. */
enum sol_status opt_config_from_json(json_t *json, const char *origin, struct opt_config *out);

bool opt_config_exists(const char *tree);
/* SOL_E_ARGUMENT where there is none. */
enum sol_status opt_config_read(const char *tree, struct opt_config *out);
void opt_config_free(struct opt_config *config); /* takes a zeroed one */

#endif
