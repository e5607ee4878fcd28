#!/usr/bin/env bash
# What sol opt does to a tree that is the user's: nothing is lost, and only what was measured is committed.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
export HOME="$work" GIT_CONFIG_NOSYSTEM=1
tree=$work/tree
command -v git >/dev/null || { echo "skipped: no git"; exit 0; }

# opt STATUS ARGUMENT...
opt() {
    local expected=$1
    shift
    (cd "$tree" && "$SOL_BINARY" opt "$@") >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status = "$expected" ] || fail "sol opt $*: status $status, expected $expected"
}
git_() { git -C "$tree" "$@"; }
make_tree() { # [CORRECTNESS]
    rm -rf "$tree"
    mkdir -p "$tree/d"
    (cd "$tree" && git init -q && git config user.email t@example.org && git config user.name t &&
        echo 10 >time && echo old >a && echo old >d/b && echo old >c && git add -A && git commit -qm first) || fail git
    cat >"$tree/sol-opt.json" <<JSON
{"benchmark": "cat time", "metrics": ["regex:([0-9.]+)"], "correctness": "${1:-true}", "perplexity": null,
 "exclude": ["*.log"]}
JSON
}
# The working tree and the index as one text.
state() { (cd "$tree" && git ls-files -s && git status --porcelain && find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha1sum); }
clean() { [ "$(git_ status --porcelain)" = "?? sol-opt.json" ] || fail "$1: $(git_ status --porcelain | tr '\n' ' ')"; }

# ---- record, revert, restore: the tree and the index, exactly ----
make_tree
opt 0 start "all kinds of changes" -q
(cd "$tree" && echo staged >a && git add a && echo edited >a && git rm -q c && git mv d/b d/moved && rm time && mkdir time &&
    printf 'new\0\377' >time/file && chmod +x d/moved && ln -s /etc/passwd link && echo n >added && git add added && rm added)
before=$(state)
opt 0 record -q
opt 0 revert -q
clean "reverted"
git_ diff --quiet HEAD || fail "the files are not the base's"
opt 0 history last --diff
(cd "$tree" && git apply --check "$work/out") || fail "the diff that is shown does not apply"
opt 0 restore -q
[ "$(state)" = "$before" ] || { state >"$work/out"; echo "$before" >"$work/err"; fail "restore does not bring everything back"; }
opt 0 revert -q
clean "reverted again"
opt 2 restore '#7' -q
opt 2 restore --change 9 -q
echo mine >"$tree/a"
opt 2 restore -q
has err '1 files differ .*first is a'
[ "$(cat "$tree/a")" = mine ] || fail "restore overwrote an edit"
git_ checkout -q a

# ---- a record is never replaced ----
opt 0 start "recorded twice" -q
echo 1 >"$tree/a"
echo 1 >"$tree/c"
opt 0 record -q
git_ checkout -q a
echo 2 >"$tree/c"
opt 0 record -q
opt 0 record -q
opt 0 history last
has out 'change 2 of 2'
opt 0 history last --diff --change 1
has out '^\+1'
is "files of the first change" "$(grep -c '^diff' "$work/out")" 2
opt 0 revert -q
opt 0 restore --change 1 -q
is "the first change" "$(cat "$tree/a" "$tree/c" | tr '\n' ' ')" "1 1 "
opt 0 revert -q

# ---- a revert that is interrupted goes on, whatever was edited meanwhile ----
opt 0 start "interrupted" -q
for i in $(seq 60); do echo new >"$tree/d/f$i"; done
echo 3 >"$tree/a"
opt 0 record -q
# A git that dies while it writes files: half of the work is done, the lock stays.
mkdir "$work/bin"
cat >"$work/bin/git" <<GIT
#!/bin/sh
case "\$*" in *restore*) touch "$tree/.git/index.lock"; echo half >"$tree/a"; kill -KILL \$\$ ;; esac
exec "$(command -v git)" "\$@"
GIT
chmod +x "$work/bin/git"
old_path=$PATH
PATH=$work/bin:$PATH
opt 3 revert -q
has err 'git restore'
PATH=$old_path
opt 0 status
has out '^next: sol opt revert'
opt 2 revert -q
has err "$tree/.git/index.lock exists"
rm "$tree/.git/index.lock"
echo "edited meanwhile" >"$tree/c"
opt 0 revert -q
has out 'what was left half-way is kept too'
clean "an interrupted revert"
opt 0 restore --change 1 -q
is "the recorded file" "$(cat "$tree/a")" 3
opt 0 revert -q
opt 0 history last --diff
has out 'edited meanwhile'
has out '^\+half'

