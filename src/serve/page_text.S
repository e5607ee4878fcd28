/* The page, byte for byte, in read-only data. */
    .section .rodata.sol_page,"a",%progbits
    .globl sol_page
    .hidden sol_page
    .type sol_page, %object
sol_page:
    .incbin SOL_PAGE_HTML
    .byte 0
    .size sol_page, . - sol_page

    .section .note.GNU-stack,"",%progbits
