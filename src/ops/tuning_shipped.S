/* The record of tuning that comes with the program, byte for byte, in read-only data. */
    .section .rodata.sol_tuning_shipped,"a",%progbits
    .globl sol_tuning_shipped
    .hidden sol_tuning_shipped
    .type sol_tuning_shipped, %object
sol_tuning_shipped:
    .incbin SOL_TUNING_SHIPPED
    .byte 0
    .size sol_tuning_shipped, . - sol_tuning_shipped

    .section .note.GNU-stack,"",%progbits
