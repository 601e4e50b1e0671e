SHELL := /usr/bin/env bash -o pipefail
.SHELLFLAGS := -ec
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# The steps of make test build on each other, also under make -j.
.NOTPARALLEL:

# Version that the programs report, and the images' names.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
IMG_MANAGER ?= joulevirt/manager:latest
IMG_AGENT ?= joulevirt/agent:latest
IMG_GATEWAY ?= joulevirt/gateway:latest
CONTAINER_TOOL ?= docker
KUBECTL ?= kubectl

# Tools are built once for all clones of a user, one file a version.
TOOLS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/joulevirt/tools
CONTROLLER_GEN_VERSION ?= v0.21.0
GOLANGCI_LINT_VERSION ?= v2.15.0
GOTESTSUM_VERSION ?= v1.13.0
CONTROLLER_GEN = $(TOOLS)/controller-gen-$(CONTROLLER_GEN_VERSION)
GOLANGCI_LINT = $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
CRD_REF_DOCS_VERSION ?= v0.3.0
GOTESTSUM = $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)
CRD_REF_DOCS = $(TOOLS)/crd-ref-docs-$(CRD_REF_DOCS_VERSION)
ACTIONLINT_VERSION ?= v1.7.12
ACTIONLINT = $(TOOLS)/actionlint-$(ACTIONLINT_VERSION)
GOVULNCHECK_VERSION ?= v1.9.0
GOVULNCHECK = $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)
HELM_VERSION ?= v4.3.1
HELM ?= $(TOOLS)/helm-$(HELM_VERSION)

# Tests, checks and images are compiled alike, so that all is compiled once, for each checkout.
export CGO_ENABLED = 0
export GOFLAGS = -trimpath

LDFLAGS = -s -w -X github.com/joulevirt/joulevirt/internal/version.version=$(VERSION)

# Shows a command as a step of the set-up: one line.
STEP = go build -o dist/hack/step ./hack/step && dist/hack/step

# Runs a program of the project. What go downloads and compiles for it is a step.
RUN = $(STEP) "compile $(1)" go build -o dist/$(1) ./$(1) && dist/$(1)

##@ General

.PHONY: help
help: ## Show what can be made.
	@awk 'BEGIN {FS = ":.*##"; print "Usage: make TARGET"} \
	  /^[a-zA-Z_0-9-]+:.*?##/ {printf "  %-15s %s\n", $$1, $$2} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## See the product at work on a real node: kubelet, containerd, KubeVirt and VMs. KEEP=1 leaves it running.
	@go run ./hack/preconditions demo && $(call RUN,hack/demo) $(if $(KEEP),-keep)

##@ Development

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Write the DeepCopy methods of the API, and the eBPF programs.
	"$(CONTROLLER_GEN)" object paths=./api/...
	hack/generate-bpf.sh

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Write the CRDs and the manager's ClusterRole from the markers, and docs/metrics.md.
	"$(CONTROLLER_GEN)" crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	"$(CONTROLLER_GEN)" rbac:roleName=joulevirt-manager paths=./controllers/... output:rbac:artifacts:config=config/rbac
	go test ./internal/metrics -run TestPageIsUpToDate -update

.PHONY: chart
chart: ## Copy the manifests into the Helm chart.
	hack/chart.sh

API_REFERENCE = --source-path api/v1alpha1 --config hack/api-reference/config.yaml --templates-dir hack/api-reference \
	--renderer markdown --log-level ERROR
.PHONY: reference
reference: $(CRD_REF_DOCS) ## Write docs/reference, and the versions in docs/compatibility.md.
	"$(CRD_REF_DOCS)" $(API_REFERENCE) --output-path docs/reference/api.md
	go test ./cmd/kubectl-joulevirt -run TestReferenceIsCurrent -update
	go test ./test/docs -run TestCompatibilityIsCurrent -update

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the Go code.
	"$(GOLANGCI_LINT)" fmt

.PHONY: vet
vet: ## Run go vet.
	@$(STEP) "get Go modules" go list -tags e2e -deps -test ./...
	go vet -tags e2e ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) $(ACTIONLINT) ## Run the linters, import directions included.
	"$(GOLANGCI_LINT)" run
	"$(ACTIONLINT)" .github/workflows/*.yaml

# The Go release that released programs are built with.
GO_VERSION = $(shell sed -n 's/^ARG GO_IMAGE=.*golang:\([0-9.]*\)@.*/\1/p' Dockerfile)
.PHONY: go-version
go-version: ## Print the Go release that released programs are built with.
	@echo $(GO_VERSION)

