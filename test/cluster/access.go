package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/internal/pki"
)

// tokenLifetime is more than any test or demo lasts.
const tokenLifetime = 24 * time.Hour

// ServiceAccountConfig returns a client configuration, and the path of an
// equal kubeconfig file, with a token of an existing service account. With a
// boundNode the token is bound to that Node as a pod's token would be: the API
// server sees authentication.kubernetes.io/node-name in the user's extra.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name, boundNode string) (*rest.Config, string, error) {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))},
	}
	file := fmt.Sprintf("serviceaccount-%s-%s", namespace, name)
	if boundNode != "" {
		file += "-on-" + boundNode
		node := &corev1.Node{}
		if err := c.client.Get(ctx, client.ObjectKey{Name: boundNode}, node); err != nil {
			return nil, "", fmt.Errorf("node to bind the token of %s/%s to: %w", namespace, name, err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, "", fmt.Errorf("token of service account %s/%s (apply its manifests first): %w", namespace, name, err)
	}
	config := c.anonymousConfig()
	config.BearerToken = request.Status.Token
	path, err := c.writeKubeconfig(file, config.Host, &clientcmdapi.AuthInfo{Token: request.Status.Token})
	return config, path, err
}

// AsServiceAccount returns a client configuration of the administrator who acts as a service
// account, for tests that do a program's work in its place.
func (c *Cluster) AsServiceAccount(namespace, name string) *rest.Config {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + name}
	return config
}

// ComponentKubeconfig returns the path of a kubeconfig with a certificate of a
// component of Kubernetes, such as system:kube-proxy, that reaches the API
// server at one of Options.APIAddresses.
func (c *Cluster) ComponentKubeconfig(file, user string, address netip.Addr, groups ...string) (string, error) {
	host, err := url.Parse(c.config.Host)
	if err != nil {
		return "", fmt.Errorf("address of the API server: %w", err)
	}
	host.Host = net.JoinHostPort(address.String(), host.Port())
	return c.certificateKubeconfigAt(file, host.String(), pki.Identity{CommonName: user, Organizations: groups})
}

// anonymousConfig reaches the API server and trusts it, without credentials.
func (c *Cluster) anonymousConfig() *rest.Config {
	return &rest.Config{
		Host:            c.config.Host,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CACert()},
	}
}

// certificateKubeconfig issues a client certificate and returns the path of a
// kubeconfig that uses it.
func (c *Cluster) certificateKubeconfig(name string, identity pki.Identity) (string, error) {
	return c.certificateKubeconfigAt(name, c.config.Host, identity)
}

func (c *Cluster) certificateKubeconfigAt(name, server string, identity pki.Identity) (string, error) {
	pair, err := c.ca.Issue(identity)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(name, server, &clientcmdapi.AuthInfo{
		ClientCertificateData: pair.Cert, ClientKeyData: pair.Key,
	})
}

func (c *Cluster) writeKubeconfig(name, server string, user *clientcmdapi.AuthInfo) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{
		Server: server, CertificateAuthorityData: c.CACert(),
	}
	config.AuthInfos[name] = user
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: name}
	config.CurrentContext = "test"
	path := filepath.Join(c.dir, name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write the kubeconfig of %s: %w", name, err)
	}
	return path, nil
}
