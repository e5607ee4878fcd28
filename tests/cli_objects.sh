#!/usr/bin/env bash
# A sample of tests/soak_objects.sh, the same every time: a few seconds of its cases.
exec bash "${SOL_SOURCE_DIR:?ctest sets it}/tests/soak_objects.sh" "${SOL_OBJECTS_SECONDS:-12}" 1
