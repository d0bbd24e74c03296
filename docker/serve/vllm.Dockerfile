# The image of the pods of a served model (charts/serve) on TPUs or GPUs: an image with vLLM, to which this adds Ray Serve
# and Slipway's application. BASE is an image of vLLM for your chips, with Python and its digest or version:
#   docker build --file docker/serve/vllm.Dockerfile --build-arg BASE=… --tag registry.example.com/slipway-serve:0.1.0 .
ARG BASE
FROM ${BASE}
# The charts run it as user 1000, which the base does not have. A login shell sets its own PATH, so /etc/profile.d has
# that of the base.
# Apart from Ray, all packages of the base keep their versions: the build fails if Ray needs others.
RUN python3 -m pip list --format=freeze --exclude ray > /tmp/base.txt && \
    python3 -m pip install --no-cache-dir --constraint /tmp/base.txt "ray[default,serve]==2.60.0" && \
    rm /tmp/base.txt && \
    install -d -o 1000 -g 1000 /home/slipway && \
    echo "PATH=$PATH" > /etc/profile.d/slipway.sh
COPY trainer /opt/slipway/trainer
ENV PYTHONPATH=/opt/slipway \
    HOME=/home/slipway \
    USER=slipway \
    PYTHONUNBUFFERED=1 \
    VLLM_NO_USAGE_STATS=1
USER 1000:1000
WORKDIR /home/slipway
ENTRYPOINT []
