# encoderd as an image: the server, the client that probes it, and the shared libraries of both.
#
#   docker build -t encoderd .            # or: buildah bud --format docker -t encoderd .
#   docker build --target test .          # builds and runs the tests as well
#   docker run --rm --read-only --cap-drop ALL -p 127.0.0.1:50051:50051 -p 127.0.0.1:9090:9090 \
#     -v /path/to/model:/models:ro encoderd
#
# An image that brings its model:
#   printf 'FROM encoderd\nCOPY . /models\n' | docker build -t my-encoderd -f - /path/to/model

# ---- The programs ------------------------------------------------------------------------------
FROM debian:trixie-slim AS build
WORKDIR /src
# What changes less often comes first: packages, then sources.
COPY deploy/debian13.sh deploy/packages.txt deploy/
RUN deploy/debian13.sh true
# As debian13.sh sets it elsewhere.
ENV LANG=C.UTF-8
COPY CMakeLists.txt CMakePresets.json ./
COPY deploy/CMakeLists.txt deploy/
COPY deploy/client deploy/client
COPY engine engine
COPY proto proto
COPY server server
# Symbols stay, so that the stack of a crash has names; what only a debugger reads goes.
RUN --mount=type=cache,target=/root/.cache/ccache \
    export CCACHE_DIR=/root/.cache/ccache \
 && cmake --preset release -DENCODERD_BUILD_TESTS=OFF -DENCODERD_BUILD_BENCHMARKS=OFF \
 && cmake --build --preset release --target encoderd encoderctl_slim \
 && mkdir /programs \
 && strip --strip-debug -o /programs/encoderd build/release/bin/encoderd \
 && strip --strip-debug -o /programs/encoderctl build/release/bin/encoderctl_slim

# ---- The tests, where they are asked for -----------------------------------------------------------
FROM build AS test
RUN deploy/debian13.sh --with test true
COPY . .
RUN --mount=type=cache,target=/root/.cache/ccache \
    CCACHE_DIR=/root/.cache/ccache tests/run.sh

# ---- What runs -----------------------------------------------------------------------------------
FROM debian:trixie-slim
# Shared libraries, each a package: a scanner sees their versions, and building anew mends them.
RUN --mount=type=bind,source=deploy,target=/deploy \
    apt-get update \
 && apt-get install -y --no-install-recommends $(/deploy/debian13.sh --packages runtime) \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf /var/cache/ldconfig /var/log/*
COPY LICENSE /usr/share/doc/encoderd/copyright
COPY --from=build /programs/ /usr/bin/

# A number, so that Kubernetes can see that it is not root. Nothing is written anywhere: the root
# file system may be read-only, and any other user does as well.
USER 65532:65532
WORKDIR /
EXPOSE 50051 9090
STOPSIGNAL SIGTERM
# The port for health speaks plaintext, whatever the other does, and is open to the container alone.
HEALTHCHECK --interval=10s --timeout=2s --start-period=2m \
  CMD ["/usr/bin/encoderctl", "health", "--address=127.0.0.1:50052", "--timeout=1s"]
# Arguments of `docker run` follow the entry point's and win over them. They replace the command:
# so a server on all addresses speaks plaintext only where nothing or --plaintext was said.
ENTRYPOINT ["/usr/bin/encoderd", "--model_dir=/models", "--listen=0.0.0.0:50051", \
            "--metrics_listen=0.0.0.0:9090", "--health_listen=127.0.0.1:50052"]
CMD ["--plaintext"]

# Last, because they differ from build to build.
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="encoderd" \
      org.opencontainers.image.description="Inference server for transformer encoders on CPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="debian:trixie-slim" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
