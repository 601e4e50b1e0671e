# Images of the manager and the agent: docker build --target manager|agent .
#
# Base images are arguments, for registries of your own and for tests.
ARG GO_IMAGE=docker.io/library/golang:1.26
ARG MANAGER_BASE=gcr.io/distroless/static:nonroot
ARG AGENT_BASE=gcr.io/distroless/static:latest

FROM ${GO_IMAGE} AS build
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
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/joulevirt/joulevirt/internal/version.version=${VERSION}" -o /out/ ./cmd/manager ./cmd/agent
# What is linked into each program, and embedded, goes with it as CycloneDX JSON.
RUN go run -buildvcs=false ./hack/sbom --embeds=hack/sbom/vendored.json /out/manager /sbom/manager/manager.cdx.json && \
    go run -buildvcs=false ./hack/sbom /out/agent /sbom/agent/agent.cdx.json

FROM ${MANAGER_BASE} AS manager
COPY --from=build /out/manager /manager
COPY --from=build /sbom/manager/ /usr/share/sbom/
USER 65532:65532
ENTRYPOINT ["/manager"]

# The agent is root without root's powers: its DaemonSet drops all capabilities
# but five, which a process keeps over exec only as user 0.
FROM ${AGENT_BASE} AS agent
COPY --from=build /out/agent /agent
COPY --from=build /sbom/agent/ /usr/share/sbom/
USER 0:0
ENTRYPOINT ["/agent"]
