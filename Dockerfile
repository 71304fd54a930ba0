# For NVIDIA GPUs; with --build-arg VARIANT=cpu for machines without one. Built and run with:
#   docker build -t vivavoce .
#   docker run --gpus all --read-only --tmpfs /tmp -v vivavoce:/data -p 127.0.0.1:8998:8998 vivavoce
# The first start prints a password for the operator (`docker logs`).

# cuda or cpu
ARG VARIANT=cuda

FROM rust:1-bookworm AS source
WORKDIR /src
COPY .cargo .cargo
COPY .ci .ci
COPY Cargo.toml Cargo.lock ./
COPY benches benches
COPY migrations migrations
COPY server server
COPY ui ui

FROM source AS ui
RUN rustup target add wasm32-unknown-unknown && cargo run --locked --package ui-bundle

FROM source AS server-cpu
COPY --from=ui /src/ui/dist /ui
RUN UI_DIST=/ui cargo build --release --locked && cp target/release/vivavoce /vivavoce

FROM source AS server-cuda
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*
COPY --from=ui /src/ui/dist /ui
RUN UI_DIST=/ui .ci/cuda --release && cp target/release/vivavoce /vivavoce

FROM debian:bookworm-slim AS runtime-cpu

# The driver comes from the host. The library for matrix products is opened at run time.
FROM nvidia/cuda:13.0.1-base-ubuntu24.04 AS runtime-cuda
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libcublas-13-0 && rm -rf /var/lib/apt/lists/*

# hadolint ignore=DL3006
FROM server-${VARIANT} AS server

# hadolint ignore=DL3006
FROM runtime-${VARIANT}
RUN useradd --system --uid 10001 --home-dir /data vivavoce && install -d -o vivavoce /data
COPY --from=server /vivavoce /usr/local/bin/vivavoce
COPY LICENSE-MIT LICENSE-APACHE NOTICE /usr/share/doc/vivavoce/
# By number, so that a cluster can see that it is not root.
USER 10001
VOLUME /data
EXPOSE 8998
ENV VIVAVOCE_DATA_DIR=/data VIVAVOCE_LISTEN=0.0.0.0:8998
STOPSIGNAL SIGTERM
# Alive is enough: a full house is not sick, and a model that is being loaded is not either.
HEALTHCHECK --interval=15s --timeout=3s --start-period=120s CMD ["bash", "-c", \
  "exec 3<>/dev/tcp/127.0.0.1/${VIVAVOCE_LISTEN##*:} && printf 'GET /livez HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && head -1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["vivavoce"]
CMD ["serve"]
