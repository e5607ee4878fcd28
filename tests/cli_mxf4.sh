#!/usr/bin/env bash
# The block-scaled grouped products as ptxas makes them for sm_12x, which no emulation shows: the instruction is
# there, no register is spilled, and shared memory is within what a block may have.
. "$SOL_SOURCE_DIR/tests/support/cli.sh"

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "skipped: there is no nvcc"; exit 0; }
kernels=$SOL_SOURCE_DIR/kernels
file=$kernels/grouped_gemm/grouped_gemm_mxf4.cu

# FILE: SASS, a line for each block-scaled instruction or access of spilled registers, the kernel before it.
read_sass() {
    awk '/^\.text\.|\.section\t\.text\./ { sub(/.*\.text\./, ""); sub(/[,:].*/, ""); kernel = $0 }
         match($0, /OMMA\.SF[A-Z0-9.]*|LDL|STL/) { print kernel, substr($0, RSTART, RLENGTH) }' "$1" |
        sort | uniq -c
}

disassembler=$(command -v nvdisasm || true)
[ -n "$disassembler" ] || echo "skipped: the instructions, there is no nvdisasm"
for arch in 120a 121a; do
    "$nvcc" -cubin -std=c++17 -O3 -I "$kernels" -Xptxas -v -arch=sm_$arch -o "$work/cubin" "$file" >"$work/out" 2>&1
    is "nvcc for sm_$arch" $? 0
    is "kernels on sm_$arch" "$(grep -c 'Compiling entry function .grouped_mxf4_' "$work/out")" 4
    is "spills on sm_$arch" "$(grep -E 'bytes stack frame' "$work/out" | sort -u | xargs)" \
        "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    # What the host asks for is all of it, which the header holds below 99 KB.
    is "static shared memory on sm_$arch" "$(grep -cE 'bytes smem' "$work/out")" 0
    [ -n "$disassembler" ] || continue
    "$disassembler" "$work/cubin" >"$work/sass" 2>"$work/err"
    read_sass "$work/sass" >"$work/out"
    # 16 of 16 x 8 in either half of a chunk for whole tiles, and those for tiles of 48, 32 and 16 rows.
    for name in nvfp4 nvfp4_gated; do has out " 80 grouped_mxf4_$name OMMA\.SF\.16864\.F32\.E2M1\.E2M1\.UE4M3\.4X$"; done
    for name in mxfp4 mxfp4_gated; do has out " 80 grouped_mxf4_$name OMMA\.SF\.16864\.F32\.E2M1\.E2M1\.E8$"; done
    is "other such instructions on sm_$arch" "$(wc -l <"$work/out")" 4
done

# Others have no such instruction: the file has no kernels there, rather than ones that do nothing.
"$nvcc" -cubin -std=c++17 -I "$kernels" -Xptxas -v -arch=sm_90a -o "$work/cubin" "$file" >"$work/out" 2>&1
is "nvcc for sm_90a" $? 0
is "kernels on sm_90a" "$(grep -c 'Compiling entry function' "$work/out")" 0
exit $((failures != 0))
