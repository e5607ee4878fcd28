#!/usr/bin/env bash
# The block-scaled grouped products as ptxas makes them for Blackwell, which no emulation shows: the instructions are
# there, and no register is spilled.
. "$SOL_SOURCE_DIR/tests/support/cli.sh"
[ "${SOL_EMULATED:-}" ] && { echo "skipped: nothing here is of this build; the release tests do it"; exit 0; }

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "skipped: there is no nvcc"; exit 0; }
kernels=$SOL_SOURCE_DIR/kernels
disassembler=$(command -v nvdisasm || true)
[ -n "$disassembler" ] || echo "skipped: the instructions, there is no nvdisasm"

# compile ARCH FILE KERNELS: so many, none of which spills or has shared memory of its own: what the host asks for is
# all of it.
compile() {
    "$nvcc" -cubin -std=c++17 -O3 -I "$kernels" -Xptxas -v -arch="sm_$1" -o "$work/cubin" "$kernels/$2" >"$work/out" 2>&1
    is "nvcc for sm_$1" $? 0
    is "kernels on sm_$1" "$(grep -c 'Compiling entry function' "$work/out")" "$3"
    is "static shared memory on sm_$1" "$(grep -cE 'bytes smem' "$work/out")" 0
    [ "$3" = 0 ] || is "spills on sm_$1" "$(grep -E 'bytes stack frame' "$work/out" | sort -u | xargs)" \
        "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
}

# sass PATTERN: in $work/out, how often each kernel has an instruction that matches, or accesses spilled registers.
sass() {
    "$disassembler" "$work/cubin" 2>"$work/err" | awk -v pattern="($1|LDL|STL)[A-Z0-9.x]*" '
        /^\.text\.|\.section\t\.text\./ { sub(/.*\.text\./, ""); sub(/[,:].*/, ""); kernel = $0 }
        match($0, pattern) { print kernel, substr($0, RSTART, RLENGTH) }' | sort | uniq -c >"$work/out"
}

# ---- sm_120a, sm_121a: mma.sync with scales ----
mxf4=grouped_gemm/grouped_gemm_mxf4.cu
for arch in 120a 121a; do
    compile $arch $mxf4 4
    [ -n "$disassembler" ] || continue
    sass 'OMMA\.SF'
    # 16 of 16 x 8 in either half of a chunk for whole tiles, and those for tiles of 48, 32 and 16 rows.
    for name in nvfp4 nvfp4_gated; do has out " 80 grouped_mxf4_$name OMMA\.SF\.16864\.F32\.E2M1\.E2M1\.UE4M3\.4X$"; done
    for name in mxfp4 mxfp4_gated; do has out " 80 grouped_mxf4_$name OMMA\.SF\.16864\.F32\.E2M1\.E2M1\.E8$"; done
    is "other such instructions on sm_$arch" "$(wc -l <"$work/out")" 4
done

# ---- sm_100a: tcgen05 ----
tcgen05=grouped_gemm/grouped_tcgen05.cu
compile 100a $tcgen05 4
if [ -n "$disassembler" ]; then
    sass 'UTCOMMA|UTCCP|LDTM|UTMALDG'
    for name in 128 256 gated; do
        has out " [0-9]+ grouped_tcgen05_$name UTCOMMA\.4X$"
        has out " [0-9]+ grouped_tcgen05_$name UTCCP\.T\.S\.4"
    done
    has out ' [0-9]+ grouped_tcgen05_pair UTCOMMA\.2CTA\.4X$'
    has out ' [0-9]+ grouped_tcgen05_pair UTCCP\.T\.S\.2CTA\.4'
    is "kernels that read tensor memory" "$(grep -c 'LDTM\.x16' "$work/out")" 4
    is "kernels that copy boxes" "$(grep -c 'UTMALDG\.2D' "$work/out")" 4
    is "spilled registers" "$(grep -cE ' (LDL|STL)' "$work/out")" 0
fi

# Others have no such instructions: the files have no kernels there, rather than ones that do nothing.
compile 90a $mxf4 0
compile 90a $tcgen05 0
exit $((failures != 0))
