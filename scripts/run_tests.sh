#!/bin/sh
# Runs all tests in three processes: two keep two cores busy, while a third waits for what it has started.
# Usage: scripts/run_tests.sh PYTHON [pytest arguments: then one process, with these]
set -u
python=$1
shift
if [ $# -eq 0 ]; then
    # The slowest tests are listed, so that they do not creep in. One of them runs the core's unit tests.
    # pyproject.toml leaves out tests/ext, and pytest 9 does so even where it is named after tests.
    set -- --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 15 -m "not core" \
        --override-ini "norecursedirs=.* build dist" tests
fi
# Tests start many processes: without bytecode each would compile what it imports.
unset PYTHONDONTWRITEBYTECODE
# A second thread in each process would only wait for the other's core.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$python" -m pytest "$@"
