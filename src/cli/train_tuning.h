/* The record of tuning in training. */
#ifndef CLI_TRAIN_TUNING_H
#define CLI_TRAIN_TUNING_H

#include <jansson.h>
#include <stdio.h>

#include "cli/train_options.h"
#include "train/tuned.h"

/* The chooser's, with as many workers as a trainer will have. */
struct op_device train_device(const struct train_command *command);

/* Gives the command's chooser what is recorded of its device, unless --no-tuning, --exact or
 * --reference is given. Several ranks all have rank 0's record, those on another kind of device
 * none; all call it together. A record that cannot be used is no failure. */
enum sol_status train_tuning_read(struct train_command *command);

/* A line for each kernel that is not the usual one. */
void train_tuning_print(const struct train_tuned *tuned, FILE *to);
json_t *train_tuning_json(const struct train_tuned *tuned);

#endif
