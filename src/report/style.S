/* The style sheet, byte for byte, in read-only data. */
    .section .rodata.sol_report_style,"a",%progbits
    .globl sol_report_style
    .hidden sol_report_style
    .type sol_report_style, %object
sol_report_style:
    .incbin SOL_REPORT_CSS
    .byte 0
    .size sol_report_style, . - sol_report_style

    .section .note.GNU-stack,"",%progbits
