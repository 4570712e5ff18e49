# outboxd in a container. The default target is the daemon; `--target samples` is the pair of sample programs that
# docker-compose.yml shows it with. Nothing here names an architecture: amd64 and arm64 build alike.

FROM rust:1-slim-bookworm AS build
WORKDIR /build
ENV CARGO_TERM_COLOR=never

# Dependencies first, behind stubs: this layer is made anew only when a Cargo.toml or Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
# Cargo reads the manifest of every member, and builds the daemon alone.
COPY bench/load/Cargo.toml bench/load/
COPY bench/soak/Cargo.toml bench/soak/
COPY demo/Cargo.toml demo/
COPY demo/throwaway/Cargo.toml demo/throwaway/
COPY model/Cargo.toml model/
RUN mkdir src bench/load/src bench/soak/src demo/src demo/throwaway/src model/src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs bench/load/src/lib.rs bench/soak/src/lib.rs demo/src/lib.rs demo/throwaway/src/lib.rs model/src/lib.rs \
    && cargo build --release --locked --bin outboxd \
    && rm -r src

COPY migrations migrations
COPY sql sql
COPY src src
# What /version and outboxd_build_info tell.
ARG COMMIT=unknown
# The stubs were newer than the sources are.
RUN touch src/main.rs src/lib.rs \
    && OUTBOXD_COMMIT="$COMMIT" cargo build --release --locked --bin outboxd


FROM rust:1-slim-bookworm AS build-samples
WORKDIR /build
COPY examples/samples .
RUN cargo build --release --locked


FROM debian:bookworm-slim AS base
# The trust store, for providers, Postgres and Redis behind TLS.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
# Numeric, so that Kubernetes can see that it is not root.
USER 65532:65532


FROM base AS samples
COPY --from=build-samples /build/target/release/sample_app /build/target/release/sample_provider /usr/local/bin/


FROM base AS outboxd
COPY outboxd.example.toml LICENSE /usr/share/doc/outboxd/
COPY --from=build /build/target/release/outboxd /usr/local/bin/outboxd
ARG VERSION=0.1.0
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="outboxd" \
    org.opencontainers.image.description="A transactional-outbox relay for Postgres: your app commits, outboxd delivers." \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.revision="$COMMIT"
# It writes no files: run it with a read-only root. Off loopback it wants OUTBOXD_HTTP_TOKEN.
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["/usr/local/bin/outboxd", "check", "--ready"]
# Not through a shell: SIGTERM must reach the daemon itself.
ENTRYPOINT ["/usr/local/bin/outboxd"]
CMD ["run"]
