package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/internal/pki"
	"github.com/joulevirt/joulevirt/test/internal/fetch"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// ServiceRange is the virtual range of Service addresses; on this machine
// nothing routes it.
const ServiceRange = "10.96.0.0/16"

// adminIdentity may do anything: system:masters is past RBAC.
func adminIdentity() pki.Identity {
	return pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}}
}

// startAPI starts etcd and the API server and makes the administrator's
// clients.
func (c *Cluster) startAPI(ctx context.Context) error {
	var err error
	if c.etcd, err = c.startEtcd(ctx); err != nil {
		return err
	}
	if c.apiServer, err = c.launchAPIServer(c.etcd); err != nil {
		return err
	}
	if c.kubeconfig, err = c.certificateKubeconfig("admin", adminIdentity()); err != nil {
		return err
	}
	web, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return fmt.Errorf("administrator's client: %w", err)
	}
	if err := ready(ctx, c.apiServer, web, c.config.Host+"/readyz"); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	if c.client, err = client.New(c.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("administrator's client: %w", err)
	}
	return c.WaitFor(ctx, partTimeout, "namespaces default and kube-system", func(ctx context.Context) error {
		for _, name := range []string{corev1.NamespaceDefault, "kube-system"} {
			if err := c.client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); err != nil {
				return err
			}
		}
		return nil
	})
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, extensionsv1.AddToScheme, kubevirtv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	return scheme, nil
}

// startEtcd returns the URL that etcd serves clients at.
func (c *Cluster) startEtcd(ctx context.Context) (string, error) {
	clients, err := c.ports.Take()
	if err != nil {
		return "", err
	}
	peers, err := c.ports.Take()
	if err != nil {
		return "", err
	}
	url, peerURL := fmt.Sprintf("http://127.0.0.1:%d", clients), fmt.Sprintf("http://127.0.0.1:%d", peers)
	etcd, err := c.group.Start("etcd", c.paths[binaries.Etcd],
		"--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL,
		"--initial-cluster=default="+peerURL,
		"--unsafe-no-fsync", // the data is thrown away at the end
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	)
	if err != nil {
		return "", err
	}
	return url, ready(ctx, etcd, http.DefaultClient, url+"/health")
}

// launchAPIServer starts the API server and sets the administrator's config,
// but does not wait.
func (c *Cluster) launchAPIServer(etcd string) (*proc.Process, error) {
	securePort, err := c.ports.Take()
	if err != nil {
		return nil, err
	}
	files, err := c.writeAPIServerKeys()
	if err != nil {
		return nil, err
	}
	admin, err := c.ca.Issue(adminIdentity())
	if err != nil {
		return nil, err
	}
	c.caFile = files["ca.crt"]
	c.config = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", securePort),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.CACert(), CertData: admin.Cert, KeyData: admin.Key,
		},
	}
	flags := apiServerFlags(etcd, securePort, files, c.disabledAdmission())
	if len(c.options.APIAddresses) > 0 {
		flags = append(flags, "--bind-address=0.0.0.0") // the last one counts
	}
	return c.group.Start("kube-apiserver", c.paths[binaries.APIServer], flags...)
}

// disabledAdmission lists the admission plugins that wait for the work of a
// controller: without the controller manager no service account would appear
// and no node would lose its not-ready taint.
func (c *Cluster) disabledAdmission() []string {
	if c.options.ControllerManager {
		return nil
	}
	return []string{"ServiceAccount", "TaintNodesByCondition"}
}

// writeAPIServerKeys writes what the API server reads and returns the paths by
// file name.
func (c *Cluster) writeAPIServerKeys() (map[string]string, error) {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	for _, address := range c.options.APIAddresses {
		addresses = append(addresses, address.AsSlice())
	}
	serving, err := c.ca.Issue(pki.Identity{
		CommonName: "kube-apiserver",
		DNSNames:   []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPs:        addresses,
	})
	if err != nil {
		return nil, err
	}
	proxy, err := c.ca.Issue(pki.Identity{CommonName: "front-proxy-client"})
	if err != nil {
		return nil, err
	}
	// Group system:masters may do anything at kubelets, too.
	kubelets, err := c.ca.Issue(adminIdentity())
	if err != nil {
		return nil, err
	}
	tokens, err := pki.SigningKey()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, pair := range map[string]pki.Pair{
		"ca": c.ca.Pair, "apiserver": serving, "front-proxy": proxy, "kubelets": kubelets, "tokens": tokens,
	} {
		cert, key, err := pair.Write(c.dir, name)
		if err != nil {
			return nil, err
		}
		files[name+".crt"], files[name+".key"] = cert, key
	}
	return files, nil
}

func apiServerFlags(etcd string, port int, files map[string]string, disabled []string) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--client-ca-file=" + files["ca.crt"],
		"--tls-cert-file=" + files["apiserver.crt"], "--tls-private-key-file=" + files["apiserver.key"],
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + files["tokens.key"],
		"--service-account-key-file=" + files["tokens.crt"],
		"--authorization-mode=Node,RBAC",
		"--service-cluster-ip-range=" + ServiceRange,
		"--allow-privileged=true",
		"--requestheader-client-ca-file=" + files["ca.crt"],
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + files["front-proxy.crt"],
		"--proxy-client-key-file=" + files["front-proxy.key"],
		"--kubelet-client-certificate=" + files["kubelets.crt"], "--kubelet-client-key=" + files["kubelets.key"],
		// Nothing resolves the names of nodes.
		"--kubelet-preferred-address-types=InternalIP",
		"--endpoint-reconciler-type=none",
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
		"--disable-admission-plugins=" + strings.Join(disabled, ","),
	}
}

// publishAPIServer makes Service kubernetes lead to the API server, which
// would publish the loopback address itself.
func (c *Cluster) publishAPIServer(ctx context.Context) error {
	host, err := url.Parse(c.config.Host)
	if err != nil {
		return fmt.Errorf("address of the API server: %w", err)
	}
	port, err := strconv.ParseInt(host.Port(), 10, 32)
	if err != nil {
		return fmt.Errorf("port of the API server: %w", err)
	}
	const service = "kubernetes"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceDefault, Name: service,
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(port))}},
	}
	for _, address := range c.options.APIAddresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}})
	}
	if err := c.client.Create(ctx, slice); err != nil {
		return fmt.Errorf("create the endpoints of Service %s: %w", service, err)
	}
	return nil
}

// trusting returns a client for the health endpoints of our own programs.
func (c *Cluster) trusting() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CACert())
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
}

// ready waits until url answers 200.
func ready(ctx context.Context, p *proc.Process, client *http.Client, url string) error {
	return answers(ctx, p, client, url, "")
}

// answers waits until url answers 200 with text in the body.
func answers(ctx context.Context, p *proc.Process, client *http.Client, url, text string) error {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	return p.WaitReady(ctx, func(ctx context.Context) error {
		body, err := fetch.Body(ctx, client, url)
		if err == nil && !strings.Contains(body, text) {
			err = fmt.Errorf("%s: %s", url, body)
		}
		return err
	})
}
