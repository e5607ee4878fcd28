/* The files of schemas/, byte for byte, in read-only data. */
    .section .rodata.sol_schemas,"a",%progbits
    .macro schema id, file
    .globl sol_schema_\id
    .hidden sol_schema_\id
    .type sol_schema_\id, %object
sol_schema_\id:
    .incbin "\file\().json"
    .byte 0
    .size sol_schema_\id, . - sol_schema_\id
    .endm

#define SCHEMA(id, name) schema id, name
#include "cli/schemas.list"

    .section .note.GNU-stack,"",%progbits
