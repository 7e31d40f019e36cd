#!/bin/sh
# Runs all tests in two processes, since most tests keep one core busy.
# Usage: scripts/run_tests.sh PYTHON [pytest arguments: then one process, with these]
set -u
python=$1
shift
if [ $# -eq 0 ]; then
    # The slowest tests are listed, so that they do not creep in.
    set -- --numprocesses 2 --dist loadfile --durations 15
fi
exec "$python" -m pytest "$@"