# A version of golang.org/x/vulndb, which the module proxy has, or the address of a live database.
VULNDB ?= v0.0.0-20261105234957-e22db6528018
.PHONY: vuln
vuln: $(GOVULNCHECK) ## Fail when code that is called has a known vulnerability. VULNDB=https://vuln.go.dev: of today, and Go's own too.
	hack/vuln.sh "$(GOVULNCHECK)" $(GO_VERSION) $(VULNDB)

.PHONY: generate-check
generate-check: $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Fail when generated files are not up to date.
	hack/generate-check.sh "$(CONTROLLER_GEN)"
	@"$(CRD_REF_DOCS)" $(API_REFERENCE) --output-path /dev/stdout | diff -u docs/reference/api.md - || \
	  { echo "docs/reference/api.md is not up to date: run make reference" >&2; exit 1; }

.PHONY: setup
setup: ## Install and build all that the tests and the demo need.
	@go run ./hack/preconditions e2e && $(call RUN,hack/setup)

.PHONY: setup-gate
setup-gate: ## Install and build what make test needs.
	@go run ./hack/preconditions gate && $(call RUN,hack/setup) gate

.PHONY: controlplane
controlplane: ## Build the programs of the test cluster into the cache.
	go run ./hack/controlplane/build

.PHONY: test
test: setup-gate generate-check vet lint vuln test-only ## The gate: set up, check, and run all tests whose result depends on the code alone.

TESTSUM = "$(GOTESTSUM)" --format pkgname-and-test-fails --format-hide-empty-pkg --jsonfile dist/$(1).json --raw-command -- hack/test.sh $(1)

.PHONY: test-unit
test-unit: $(GOTESTSUM) ## Run the gate's tests that need neither root nor an API server: below two minutes with a warm cache.
	@mkdir -p dist
	ONLY="$(ONLY)" $(call TESTSUM,unit)

.PHONY: test-only
test-only: $(GOTESTSUM) ## Run the gate's tests, or those below ONLY=./folder.
	@mkdir -p dist
	ONLY="$(ONLY)" $(call TESTSUM,gate)

.PHONY: race
race: setup-gate ## Look for data races in packages whose tests need root or an API server.
	@mkdir -p dist
	@ONLY="$(ONLY)" hack/test.sh race

.PHONY: e2e
e2e: setup ## Run the stories with nodes, VMs, load, browsers and servers: all, below ONLY=./folder, or STORY=TestX N=10 times.
	@$(call RUN,hack/e2e) $(if $(ONLY),-only=$(ONLY)) $(if $(STORY),-story=$(STORY)) $(if $(N),-n=$(N))

.PHONY: size
size: ## Print the size of the project: lines, words, API fields, reasons and metrics.
	@hack/size.sh

.PHONY: bench
bench: ## Print the figures of docs/benchmarks.md, or those that start with ONLY=prefix.
	go run ./hack/bench -only=$(ONLY)

##@ Build

.PHONY: build
build: bin/manager bin/agent bin/kubectl-joulevirt bin/joulevirt-guest ## Build static binaries into bin/.

.PHONY: bin/manager bin/agent bin/kubectl-joulevirt
bin/manager bin/agent bin/kubectl-joulevirt: bin/%:
	go build -ldflags "$(LDFLAGS)" -o $@ ./cmd/$*

# The guest's tools, for VMs of both architectures: bin/joulevirt-guest-linux-ARCH.
GUEST_ARCHS = amd64 arm64
.PHONY: bin/joulevirt-guest
bin/joulevirt-guest: $(GUEST_ARCHS:%=bin/joulevirt-guest-linux-%)

.PHONY: $(GUEST_ARCHS:%=bin/joulevirt-guest-linux-%)
$(GUEST_ARCHS:%=bin/joulevirt-guest-linux-%): bin/joulevirt-guest-linux-%:
	GOOS=linux GOARCH=$* go build -ldflags "$(LDFLAGS)" -o $@ ./cmd/joulevirt-guest

