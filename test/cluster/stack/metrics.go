package stack

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// metricsReader is the ClusterRole that the manifests give to who scrapes.
const metricsReader = "joulevirt-metrics-reader"

// Token makes a ServiceAccount and returns a token of it.
func Token(ctx context.Context, c *cluster.Cluster, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.Client().Create(ctx, account); err != nil {
		return "", err
	}
	config, _, err := c.ServiceAccountConfig(ctx, namespace, name, "")
	if err != nil {
		return "", err
	}
	return config.BearerToken, nil
}

// MetricsToken makes a ServiceAccount that may read metrics and returns a token of it.
func MetricsToken(ctx context.Context, c *cluster.Cluster, namespace string) (string, error) {
	const name = "prometheus"
	token, err := Token(ctx, c, namespace, name)
	return token, errors.Join(err, c.Client().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}))
}

// Scrape reads the metrics of manager or agent, at host:port, as Prometheus does.
func Scrape(ctx context.Context, address, token string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", http.NoBody)
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
