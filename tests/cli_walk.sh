#!/usr/bin/env bash
# The first walk of docs/OPTIMISE.md, as it stands: its commands work and print what the document shows.
. "${SOL_SOURCE_DIR:?ctest sets it}/tests/support/cli.sh"
for tool in git make cc python3; do
    command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 0; }
done
[ "${SOL_EMULATED:-}" ] && { echo "skipped: emulated builds take too long"; exit 0; }
mkdir "$work/bin"
ln -s "$SOL_BINARY" "$work/bin/sol"
export PATH=$work/bin:$PATH HOME=$work GIT_CONFIG_NOSYSTEM=1
git config --global user.name walker
git config --global user.email walker@example.org
cd "$work" || exit 1
python3 "$SOL_SOURCE_DIR/tests/walk.py" "$SOL_SOURCE_DIR/docs/OPTIMISE.md" "A tree of your own"