# ---- Ctrl-C during a revert: it ends well or goes on ----
opt 0 start "Ctrl-C" -q
for i in $(seq 300); do echo "x $i" >"$tree/d/g$i"; done
opt 0 record -q
# A git that was under way ends what it does.
nobody_there() { ! readlink /proc/[0-9]*/cwd 2>/dev/null | grep -qx -- "$tree"; }
for signal in INT TERM HUP KILL; do
    { (cd "$tree" && timeout -s $signal 0.1 "$SOL_BINARY" opt revert -q); } >/dev/null 2>&1
    until_ "git goes on" nobody_there
    opt 0 history last -o json
    grep -q '"state": "reverted"' "$work/out" && opt 0 restore -q
    [ -e "$tree/.git/index.lock" ] && fail "$signal left git's lock"
done
opt 0 revert -q
clean "reverted after signals"
opt 0 history last -o json
is "recorded changes" "$(grep -c '"diff_bytes"' "$work/out")" 1

# ---- what git is told not to look at is looked at before it is overwritten ----
precious() { # WHAT FILE
    grep -qx precious "$tree/$2" || fail "$1: $2 was overwritten"
}
make_tree
printf 'gen/\n' >"$tree/.gitignore"
git_ add .gitignore
git_ commit -qm ignore
opt 0 start "ignored, assumed, skipped" -q
: >"$tree/.gitignore"
mkdir "$tree/gen" "$tree/nd"
echo table >"$tree/gen/table"
echo f >"$tree/nd/f"
echo edited >"$tree/a"
git_ rm -q c
opt 0 record -q
opt 0 revert -q
clean "reverted"
mkdir -p "$tree/gen"
echo precious >"$tree/gen/table"
opt 2 restore -q
has err 'is gen/table'
precious ignored gen/table
rm -r "$tree/gen"
for flag in assume-unchanged skip-worktree; do
    git_ update-index --$flag a c || fail "$flag"
    echo precious >"$tree/a"
    opt 2 restore -q
    precious $flag a
    git_ checkout -q a 2>/dev/null
    echo old >"$tree/a"
    echo precious >"$tree/c"
    opt 2 restore -q
    precious $flag c
    echo old >"$tree/c"
    git_ update-index --no-$flag a c
done
(mkdir -p "$tree/nd" && cd "$tree/nd" && git init -q && echo precious >f)
opt 2 restore -q
precious "a nested repository" nd/f
rm -rf "$tree/nd"
opt 0 restore -q
opt 0 revert -q
clean "after all that"
git_ update-index --assume-unchanged time
opt 0 start "hidden from the commit" -q
echo 5 >"$tree/time"
echo 1 >"$tree/a"
opt 0 status
has out '2 files: a time'
git_ update-index --no-assume-unchanged time
opt 0 record -q
opt 0 revert -q
echo key >"$tree/secret"
echo secret >>"$tree/.git/info/exclude"
opt 0 start "ignored before, not any more" -q
: >"$tree/.git/info/exclude"
opt 0 status
has out '0 files'
opt 0 revert --keep -q
rm "$tree/secret"

# ---- an edit while a revert is under way ----
opt 0 start "edited meanwhile" -q
for i in $(seq 250); do echo new >"$tree/d/h$i"; done
echo new >"$tree/a"
opt 0 record -q
cat >"$work/bin/git" <<GIT
#!/bin/sh
case "\$*" in *restore*) ;; *update-index*--index-info*) [ -e "$work/once" ] || { touch "$work/once"; echo precious >"$tree/d/h99"; } ;; esac
exec "$(command -v git)" "\$@"
GIT
PATH=$work/bin:$PATH
opt 2 revert -q
PATH=$old_path
has err 'd/h99'
precious "an edit during revert" d/h99
opt 0 revert -q
opt 0 history last --diff
has out '^\+precious'
clean "reverted in the end"

# ---- a killed restore goes on; attributes of the change, not of the moment ----
echo '*.txt text eol=crlf' >"$tree/.gitattributes"
printf 'one\r\ntwo\r\n' >"$tree/z.txt"
git_ add -A
git_ reset -q sol-opt.json
git_ commit -qm attributes
opt 0 start "attributes" -q
git_ rm -q --cached .gitattributes
rm "$tree/.gitattributes"
printf 'one\nthree\n' >"$tree/z.txt"
echo n >"$tree/n"
opt 0 record -q
opt 0 revert -q
is "line ends of the base" "$(od -c "$tree/z.txt" | grep -c '\\r')" 1
cat >"$work/bin/git" <<GIT
#!/bin/sh
case "\$*" in *restore*) "$(command -v git)" "\$@"; echo half >"$tree/z.txt"; kill -KILL \$\$ ;; esac
exec "$(command -v git)" "\$@"
GIT
PATH=$work/bin:$PATH
opt 3 restore -q
PATH=$old_path
opt 0 status
has out '^next: sol opt restore o[0-9a-f]{8} --change 1$'
# shellcheck disable=SC2046 # its words
opt 0 $(sed -n 's/^next: sol opt //p' "$work/out") -q
is "line ends of the change" "$(od -c "$tree/z.txt" | grep -c '\\r')" 0
opt 0 revert -q

