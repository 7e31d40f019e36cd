#!/bin/sh
# Runs all tests in two processes of about the same length, since most tests keep one core busy.
# Usage: scripts/run_tests.sh PYTHON [pytest arguments: then one process, with these]
set -u
python=$1
shift
if [ $# -gt 0 ]; then
    exec "$python" -m pytest "$@"
fi

others=$(mktemp)
trap 'rm -f "$others"' EXIT
# Its own cache: two processes would write one file.
"$python" -m pytest --ignore tests/agents --ignore tests/tools -o cache_dir=.pytest_cache/others >"$others" 2>&1 &
process=$!
trap 'kill $process 2>/dev/null; exit 130' INT TERM
"$python" -m pytest tests/agents tests/tools
learner=$?
wait $process
code=$?
cat "$others"
[ $learner -eq 0 ] && [ $code -eq 0 ]
