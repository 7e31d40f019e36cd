#!/bin/sh
# Measures, on a machine with a GPU, all that was never run on one, each step in at most 10 minutes:
# agreement of the backends, environments and training from 64 to 16384 environments with memory, camera images, time to
# success. A step that fails does not stop the others; the exit code is 1 then.
# Usage: scripts/gpu_check.sh [PYTHON] [DEVICE] [SIZES]     from the repository; e.g. .venv/bin/python cuda:0 "64 256"
#        scripts/gpu_check.sh .venv/bin/python warp:cpu 64  the same code without a GPU; trainings are cut short
set -u

python=${1:-.venv/bin/python}
device=${2:-cuda:0}
sizes=${3:-64 256 1024 4096 16384}
out=outputs/gpu_check
case $device in
    cuda*) rays=$device short= ;;
    *) # two small iterations: a training to the end takes longer than a step may
        rays=cpu
        short="trainer.iterations=2 trainer.num_envs=4 trainer.buffer_size=8 trainer.num_eval_envs=2
            trainer.num_eval_episodes=2 algorithm.cfg.batch_size=16"
        ;;
esac
mkdir -p "$out"
failed=

step() {
    name=$1
    shift
    echo "== $name: $*"
    if timeout 600 "$@" >"$out/$name.txt" 2>&1; then
        tail -n 25 "$out/$name.txt"
    else
        echo "FAILED with exit code $?; see $out/$name.txt"
        tail -n 5 "$out/$name.txt"
        failed="$failed $name"
    fi
}

step machine "$python" -m embodichain.cli doctor
step agreement "$python" -m pytest -q -m gpu tests
for task in PushCubeRL CartPoleRL PickCubeRL; do
    # shellcheck disable=SC2086
    step "speed_$task" "$python" -m benchmarks.gpu --device "$device" --task "$task" --num-envs $sizes
done
for number in $sizes; do
    step "cameras_$number" "$python" -m benchmarks.render --rays --device "$rays" --size 64 --num-envs "$number" --rounds 3
done
for task in cart_pole push_cube reach open_drawer go2_flat; do
    # shellcheck disable=SC2086
    step "training_$task" "$python" -m embodichain.cli train "$task" "trainer.sim_device=$device" $short
done
echo "== everything is in $out"
if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