# ---- bytes that git does not keep; flags and entries of the index that are not the change's ----
make_tree
git_ config filter.strip.clean "sed /output/d"
git_ config filter.strip.smudge cat
printf '*.nb filter=strip\n*.bin text\n' >"$tree/.gitattributes"
printf 'in\n' >"$tree/x.nb"
git_ add .gitattributes x.nb
git_ commit -qm filters
opt 0 start "a filter that drops bytes" -q
printf 'in 2\noutput precious\n' >"$tree/x.nb"
echo 1 >"$tree/a"
opt 0 record -q
opt 2 revert -q
has err 'bytes that git does not keep .*is x\.nb'
grep -q precious "$tree/x.nb" || fail "a filter's output was lost"
is "a file beside it" "$(cat "$tree/a")" 1
printf 'in 2\n' >"$tree/x.nb"
printf 'a\r\nb\n' >"$tree/x.bin"
opt 0 record -q
opt 2 revert -q
has err 'is x\.bin'
is "line ends" "$(od -An -c "$tree/x.bin" | grep -c '\\r')" 1
rm "$tree/x.bin"
opt 0 record -q
opt 0 revert -q
printf 'in\noutput precious\n' >"$tree/x.nb" # git sees no difference here
opt 2 restore -q
grep -q precious "$tree/x.nb" || fail "restore lost a filter's output"
git_ checkout -q x.nb
printf 'in\n' >"$tree/x.nb"
opt 0 restore -q
opt 0 revert -q
clean "after filters"
opt 0 start "flags of the index" -q
echo other >"$work/other"
git_ update-index --cacheinfo "100644,$(git_ hash-object -w "$work/other"),d/b"
git_ update-index --assume-unchanged c
git_ update-index --skip-worktree d/b
rm -r "$tree/d"
echo 1 >"$tree/c"
opt 0 record -q
opt 0 history last --staged
has out '^\+other'
grep -q 'b/c' "$work/out" && fail "--staged shows more than the index"
opt 0 revert -q
is "flags after a revert" "$(git_ ls-files -v c d/b | tr '\n' ' ')" "h c S d/b "
is "what is staged" "$(git_ diff --cached --name-only)" ""
[ ! -e "$tree/d" ] || fail "revert made a file that the index leaves out"
git_ update-index --no-skip-worktree d/b
git_ update-index --no-assume-unchanged c
git_ checkout -q d/b
rm "$tree/c"
mkdir "$tree/c"
echo mine >"$tree/c/mine"
opt 0 start "an entry in the way" --with-changes -q
git_ add c/mine
opt 0 record -q
before=$(state)
opt 2 revert -q
has err 'the index has c/mine'
[ "$(state)" = "$before" ] || fail "a refused revert changed something"
opt 0 revert --keep -q

# ---- accept: what was not measured is not committed ----
measured() {
    git_ reset -q --hard
    echo 5 >"$tree/time"
    opt 10 compare -q
}
make_tree "echo written >a; echo 9 >time"
head=$(git_ rev-parse HEAD)
opt 0 start "a correctness command that writes" -q
measured
opt 7 accept -q
has out 'content +failed +2 files changed while the gates ran: a time'
has out '^next: sol opt compare'
is HEAD "$(git_ rev-parse HEAD)" "$head"
is "what the command wrote" "$(cat "$tree/a" "$tree/time" | tr '\n' ' ')" "written 9 "
opt 0 history last --diff
has out '^\+5$'
opt 0 revert --keep -q
make_tree "echo 4 >time; sleep 0.1; echo 5 >time; echo x >made.log"
opt 0 start "put back in time; a log that is excluded" -q
echo "not part of it" >"$tree/mine.log"
measured
printf '#!/bin/sh\necho hook >d/b; git add d/b\n' >"$tree/.git/hooks/pre-commit"
chmod +x "$tree/.git/hooks/pre-commit"
head=$(git_ rev-parse HEAD)
opt 7 accept -q
has err 'nothing is committed.*a hook'
is "HEAD after a hook that writes" "$(git_ rev-parse HEAD)" "$head"
printf '#!/bin/sh\necho go away >&2; exit 1\n' >"$tree/.git/hooks/pre-commit"
git_ checkout -q d/b
opt 3 accept -q
has err 'go away'
rm "$tree/.git/hooks/pre-commit"
touch "$tree/.git/MERGE_HEAD"
opt 2 accept -q
has err 'a merge'
rm "$tree/.git/MERGE_HEAD"
opt 0 accept -q
is "what is committed" "$(git_ show HEAD:time)" 5
is "its files" "$(git_ show --format= --name-only HEAD)" time
clean_logs=$(git_ status --porcelain | tr '\n' ' ')
is "what is left" "$clean_logs" "?? made.log ?? mine.log ?? sol-opt.json "