# The plug-in for krew: archives and the filled-in manifest in KREW_DIR.
KREW_DIR ?= dist
KREW_PLATFORMS = linux_amd64 linux_arm64 darwin_arm64
KREW_ARCHIVES = $(KREW_PLATFORMS:%=$(KREW_DIR)/kubectl-joulevirt_%.tar.gz)
.PHONY: krew
krew: $(KREW_ARCHIVES) ## Build the archives and the manifest of the kubectl plug-in for krew.
	sed -e 's|{{ .TagName }}|$(VERSION)|g' \
	  $(foreach p,$(KREW_PLATFORMS),-e "s|{{ .SHA256.$(p) }}|$$(sha256sum $(KREW_DIR)/kubectl-joulevirt_$(p).tar.gz | cut -d' ' -f1)|") \
	  config/krew/joulevirt.yaml > $(KREW_DIR)/joulevirt.yaml

.PHONY: $(KREW_ARCHIVES)
$(KREW_ARCHIVES): $(KREW_DIR)/kubectl-joulevirt_%.tar.gz:
	mkdir -p $(KREW_DIR)/$*
	GOOS=$(firstword $(subst _, ,$*)) GOARCH=$(lastword $(subst _, ,$*)) go build -ldflags "$(LDFLAGS)" -o $(KREW_DIR)/$*/kubectl-joulevirt ./cmd/kubectl-joulevirt
	install -m 0644 LICENSE $(KREW_DIR)/$*/
	install -m 0755 config/krew/kubectl_complete-joulevirt $(KREW_DIR)/$*/
	tar --create --gzip --sort=name --owner=0 --group=0 --mtime=@0 --directory=$(KREW_DIR)/$* --file=$@ kubectl-joulevirt kubectl_complete-joulevirt LICENSE

.PHONY: sbom
sbom: bin/manager bin/agent ## Write what is linked into manager and agent, as CycloneDX: dist/sbom/.
	go run ./hack/sbom --embeds=hack/sbom/vendored.json bin/manager dist/sbom/manager.cdx.json
	go run ./hack/sbom bin/agent dist/sbom/agent.cdx.json

.PHONY: docker-build
docker-build: ## Build the images of manager, agent and gateway.
	$(CONTAINER_TOOL) build --target manager --build-arg VERSION=$(VERSION) -t $(IMG_MANAGER) .
	$(CONTAINER_TOOL) build --target agent --build-arg VERSION=$(VERSION) -t $(IMG_AGENT) .
	$(CONTAINER_TOOL) build --target gateway --build-arg VERSION=$(VERSION) -t $(IMG_GATEWAY) .

# A release: images of all platforms, the chart and the manifests that name their digests.
# REGISTRY is where images are pushed to, such as ghcr.io/joulevirt/joulevirt.
DIGEST = $(shell sed -n 's/.*"containerimage.digest": *"\([^"]*\)".*/\1/p' dist/images/$(1).json 2>/dev/null)
MANAGER_DIGEST ?= $(call DIGEST,manager)
AGENT_DIGEST ?= $(call DIGEST,agent)
GATEWAY_DIGEST ?= $(call DIGEST,gateway)
RELEASE_DIR ?= dist/release

.PHONY: release-images
release-images: ## Build and push the images to REGISTRY, with provenance; their digests go to dist/images/.
	mkdir -p dist/images
	for program in manager agent gateway; do \
	  $(CONTAINER_TOOL) buildx build --platform linux/amd64,linux/arm64 --target $$program --build-arg VERSION=$(VERSION) \
	    --provenance=mode=max --metadata-file dist/images/$$program.json --push -t $(REGISTRY)/$$program:$(VERSION) .; \
	done

