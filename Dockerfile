# encoderd as an image: built in one stage, carried with its shared libraries alone in the other.
#
#   docker build -t encoderd .
#   docker run --rm -p 50051:50051 -p 9090:9090 -v /path/to/model:/models:ro encoderd

FROM debian:trixie-slim AS build
WORKDIR /src
# The packages come first: they change less often than the sources.
COPY deploy/debian13.sh deploy/packages.txt deploy/
RUN deploy/debian13.sh true
COPY . .
RUN cmake --preset release -DENCODERD_BUILD_TESTS=OFF -DENCODERD_BUILD_BENCHMARKS=OFF \
 && cmake --build --preset release --target encoderd \
 && strip --strip-debug build/release/bin/encoderd

FROM debian:trixie-slim
RUN --mount=type=bind,source=deploy,target=/deploy \
    apt-get update \
 && apt-get install -y --no-install-recommends $(/deploy/debian13.sh --packages runtime) \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/build/release/bin/encoderd /usr/bin/encoderd
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
EXPOSE 50051 9090
ENTRYPOINT ["/usr/bin/encoderd", "--model_dir=/models", \
            "--listen=0.0.0.0:50051", "--metrics_listen=0.0.0.0:9090", "--plaintext"]
