# The image of every role: `make image` builds it, docs/image.md says what is inside.
#
# ARG BASE is any image with Python 3.10 or later and its venv module. pip's settings for a mirror come as the secrets
# pip.conf and ca.crt, both optional; they are mounted while pip runs, and no layer keeps them.

ARG BASE=docker.io/library/python:3.12.12-slim-bookworm
# amd64 or arm64; Docker sets it by itself.
ARG TARGETARCH

# Kernels are compiled for x86-64-v3 (AVX2), and for x86-64-v2, which core/machine/kernels.py takes on a machine without.
# Numba finds machine code by these names, so they are set at run time too.
FROM ${BASE} AS cpu-amd64
ENV NUMBA_CPU_NAME=x86-64-v3

FROM ${BASE} AS cpu-arm64
ENV NUMBA_CPU_NAME=generic

FROM cpu-${TARGETARCH} AS base
ENV NUMBA_CPU_FEATURES="" \
    NUMBA_CACHE_DIR=/opt/stream-learner/kernels \
    PATH=/opt/stream-learner/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1
# Some images leave out Python's own byte code; no start could keep it on a read-only root.
RUN python3 -c "import sysconfig; print(sysconfig.get_path('stdlib'))" \
    | xargs python3 -m compileall -q -x '/(test|tests|idlelib|lib2to3|tkinter|site-packages|dist-packages)/'

FROM base AS build
WORKDIR /build
RUN python3 -m venv pip && python3 -m venv --without-pip /opt/stream-learner
COPY requirements/build.lock requirements/runtime.lock ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.crt,target=/run/secrets/ca.crt \
    export PIP_NO_CACHE_DIR=1 PIP_REQUIRE_HASHES=1 PIP_ONLY_BINARY=:all: PIP_NO_COMPILE=1 \
    && pip/bin/pip install --quiet -r build.lock \
    && pip/bin/pip --python /opt/stream-learner install --quiet -r runtime.lock
COPY pyproject.toml README.md LICENSE source/
COPY tools/wheel_metadata.py source/tools/
COPY stream_learner source/stream_learner
RUN pip/bin/pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir wheel ./source \
    && pip/bin/pip --python /opt/stream-learner install --quiet --no-deps --no-index --no-compile wheel/*.whl \
    && find /opt/stream-learner/lib -type d -name tests -prune -exec rm -r {} + \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/stream-learner/lib
RUN case "$NUMBA_CPU_NAME" in x86-64-v3) set -- x86-64-v3 x86-64-v2 ;; *) set -- "$NUMBA_CPU_NAME" ;; esac \
    && for cpu in "$@"; do NUMBA_CPU_NAME=$cpu stream-learner compile || exit 1; done \
    && chmod -R u=rwX,go=rX /opt/stream-learner

FROM base
COPY --from=build /opt/stream-learner /opt/stream-learner
# Nothing is installed here at run time. The state's folder is writable for the image's user, and for group 0, which
# clusters that give each pod a user of its own put it into.
RUN if python3 -m pip --version >/dev/null 2>&1; then python3 -m pip uninstall --quiet --yes pip; fi \
    && install -d -m 755 /etc/stream-learner \
    && echo '# Settings: mount a file over this one, or set STREAM_LEARNER__SECTION__NAME.' \
        > /etc/stream-learner/config.yaml \
    && install -d -o 10001 -g 0 -m 770 /var/lib/stream-learner
ENV STREAM_LEARNER_CONFIG=/etc/stream-learner/config.yaml
WORKDIR /var/lib/stream-learner
VOLUME /var/lib/stream-learner
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["stream-learner"]
CMD ["--help"]

ARG VERSION=""
ARG REVISION=""
ARG SOURCE=""
LABEL org.opencontainers.image.title="stream-learner" \
      org.opencontainers.image.description="An online learner for click-through rates that lives on Kafka" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