# ---- files that go, move, become folders; what is staged elsewhere stays staged ----
make_tree
opt 0 start "removed and moved" -q
(cd "$tree" && git rm -q c && git mv d/b d/moved && rm a && mkdir a && echo 1 >a/x && echo 5 >time)
opt 10 compare -q
echo later >"$tree/later.log"
git_ add -f later.log
opt 0 accept -q
is "the commit" "$(git_ show --format= --name-status --no-renames HEAD | tr '\t\n' '  ')" "D a A a/x D c D d/b A d/moved M time "
is "the rest" "$(git_ status --porcelain | tr '\n' ' ')" "A  later.log ?? sol-opt.json "

# ---- hooks that change the message, a commit that is interrupted, what is written while a build runs ----
make_tree
sed -i 's/"benchmark"/"build": "sleep 0.3; cat time >built", "benchmark"/' "$tree/sol-opt.json"
printf '#!/bin/sh\necho other >"$1"\n' >"$tree/.git/hooks/commit-msg"
chmod +x "$tree/.git/hooks/commit-msg"
opt 0 start "hooks" -q
echo 5 >"$tree/time"
(sleep 0.1; echo mine >"$tree/new") &
opt 10 compare -q
has out 'left out of the change: built$'
wait
opt 0 accept -q
is "a commit with another message" "$(git_ log -1 --format=%s)" other
is "its files" "$(git_ show --format= --name-only HEAD | tr '\n' ' ')" "new time "
rm "$tree/.git/hooks/commit-msg"
printf '#!/bin/sh\nkill -TERM "$(cat "%s")"; sleep 2\n' "$work/pid" >"$tree/.git/hooks/post-commit"
chmod +x "$tree/.git/hooks/post-commit"
opt 0 start "interrupted behind the commit" -q
echo 4 >"$tree/time"
opt 10 compare -q
(cd "$tree" && exec "$SOL_BINARY" opt accept -q) >"$work/out" 2>"$work/err" &
echo $! >"$work/pid"
wait $!
rm "$tree/.git/hooks/post-commit"
opt 0 accept -q
has out 'accepted iteration'
is "one commit" "$(git_ log --format=%s | grep -c 'interrupted behind')" 1

# ---- where sol does not go ----
# A commit that git would fetch with a command of the tree's.
mkdir -p "$work/partial"
(cd "$work/partial" && git init -q && git -c user.name=t -c user.email=t commit -q --allow-empty -m x &&
    git config core.repositoryformatversion 1 && git config extensions.partialClone origin &&
    git config remote.origin.url "$work/tree" && git config remote.origin.promisor true &&
    git config remote.origin.uploadpack "touch '$work/fetched'; false" &&
    head=$(git rev-parse HEAD) && rm -f ".git/objects/${head:0:2}/${head:2}")
