# Images of the manager, the agent and gateways: docker build --target manager|agent|gateway .
#
# Base images are pinned, and arguments, for registries of your own and for tests. The first one
# compiles for all platforms, the second one has no program to run, the third one gets nginx.
ARG GO_IMAGE=docker.io/library/golang:1.26.9@sha256:f1f0bcc2c524a3ced375fcb4d1ecb7aa371aa7070e112599aaca45cc02d0101b
ARG BASE_IMAGE=gcr.io/distroless/static:nonroot@sha256:f7f8f729987ad0fdf6b05eeeae94b26e6a0f613bdf46feea7fc40f7bd72953e6
ARG DEBIAN_IMAGE=docker.io/library/debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY controllers controllers
COPY internal internal
COPY policies policies
COPY hack/sbom hack/sbom
ARG VERSION=unknown
ARG TARGETARCH
RUN CGO_ENABLED=0 GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/joulevirt/joulevirt/internal/version.version=${VERSION}" -o /out/ ./cmd/manager ./cmd/agent ./cmd/joulevirt-gateway
# What is linked into each program, and embedded, goes with it as CycloneDX JSON.
RUN go run -buildvcs=false ./hack/sbom --embeds=hack/sbom/vendored.json /out/manager /sbom/manager/manager.cdx.json && \
    go run -buildvcs=false ./hack/sbom /out/agent /sbom/agent/agent.cdx.json && \
    go run -buildvcs=false ./hack/sbom /out/joulevirt-gateway /sbom/gateway/joulevirt-gateway.cdx.json

FROM ${BASE_IMAGE} AS manager
COPY --from=build /out/manager /manager
COPY --from=build /sbom/manager/ /usr/share/sbom/
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/manager"]

# The agent is root without root's powers: its DaemonSet drops all capabilities
# but five, which a process keeps over exec only as user 0.
FROM ${BASE_IMAGE} AS agent
COPY --from=build /out/agent /agent
COPY --from=build /sbom/agent/ /usr/share/sbom/
WORKDIR /
USER 0:0
ENTRYPOINT ["/agent"]

# Debian's nginx, of the day of the build. A base that has nginx needs no network.
FROM ${DEBIAN_IMAGE} AS gateway
RUN dpkg-query --show nginx || \
    { apt-get update && apt-get install --yes --no-install-recommends nginx && rm -rf /var/lib/apt/lists/*; }
COPY --from=build /out/joulevirt-gateway /joulevirt-gateway
COPY --from=build /sbom/gateway/ /usr/share/sbom/
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/joulevirt-gateway"]
