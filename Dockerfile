# The CPU image with the built-in demo. Built and run with:
#   docker build -t vivavoce .
#   docker run --read-only --tmpfs /tmp -v vivavoce:/data -p 127.0.0.1:8998:8998 vivavoce
# The first start prints a password for the operator (`docker logs`).

FROM rust:1-bookworm AS server
WORKDIR /src
COPY . .
RUN cargo build --release --locked && cp target/release/vivavoce /vivavoce

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --home-dir /data vivavoce && install -d -o vivavoce /data
COPY --from=server /vivavoce /usr/local/bin/vivavoce
COPY LICENSE-MIT LICENSE-APACHE NOTICE /usr/share/doc/vivavoce/
USER vivavoce
VOLUME /data
EXPOSE 8998
ENV VIVAVOCE_DATA_DIR=/data VIVAVOCE_LISTEN=0.0.0.0:8998
STOPSIGNAL SIGTERM
# Alive is enough: a full house is not sick, and loading has its own start period.
HEALTHCHECK --interval=15s --timeout=3s --start-period=120s CMD ["bash", "-c", \
  "exec 3<>/dev/tcp/127.0.0.1/8998 && printf 'GET /livez HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && head -1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["vivavoce"]
CMD ["serve"]
