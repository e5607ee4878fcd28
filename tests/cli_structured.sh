#!/usr/bin/env bash
# sol run --json-schema and --json-object: JSON whatever the seed and the sampler, ends, what is cut, and bad schemas.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
person=$SOL_SOURCE_DIR/examples/person.schema.json

# sol ARGUMENT...: output in $work/out and $work/err, status in $status
sol() {
    "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

# has FILE TEXT
has() { grep -qF -- "$2" "$work/$1" || fail "no '$2' in $1"; }

# Valid JSON by what the machine has, and what the schema says as far as a pattern of grep can tell.
is_json() {
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$work/out" >/dev/null 2>&1 || fail "no JSON: $(cat "$work/out")"
    fi
}

seeds=12
[ "${SOL_SANITIZED:-}${SOL_EMULATED:-}" ] && seeds=2

# ---- whatever is drawn ----
list='"(English|Spanish|Hindi)"'
shape="^\\{\"name\": ?\"([^\"\\\\]|\\\\.)*\", ?\"age\": ?([0-9]|[1-9][0-9]|1[0-4][0-9]|150), ?\"languages\": ?\\[($list(, ?$list){0,2})?\\]\\}\$"
for seed in $(seq $seeds); do
    sol run -p "A person:" --json-schema "$person" -n 400 --seed "$seed"
    [ $status = 0 ] || fail "seed $seed: status $status: $(cat "$work/err")"
    grep -qE -- "$shape" "$work/out" || fail "seed $seed: $(cat "$work/out")"
    has err "the JSON is whole"
    is_json
done
for how in --greedy "--temperature 20" "--top-k 3" "--top-p 0.5" "--min-p 0.2" "--temperature 5 --special"; do
    # shellcheck disable=SC2086 # options with their values
    sol run -p "A person:" --json-schema "$person" -n 400 $how -q
    grep -qE -- "$shape" "$work/out" || fail "$how: $(cat "$work/out")"
done

sol run -p "Facts:" --json-schema "$person" -n 400 --json --seed 2
[ $status = 0 ] || fail "--json: status $status"
is_json
has out '"stop": "whole"'
sol run -p "Facts:" --json-schema "$person" -n 400 --seed 2 -q
cp "$work/out" "$work/first"
sol run -p "Facts:" --json-schema "$person" -n 400 --seed 2 -q
cmp -s "$work/out" "$work/first" || fail "the same seed gives other JSON"

# ---- numbers may end or go on: a token that ends the text ends them ----
echo '{"type": "integer", "minimum": 10, "maximum": 99}' >"$work/schema"
for seed in 1 2 3; do
    sol run -p "How many? " --json-schema "$work/schema" -n 50 --seed "$seed" -q
    grep -qE '^[1-9][0-9]$' "$work/out" || fail "a number from 10 to 99: $(cat "$work/out")"
done
echo '{"type": "integer"}' >"$work/schema"
sol run -p "How many? " --json-schema "$work/schema" -n 300 --seed 1 -q
grep -qE '^-?[0-9]+$' "$work/out" || fail "a number: $(cat "$work/out")"

# ---- any object ----
for seed in 1 2 3 4; do
    sol run -p "Facts:" --json-object -n 1000 --seed "$seed" -q
    [ $status = 0 ] || fail "--json-object: status $status"
    [ "$(head -c 1 "$work/out")" = "{" ] || fail "--json-object: $(head -c 80 "$work/out")"
    [ -s "$work/err" ] || is_json # what is cut is told
done

# ---- cut ----
sol run -p "A person:" --json-schema "$person" -n 5 -q
[ $status = 0 ] || fail "-n 5: status $status"
has err "the JSON is cut"
has err "-n"
sol run -p "A person:" --json-schema "$person" -n 400 -c 16 -q
has err "the context is full"
sol run -p "A person:" --json-schema "$person" -n 5 --json -q
has out '"stop": "length"'

# ---- bad input ----
# refuses STATUS TEXT ARGUMENT...
refuses() {
    local wanted=$1 text=$2
    shift 2
    sol run "$@"
    [ $status = "$wanted" ] || fail "sol run $*: status $status, expected $wanted"
    has err "$text"
    [ -s "$work/out" ] && fail "sol run $*: there is output"
}
echo '{"type": "object", "properties": {"a": {"not": {"type": "null"}}}}' >"$work/schema"
refuses 5 "#/properties/a/not: the keyword 'not' is not supported" -p x --json-schema "$work/schema"
echo '{"type": "strin"}' >"$work/schema"
refuses 4 "#/type: " -p x --json-schema "$work/schema"
echo '{"type": "string"' >"$work/schema"
refuses 4 "schema:2: '}' expected" -p x --json-schema "$work/schema"
echo '{"type": "array", "minItems": 2, "maxItems": 1}' >"$work/schema"
refuses 4 "no JSON value can satisfy the schema" -p x --json-schema "$work/schema"
refuses 3 "No such file" -p x --json-schema "$work/none"
refuses 2 "exclude each other" -p x --json-schema "$person" --json-object
refuses 2 "vocabulary" -m synth:tiny --tokens 1 --json-object

exit $((failures != 0))
