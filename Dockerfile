# Images of the manager and the agent: docker build --target manager|agent .
#
# Base images are pinned, and arguments, for registries of your own and for tests. The first one
# compiles for all platforms; the other one has no program to run.
ARG GO_IMAGE=docker.io/library/golang:1.26.9@sha256:f1f0bcc2c524a3ced375fcb4d1ecb7aa371aa7070e112599aaca45cc02d0101b
ARG BASE_IMAGE=gcr.io/distroless/static:nonroot@sha256:f7f8f729987ad0fdf6b05eeeae94b26e6a0f613bdf46feea7fc40f7bd72953e6

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
RUN CGO_ENABLED=0 GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/joulevirt/joulevirt/internal/version.version=${VERSION}" -o /out/ ./cmd/manager ./cmd/agent
# What is linked into each program, and embedded, goes with it as CycloneDX JSON.
RUN go run -buildvcs=false ./hack/sbom --embeds=hack/sbom/vendored.json /out/manager /sbom/manager/manager.cdx.json && \
    go run -buildvcs=false ./hack/sbom /out/agent /sbom/agent/agent.cdx.json

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
