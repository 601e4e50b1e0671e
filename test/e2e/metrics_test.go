package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// metricsReader is the ClusterRole that the manifests give to scrapers.
const metricsReader = "joulevirt-metrics-reader"

// token is that of a new ServiceAccount.
func (f *fixture) token(name string) string {
	f.Helper()
	f.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}})
	config, _, err := world.ServiceAccountConfig(f.Context(), f.namespace, name, "")
	if err != nil {
		f.Fatal(err)
	}
	return config.BearerToken
}

// scraper is the token of one who may read metrics.
func (f *fixture) scraper() string {
	f.Helper()
	f.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: f.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "prometheus"}},
	})
	return f.token("prometheus")
}

// metrics scrapes the manager or the agent as Prometheus does.
func metrics(ctx context.Context, program *stack.Program, token string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+program.Metrics+"/metrics", http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	scraper := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the certificate is self-signed, as the ServiceMonitor says
	}}
	response, err := scraper.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// serveMetrics wants the agent's series and a VM's served to whom the API server lets read them.
func (f *fixture) serveMetrics(m *machine) {
	f.Helper()
	reader, stranger := f.scraper(), f.token("stranger")
	f.eventually("the agent's and the VM's series", func(ctx context.Context) error {
		status, body, err := metrics(ctx, world.Agent(), reader)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("status %d: %w: %s", status, err, body)
		}
		for _, want := range []string{
			`joulevirt_agent_vms{node="` + nodeName + `",state="running"} 1`,
			fmt.Sprintf(`joulevirt_vm_wait_cores{name=%q,namespace=%q,node=%q,thread="vcpu"}`, m.vmi.Name, m.vmi.Namespace, nodeName),
		} {
			if !strings.Contains(body, want) {
				return fmt.Errorf("no %s in\n%s", want, body)
			}
		}
		return nil
	})
	for token, want := range map[string]int{"": http.StatusUnauthorized, stranger: http.StatusForbidden} {
		status, body, err := metrics(f.Context(), world.Agent(), token)
		if err != nil || status != want || strings.Contains(body, "joulevirt_") {
			f.Errorf("status %d, %v, want %d: %s", status, err, want, body)
		}
	}
}