for verb in init history summary; do (cd "$work/partial" && "$SOL_BINARY" opt $verb) >"$work/out" 2>"$work/err"; done
[ ! -e "$work/fetched" ] || fail "opt init, history or summary ran a command of the tree"
(cd "$work/partial" && git show HEAD) >/dev/null 2>&1
[ -e "$work/fetched" ] || fail "the trap of the partial clone is not set"
mkdir -p "$work/n"
git init -q "$work/n/a"
(cd "$work/n/a" && git -c user.name=t -c user.email=t commit -q --allow-empty -m x && cp -r "$work/n/a" "$work/n/a
b" && cd "$work/n/a
b" && "$SOL_BINARY" opt status) >"$work/out" 2>"$work/err" && fail "a tree whose name has a line break"
has err 'line break'
rm "$tree/sol-opt.json"
ln -s "$work/elsewhere.json" "$tree/sol-opt.json"
opt 2 init -q
opt 2 init --force -q
[ ! -e "$work/elsewhere.json" ] || fail "init wrote through a link"

# ---- a store whose name is relative, one in the tree, a large change, bytes that are no text ----
make_tree
head -c 26000000 /dev/urandom >"$work/noise"
(cd "$work" && SOL_STORE="" && unset SOL_STORE &&
    "$SOL_BINARY" opt start "large" --store some/store --tree tree -q && cp noise tree/noise && printf 'caf\351 \n' >tree/latin &&
    echo 5 >tree/time &&
    "$SOL_BINARY" opt benchmark --store some/store --tree tree -q && "$SOL_BINARY" opt record --store some/store --tree tree -q &&
    "$SOL_BINARY" opt revert --store some/store --tree tree -q && [ ! -e tree/noise ] &&
    "$SOL_BINARY" opt restore --store some/store --tree tree -q && cmp noise tree/noise &&
    [ -d some/store/opt ] && [ ! -d tree/some ] && cmp tree/latin <(printf 'caf\351 \n')) >"$work/out" 2>"$work/err" ||
    fail "a large change in a relative store"
make_tree
export SOL_STORE=$tree/.store
opt 0 start "the store is in the tree" -q
echo 5 >"$tree/time"
opt 10 compare -q
opt 0 record -q
opt 0 status
has out '^changed +1 file: time$'
opt 0 revert -q
[ -e "$SOL_STORE/store.db" ] || fail "revert removed the store"
export SOL_STORE=$work/store

# ---- a store that wants to reach outside ----
make_tree
opt 0 start "hostile" -q
echo 5 >"$tree/time"
opt 0 record -q
echo victim >"$work/victim"
python3 - "$SOL_STORE/store.db" <<'PY' || fail "python3 cannot write the store"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
diff = b"""diff --git a/../victim b/../victim
deleted file mode 100644
--- a/../victim
+++ /dev/null
@@ -1 +0,0 @@
-victim
"""
db.execute("UPDATE change SET files = '[\"../victim\", \".git/config\"]', diff = ?, staged_diff = ?", (diff, diff))
db.commit()
PY
opt 3 revert -q
opt 3 restore -q
[ "$(cat "$work/victim")" = victim ] && [ -e "$tree/.git/config" ] || fail "a store reached outside"
python3 - "$SOL_STORE/store.db" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE iteration SET base_commit = '--output=victim'")
db.commit()
PY
opt 4 revert -q
has err 'is damaged'

# One whose tables are not ours: nothing is where our own never leave anything out.
python3 - "$SOL_STORE/store.db" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for table, columns in (("change", "iteration, number, created, content, staged, files, diff, staged_diff"), ("iteration", None)):
    columns = columns or ", ".join(row[1] for row in db.execute("PRAGMA table_info(iteration)"))
    db.execute("ALTER TABLE %s RENAME TO old" % table)
    db.execute("CREATE TABLE %s(%s)" % (table, columns))
    db.execute("INSERT INTO %s SELECT * FROM old" % table)
    db.execute("DROP TABLE old")
db.execute("UPDATE iteration SET state = NULL, hypothesis = NULL, payload = '[', created = 'x'")
db.execute("UPDATE change SET files = NULL, diff = NULL, number = 1")
db.commit()
PY
for verb in status history summary "history last" "history last --diff" "history last -o json" revert restore record; do
    # shellcheck disable=SC2086 # words apart
    (cd "$tree" && "$SOL_BINARY" opt $verb) >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status -lt 5 ] || fail "sol opt $verb: status $status with a store of other tables"
done

# Links in it, and a baseline that is a repository of its own, with a filter.
export SOL_STORE=$work/linked
make_tree
opt 0 start "links" -q
echo 5 >"$tree/time"
folder=$(echo "$SOL_STORE"/opt/*/lock)
folder=${folder%/lock}
for name in names input index listing entries diff patch message baseline.state.new; do ln -sf "$work/victim" "$folder/$name"; done
rm -rf "$folder/baseline"* && mkdir "$folder/baseline"
(cd "$folder/baseline" && git init -q && git config filter.x.smudge "touch '$work/canary'; cat" && echo '* filter=x' >.git/info/attributes)
opt 10 compare -q
opt 0 record -q
opt 0 revert -q
[ "$(cat "$work/victim")" = victim ] && [ ! -e "$work/canary" ] || fail "links in a store were followed"
mv "$folder" "$work/elsewhere" && ln -s "$work/elsewhere" "$folder"
opt 4 start "a folder that is a link" -q
has err 'leads out of the store'

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
