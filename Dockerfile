# Trains and evaluates in a container.
#
#   docker build -t embodichain .                                     the processor; a small PyTorch
#   docker build -t embodichain --build-arg TORCH_INDEX= .            with CUDA: PyTorch as PyPI has it, several gigabytes
#   mkdir -p outputs    or Docker makes it, as root
#   docker run --rm --user "$(id -u)" -v "$PWD/outputs:/work/outputs" embodichain train push_cube
#   docker run --rm --user "$(id -u)" --gpus all -v "$PWD/outputs:/work/outputs" embodichain train push_cube
FROM python:3.11-slim-bookworm

# OpenGL without a window, for videos and camera images; make for the locked set-up.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libegl1 libgl1 make \
    && rm -rf /var/lib/apt/lists/*

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /opt/embodichain
COPY . .
RUN make setup TORCH_INDEX="${TORCH_INDEX}"

# Not root: with --user, what a run writes belongs to the user who started it. Libraries keep files at home, so that any
# user may write there.
RUN useradd --create-home --uid 1000 robot && chmod 1777 /home/robot && install --directory --mode 1777 /work/outputs
USER robot
ENV PATH=/opt/embodichain/.venv/bin:$PATH HOME=/home/robot
WORKDIR /work
ENTRYPOINT ["embodichain"]
CMD ["--help"]
