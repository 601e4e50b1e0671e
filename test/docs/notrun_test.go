package docs

import (
	"regexp"
	"strings"
	"testing"
)

// exception is a command of a page that the cluster of these tests cannot run.
type exception struct{ line, why string }

// notRun are all of them. What is neither here nor succeeds fails the test.
func notRun() []exception {
	const (
		noKubelet = "nothing runs pods here: a kubelet would have to answer"
		chart     = "test/install runs the chart with Helm"
		images    = "there is no registry, and no container engine"
		byStack   = "the test cluster has it installed by the same kubectl apply -k config/default"
		ofTheDemo = "shows what make demo prints, on nodes of its own"
		named     = "names the command, and leaves out what it is called with"
		inGuest   = "is run in a guest: test/guest does so with what the page installs"
	)
	return []exception{
		{"make demo", "takes minutes and a machine with QEMU: people run it"},
		{"make test", "is what runs this"},
		{"kubectl get nodeplan this-machine", ofTheDemo},
		{"taskset --all-tasks --cpu-list --pid 18344", ofTheDemo},
		{"git clone https://github.com/joulevirt/joulevirt && cd joulevirt", "fetches what is tested here"},
		{"export IMG_MANAGER=registry.example/joulevirt/manager:v0 IMG_AGENT=registry.example/joulevirt/agent:v0", images},
		{"make docker-build docker-push", images},
		{"make docker-build docker-push IMG_MANAGER=registry.example/joulevirt/manager:v0 IMG_AGENT=registry.example/joulevirt/agent:v0", images},
		{"make docker-build docker-push IMG_MANAGER=registry.example/joulevirt/manager:v0.1 IMG_AGENT=registry.example/joulevirt/agent:v0.1", images},
		{"docker create --name sbom registry.example/joulevirt/manager:v0.1", images},
		{"docker cp sbom:/usr/share/sbom/manager.cdx.json . && docker rm sbom", images},
		{"make deploy", byStack},
		{"make deploy IMG_MANAGER=registry.example/joulevirt/manager:v0.1 IMG_AGENT=registry.example/joulevirt/agent:v0.1", byStack},
		{"make deploy IMG_MANAGER=... IMG_AGENT=...", byStack},
		{"make install", byStack},
		{"kubectl apply -k config/default", byStack},
		{"kubectl apply --server-side -k FOLDER", byStack},
		{"make bin/kubectl-joulevirt && sudo install bin/kubectl-joulevirt /usr/local/bin/", "the program is built for this test, and put into the PATH of its commands alone"},
		{"make undeploy", "would take the kinds from the controllers that run in this test"},
		{"kubectl delete -k config/default", "the same; test/e2e deletes it with VMs"},
		{"kubectl delete --ignore-not-found -k config/default", "the same; test/e2e deletes it with VMs"},
		{"kubectl apply --server-side --force-conflicts -f web-route.yaml", "is a file of the reader's; test/routing applies such rules"},
		{"kubectl kustomize FOLDER | hack/removal.sh", "test/install runs it by make undeploy"},
		{"kubectl delete -k config/restore", "no controller ends namespaces here; test/rbac deletes it"},
		{"kubectl get httproutes -A -l app.kubernetes.io/managed-by=joulevirt", "needs the kinds of the Gateway API"},
		{"kubectl rollout status daemonset/joulevirt-restore --namespace joulevirt-restore", noKubelet},
		{"kubectl logs --namespace joulevirt-restore -l app.kubernetes.io/component=restore -c restore --prefix", noKubelet},
		{"kubectl apply --server-side -k config/prometheus", "needs the kinds of the Prometheus Operator; test/install renders it"},
		{"kubectl get prometheuses.monitoring.coreos.com --all-namespaces -o yaml", "needs the kinds of the Prometheus Operator"},
		{"helm install joulevirt charts/joulevirt --namespace joulevirt-system --create-namespace --set manager.image.repository=registry.example/joulevirt/manager,manager.image.tag=v0 --set agent.image.repository=registry.example/joulevirt/agent,agent.image.tag=v0", chart},
		{"helm install joulevirt charts/joulevirt --namespace joulevirt-system --create-namespace --set manager.image.repository=registry.example/joulevirt/manager,manager.image.tag=v0.1 --set agent.image.repository=registry.example/joulevirt/agent,agent.image.tag=v0.1 --set policy.preset=observe", chart},
		{"helm install joulevirt charts/joulevirt --namespace joulevirt-system --create-namespace", chart},
		{"helm upgrade joulevirt charts/joulevirt --namespace joulevirt-system --reset-then-reuse-values", chart},
		{"helm rollback joulevirt --namespace joulevirt-system", chart},
		{"helm uninstall joulevirt --namespace joulevirt-system --wait", chart},
		{"kubectl logs --namespace joulevirt-system job/joulevirt-removal", noKubelet},
		{"kubectl logs -n joulevirt-system deployment/joulevirt-manager", noKubelet},
		{"kubectl logs -n joulevirt-system POD --previous", noKubelet},
		{"kubectl joulevirt page", noKubelet + " for the forwarded port; test/page runs the page in a browser"},
		{"kubectl joulevirt page --address=127.0.0.1:9000", noKubelet},
		{"kubectl joulevirt top nodes --prometheus=monitoring/prometheus-k8s:9090", "there is no Prometheus server; test/dashboards asks a real one"},
		{"kubectl joulevirt approve", named},
		{"kubectl joulevirt explain", named},
		{"kubectl wait --for=condition=", named},
		{"kubectl wait --for=delete nodeplans.joulevirt.io --all --timeout=5m", "policies stay in this cluster; test/install removes them and waits"},
		{"systemctl disable --now joulevirt-guest", inGuest},
		{"rm /etc/systemd/system/joulevirt-guest.service /usr/local/bin/joulevirt-guest", inGuest},
	}
}

func isException(line string) bool {
	for _, e := range notRun() {
		if e.line == line {
			return true
		}
	}
	return false
}

// TestExceptionsAreNeeded finds those that no page tells to run any more.
func TestExceptionsAreNeeded(t *testing.T) {
	told := map[string]bool{}
	for _, p := range pages(t) {
		for _, c := range p.commands {
			told[c.line] = told[c.line] || isFollowed(p.path)
		}
	}
	for _, e := range notRun() {
		if !told[e.line] || e.why == "" {
			t.Errorf("no page tells to run %q, or nothing says why it is not run", e.line)
		}
	}
}

// TestTargetsExist holds what pages make to the Makefile: most of it is not run.
func TestTargetsExist(t *testing.T) {
	makefile, found := read(t, "Makefile"), 0
	for _, p := range pages(t) {
		for _, c := range p.commands {
			words := strings.Fields(c.line)
			if words[0] != "make" {
				continue
			}
			for _, target := range words[1:] {
				if target == "&&" {
					break
				}
				if strings.Contains(target, "=") {
					continue
				}
				found++
				if !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`:`).MatchString(makefile) && !strings.HasPrefix(target, "bin/") {
					t.Errorf("%s: the Makefile has no target %s", p.path, target)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d targets were found", found)
	}
}
