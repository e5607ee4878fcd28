#!/usr/bin/env bash
# A store that somebody else made: nothing outside it is read, written or deleted, and no command falls over it.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
command -v python3 >/dev/null || { echo "no python3: there is no hostile store"; exit 0; }
cd "$work" || exit 1
echo precious >victim.txt

# sound STATUS... -- ARGUMENT...: one of these, and neither a bug nor a signal.
sound() {
    local allowed=" "
    while [ "$1" != -- ]; do
        allowed+="$1 "
        shift
    done
    shift
    timeout 60 "$SOL_BINARY" "$@" >"$work/out" 2>"$work/err" </dev/null
    local got=$?
    [[ $allowed == *" $got "* ]] || fail "sol $*: status $got, expected one of$allowed"
    is "the victim after sol $*" "$(cat "$work/victim.txt")" precious
}

# make HOW: a store with one benchmark, changed by a line of python with `db` and `run`.
make() {
    rm -rf "$work/store"
    cp -r "$work/good" "$work/store"
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
run = db.execute("SELECT id FROM run").fetchone()[0]
exec(sys.argv[2])
db.commit()' "$work/store/store.db" "$1" || fail "sqlite: $1"
}

run 0 bench -m synth:tiny -p 4 -n 4 -r 3 --ops --no-limits -q
mv store good
id=$(python3 -c 'import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("SELECT id FROM run").fetchone()[0])' good/store.db)

# ---- paths of files ----
for path in ../victim.txt "artifacts/$id/../../../victim.txt" "$work/victim.txt"; do
    make "db.execute('INSERT INTO artifact VALUES(?, ?, ?, 9, ?)', (run, 'trace', '$path', 'x'))"
    sound 0 -- runs show "$id"
    sound 4 -- advise "$id"
    has err "no file of it"
    sound 0 -- report "$id" -o out.html
    sound 4 -- runs delete "$id"
    has err "no file of it"
    sound 2 -- runs show "$id" # it went all the same
done
make "db.execute('INSERT INTO artifact VALUES(?, ?, ?, 9, ?)', (run, 'trace', 'artifacts/' + run + '/t', 'x'))"
mkdir store/artifacts "store/artifacts/$id"
ln -s ../../../victim.txt "store/artifacts/$id/t"
sound 0 -- advise "$id"
has err 'is left out'
sound 0 -- runs delete "$id"
make "db.execute('INSERT INTO artifact VALUES(?, ?, ?, 9, ?)', (run, 'trace', 'artifacts/' + run + '/victim.txt', 'x'))"
mkdir store/artifacts
ln -s ../.. "store/artifacts/$id"
sound 0 -- runs delete "$id"

# ---- ids ----
make "db.execute('PRAGMA foreign_keys = OFF'); db.execute('UPDATE run SET id = ?', ('../x',))"
sound 4 -- runs show ../x
sound 4 -- report last
sound 4 -- report ../x
[ -e ../x.html ] || [ -e "$work/report-../x.html" ] && fail "a report beside its place"
sound 4 -- runs delete ../x
sound 0 -- runs

# ---- texts that are not what they should be ----
odd='["[]", "{}", "null", "7", "[[]]", "{\"records\": 3}", "{\"records\": [7, null, {}]}", "{\"metrics\": [1], \"verdict\": \"x\"}", "{\"gap_list\": [3], \"device_time\": 7, \"steady\": [], \"limits\": {\"memory\": []}}"]'
for column in payload environment argv; do
    for i in 0 1 2 3 4 5 6 7 8; do
        if [ $column = environment ]; then
            make "text = $odd[$i]; db.execute('UPDATE environment SET json = ?', (text,))"
        else
            make "text = $odd[$i]; db.execute('UPDATE run SET $column = ?', (text,))"
        fi
        sound 0 -- runs export "$id"
        sound 0 -- report "$id" -o out.html
        [ $column = argv ] && continue
        sound 0 2 4 -- advise "$id"
        sound 0 2 4 10 11 12 13 -- compare "$id" "$id"
    done
    sound 0 -- report --history -o out.html
done
make 'for t, c in [("metric", "test"), ("advice", "evidence")]: db.execute(f"UPDATE {t} SET {c} = ?", ("[3]",))'
sound 0 -- report "$id" -o out.html
sound 0 2 4 10 11 12 13 -- compare "$id" "$id"

# ---- tables that are not sol's ----
make 'for t in ("run", "metric", "sample", "kernel", "advice", "artifact", "environment", "iteration", "ledger"):
    names = [r[1] for r in db.execute(f"PRAGMA table_info({t})")]
    rows = db.execute(f"SELECT * FROM {t}").fetchall()
    db.execute(f"DROP TABLE {t}")
    db.execute(f"CREATE TABLE {t}({chr(44).join(names)})")
    for row in rows:
        row = [None if n not in ("id", "run", "metric", "seq") else v for n, v in zip(names, row)]
        db.execute(f"INSERT INTO {t} VALUES({chr(44).join(chr(63) for n in names)})", row)
db.execute("CREATE TRIGGER t AFTER DELETE ON run BEGIN DELETE FROM run; END")'
for command in "runs" "runs show $id" "runs export $id" "report $id -o out.html" "report --history -o out.html" "advise $id" \
    "compare $id $id" "runs label $id a" "runs delete $id"; do
    # shellcheck disable=SC2086 # words
    sound 0 2 3 4 10 11 12 13 -- $command
done

exit $((failures != 0))
