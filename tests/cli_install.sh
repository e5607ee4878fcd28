#!/usr/bin/env bash
# What `make install` puts down: every file in its place, only sol_* symbols in the libraries, and
# examples/continue.c and chat.c built through pkg-config against each library. The greedy text of continue.c is that of
# sol run.
set -u
failures=0
fail() {
    echo "FAILED: $1"
    failures=$((failures + 1))
}

if [ -n "${SOL_SANITIZED:-}" ]; then
    echo "skipped: sanitized builds are not installed"
    exit 0
fi
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# The prefix that the build was configured with is in sol.pc; below DESTDIR it is a trial.
if ! DESTDIR=$stage cmake --install "$SOL_BUILD_DIR" >"$stage/log" 2>&1; then
    cat "$stage/log"
    exit 1
fi
pc=$(find "$stage" -name sol.pc)
[ -f "$pc" ] || { echo "no sol.pc in:"; cat "$stage/log"; exit 1; }
prefix=$stage$(sed -n 's/^prefix=//p' "$pc")
lib=$stage$(sed -n 's/^libdir=//p' "$pc")
for file in bin/sol share/man/man1/sol.1 share/man/man1/sol-run.1 include/sol/sol.h include/sol/chat.h include/sol/grouped_gemm.h \
    share/bash-completion/completions/sol share/zsh/site-functions/_sol \
    share/fish/vendor_completions.d/sol.fish share/sol/schemas/bench.json; do
    [ -s "$prefix/$file" ] || fail "$file is not installed"
done
grep -rqF "$SOL_SOURCE_DIR" "$prefix/bin" "$lib" && fail "an installed file names the source folder"

# ---- symbols ----
for library in "$lib/libsol.so" "$lib/libsol.a"; do
    how=-g
    [ "$library" = "$lib/libsol.so" ] && how=-D
    nm "$how" --defined-only "$library" | awk 'NF == 3 { print $3 }' >"$stage/symbols"
    grep -q '^sol_model_open$' "$stage/symbols" || fail "$library lacks sol_model_open"
    if grep -v '^sol_' "$stage/symbols"; then fail "$library exports the symbols above"; fi
done
# What the headers promise is what the library exports, no more and no less.
grep -rhoE '^SOL_API [^(]*\(' "$prefix/include/sol" | sed 's/($//; s/.*[ *]//' | sort >"$stage/promised"
sort "$stage/symbols" | diff "$stage/promised" - >"$stage/diff" ||
    fail "headers (<) and library (>) differ: $(cat "$stage/diff")"

# ---- headers ----
for header in "$prefix"/include/sol/*.h; do
    "$SOL_CC" -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" "$header" ||
        fail "$header is not plain C99"
    "$SOL_CC" -x c++ -Wall -Wextra -Werror -fsyntax-only -I"$prefix/include" "$header" \
        2>"$stage/log" || grep -q "cc1plus" "$stage/log" || fail "$header is not C++: $(cat "$stage/log")"
done

# ---- the examples ----
export PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$stage
emulator=
if [ -n "${SOL_EMULATED:-}" ]; then
    emulator=$SOL_EMULATED
    # The development files of that architecture, not of this one.
    PKG_CONFIG_LIBDIR=/usr/lib/$("$SOL_CC" -dumpmachine)/pkgconfig
    export PKG_CONFIG_LIBDIR
fi
words="Once upon a time"
"$SOL_BINARY" run -p "$words" -n 24 --greedy --quiet >"$stage/expected" || fail "sol run"
# build NAME FLAG...: the examples as $stage/NAME and NAME-chat, and what they write compared
build() {
    local name=$1
    shift
    "$SOL_CC" -std=c11 -Wall -Wextra -Werror "$SOL_SOURCE_DIR/examples/chat.c" "$@" -o "$stage/$name-chat" ||
        { fail "$name: the chat does not link"; return; }
    # shellcheck disable=SC2086 # the emulator is a command with arguments
    printf 'Who are you?\nAnd the sea?\n\n' | LD_LIBRARY_PATH=$lib $emulator "$stage/$name-chat" >"$stage/$name-chat.txt" ||
        fail "$name: the chat failed"
    [ "$(grep -c '^> .' "$stage/$name-chat.txt")" = 2 ] || fail "$name: not two answers: $(cat "$stage/$name-chat.txt")"
    "$SOL_CC" -std=c11 -Wall -Wextra -Werror "$SOL_SOURCE_DIR/examples/continue.c" "$@" \
        -o "$stage/$name" || { fail "$name: does not link"; return; }
    # shellcheck disable=SC2086 # the emulator is a command with arguments
    LD_LIBRARY_PATH=$lib $emulator "$stage/$name" "$words" 24 >"$stage/$name.txt" || fail "$name: failed"
    cmp "$stage/$name.txt" "$stage/expected" || fail "$name: another text than sol run"
}
# shellcheck disable=SC2046 # flags are meant to split
build shared $(pkg-config --cflags --libs sol)
# The sysroot is for sol alone: jansson and the C library are where they always are.
static=$(pkg-config --static --libs-only-l sol | sed 's/-lsol//')
# shellcheck disable=SC2046,SC2086
build static $(pkg-config --cflags sol) "$lib/libsol.a" $static

LD_LIBRARY_PATH=$lib $emulator "$stage/shared" "$words" 24 builtin cpu >"$stage/cpu.txt" || fail "the CPU by its name"
cmp "$stage/cpu.txt" "$stage/expected" || fail "the CPU by its name: another text than sol run"
LD_LIBRARY_PATH=$lib $emulator "$stage/shared" "$words" 1 builtin cuda:x 2>"$stage/log" && fail "cuda:x passed"
grep -q "expected cpu, cuda, cuda:N or auto" "$stage/log" || fail "the error does not name the devices"
LD_LIBRARY_PATH=$lib $emulator "$stage/shared" "$words" 1 "$stage/missing.gguf" 2>"$stage/log" &&
    fail "a missing model passed"
grep -q "missing.gguf" "$stage/log" || fail "the error does not name the file"
LD_LIBRARY_PATH=$lib $emulator "$stage/shared-chat" "$stage/missing.gguf" </dev/null 2>"$stage/log" &&
    fail "a chat with a missing model passed"
grep -q "missing.gguf" "$stage/log" || fail "the chat's error does not name the file"
exit $((failures != 0))