.PHONY: release-chart
release-chart: IMG_MANAGER = $(REGISTRY)/manager@$(MANAGER_DIGEST)
release-chart: IMG_AGENT = $(REGISTRY)/agent@$(AGENT_DIGEST)
release-chart: IMG_GATEWAY = $(REGISTRY)/gateway@$(GATEWAY_DIGEST)
release-chart: $(HELM) ## Package the chart and the manifests, which name the images' digests, into RELEASE_DIR.
	HELM="$(HELM)" hack/release.sh $(VERSION) "$(REGISTRY)" "$(MANAGER_DIGEST)" "$(AGENT_DIGEST)" "$(GATEWAY_DIGEST)" $(RELEASE_DIR)
	$(MANIFESTS) > $(RELEASE_DIR)/install.yaml
	$(KUBECTL) kustomize config/mutation > $(RELEASE_DIR)/mutation.yaml
	$(OFFLOAD) > $(RELEASE_DIR)/offload.yaml
	$(SHARED_MEMORY) > $(RELEASE_DIR)/shared-memory.yaml

.PHONY: docker-push
docker-push: ## Push the images of manager, agent and gateway.
	$(CONTAINER_TOOL) push $(IMG_MANAGER)
	$(CONTAINER_TOOL) push $(IMG_AGENT)
	$(CONTAINER_TOOL) push $(IMG_GATEWAY)

##@ Deployment: into the cluster of the current kubeconfig

# Manifests with the images asked for.
MANIFESTS = $(KUBECTL) kustomize config/default | \
	sed -e 's|image: joulevirt/manager:latest$$|image: $(IMG_MANAGER)|' -e 's|image: joulevirt/agent:latest$$|image: $(IMG_AGENT)|'

# What lever Offload needs beside them.
OFFLOAD = $(KUBECTL) kustomize config/offload | sed -e 's|image: joulevirt/gateway:latest$$|image: $(IMG_GATEWAY)|'

# What path SharedMemory needs beside these.
SHARED_MEMORY = $(KUBECTL) kustomize config/shared-memory | sed -e 's|image: joulevirt/agent:latest$$|image: $(IMG_AGENT)|'

# Succeeds where the API server has MutatingAdmissionPolicies of version v1.
MUTATES = $(KUBECTL) get --raw /apis/admissionregistration.k8s.io/v1 | grep -q '"mutatingadmissionpolicies"'

.PHONY: install
install: ## Install the CRDs.
	$(KUBECTL) apply --server-side -k config/crd

.PHONY: uninstall
uninstall: ## Remove the CRDs and with them all objects of their kinds.
	$(KUBECTL) delete --ignore-not-found -k config/crd

.PHONY: deploy
deploy: ## Install CRDs, manager and agents.
	$(MANIFESTS) | $(KUBECTL) apply --server-side -f -
	if $(MUTATES); then $(KUBECTL) apply --server-side -k config/mutation; fi

.PHONY: deploy-offload
deploy-offload: ## Install what lever Offload needs.
	$(OFFLOAD) | $(KUBECTL) apply --server-side -f -

.PHONY: deploy-shared-memory
deploy-shared-memory: deploy-offload ## Install what path SharedMemory needs, and lever Offload.
	$(SHARED_MEMORY) | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## Remove everything, once the Job of config/removal has put all back (docs/removal.md).
	$(KUBECTL) kustomize config/removal | KUBECTL="$(KUBECTL)" hack/removal.sh
	if $(MUTATES); then $(KUBECTL) delete --ignore-not-found -k config/mutation; fi
	$(SHARED_MEMORY) | $(KUBECTL) delete --ignore-not-found -f -
	$(OFFLOAD) | $(KUBECTL) delete --ignore-not-found -f -
	$(MANIFESTS) | $(KUBECTL) delete --ignore-not-found -f -

# Tools.

# Print where a tool is: for the test of the linter's rules, and for releases.
.PHONY: golangci-lint helm
golangci-lint: $(GOLANGCI_LINT)
	@echo "$(GOLANGCI_LINT)"
helm: $(HELM)
	@echo "$(HELM)"

$(CONTROLLER_GEN):
	hack/tool.sh $@ sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)

$(GOLANGCI_LINT):
	hack/tool.sh $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(GOTESTSUM):
	hack/tool.sh $@ gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

$(ACTIONLINT):
	hack/tool.sh $@ github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

$(GOVULNCHECK):
	hack/tool.sh $@ golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

$(TOOLS)/helm-$(HELM_VERSION):
	hack/tool.sh $@ helm.sh/helm/v4/cmd/helm@$(HELM_VERSION)

$(CRD_REF_DOCS):
	hack/tool.sh $@ github.com/elastic/crd-ref-docs@$(CRD_REF_DOCS_VERSION)
