# Trains and evaluates in a container.
#
#   docker build -t embodichain .                                     the processor; a small PyTorch
#   docker build -t embodichain --build-arg TORCH_INDEX= .            with CUDA: PyTorch as PyPI has it, several gigabytes
#   docker run --rm -v "$PWD/outputs:/work/outputs" embodichain train push_cube
#   docker run --rm --gpus all -v "$PWD/outputs:/work/outputs" embodichain train push_cube
FROM python:3.11-slim-bookworm

# OpenGL without a window, for videos and camera images; make for the locked set-up.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libegl1 libgl1 make \
    && rm -rf /var/lib/apt/lists/*

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /opt/embodichain
COPY . .
RUN make setup TORCH_INDEX="${TORCH_INDEX}"

# Not root: what a run writes belongs to the user with the usual first number, 1000.
RUN useradd --create-home --uid 1000 robot && install --directory --owner robot /work/outputs
USER robot
ENV PATH=/opt/embodichain/.venv/bin:$PATH
WORKDIR /work
ENTRYPOINT ["embodichain"]
CMD ["--help"]
