package bmc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"
	"github.com/stmcginnis/gofish/redfish"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// answersWithin bounds each request: management controllers are slow.
const answersWithin = 15 * time.Second

// redfishHost is a system of a management controller.
type redfishHost struct {
	secret string
	system *redfish.ComputerSystem
}

func findRedfish(ctx context.Context, c client.Client, by *v1alpha1.RedfishPower, node *corev1.Node) (Host, error) {
	name := by.SecretNamespace + "/" + node.Name
	secret := &corev1.Secret{}
	err := c.Get(ctx, types.NamespacedName{Namespace: by.SecretNamespace, Name: node.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, Refuse(v1alpha1.ReasonHostUnknown, "Secret %s does not exist: create it with address, username and password of the node's management controller, or correct spec.hostPower.redfish.secretNamespace", name)
	case apierrors.IsForbidden(err):
		return nil, Refuse(v1alpha1.ReasonHostRights, "the manager may not read Secret %s: install the rights of config/host-power in the namespace: %v", name, err)
	case err != nil:
		return nil, fmt.Errorf("get Secret %s: %w", name, err)
	}
	if _, meant := secret.Labels[v1alpha1.LabelHostCredentials]; !meant {
		return nil, Refuse(v1alpha1.ReasonHostCredentials, "Secret %s has no label %s: set it if its credentials are to power the host of node %s", name, v1alpha1.LabelHostCredentials, node.Name)
	}
	config, err := connection(by, secret)
	if err != nil {
		return nil, err
	}
	api, err := gofish.ConnectContext(ctx, config)
	if err != nil {
		return nil, redfishError(name, err)
	}
	systems, err := api.Service.Systems()
	if err != nil {
		return nil, redfishError(name, err)
	}
	uuid := node.Status.NodeInfo.SystemUUID
	at := slices.IndexFunc(systems, func(s *redfish.ComputerSystem) bool { return uuid != "" && strings.EqualFold(s.UUID, uuid) })
	if at < 0 {
		return nil, Refuse(v1alpha1.ReasonHostUnknown, "none of the %d systems at address of Secret %s has the UUID of node %s (status.nodeInfo.systemUUID %q): correct address", len(systems), name, node.Name, uuid)
	}
	return &redfishHost{secret: name, system: systems[at]}, nil
}

// connection returns how a management controller is reached. Credentials are sent with each request:
// sessions would be left over.
func connection(by *v1alpha1.RedfishPower, secret *corev1.Secret) (gofish.ClientConfig, error) {
	name := secret.Namespace + "/" + secret.Name
	address := strings.TrimSuffix(strings.TrimSpace(string(secret.Data["address"])), "/")
	secure, open := strings.HasPrefix(address, "https://"), strings.HasPrefix(address, "http://")
	if !secure && (!open || !by.InsecureSkipVerify) {
		return gofish.ClientConfig{}, Refuse(v1alpha1.ReasonHostCredentials, "key address of Secret %s does not begin with https://: correct it", name)
	}
	if len(secret.Data["username"]) == 0 || len(secret.Data["password"]) == 0 {
		return gofish.ClientConfig{}, Refuse(v1alpha1.ReasonHostCredentials, "Secret %s lacks username or password: set both keys", name)
	}
	trust := &tls.Config{InsecureSkipVerify: by.InsecureSkipVerify} //nolint:gosec // as the admin says in the policy
	if ca := secret.Data["ca.crt"]; len(ca) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(ca) {
			return gofish.ClientConfig{}, Refuse(v1alpha1.ReasonHostCredentials, "key ca.crt of Secret %s is no certificate in PEM: correct it", name)
		}
	}
	return gofish.ClientConfig{
		Endpoint: address, Username: string(secret.Data["username"]), Password: string(secret.Data["password"]), BasicAuth: true,
		HTTPClient: &http.Client{
			Timeout:   answersWithin,
			Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true},
			// Credentials go to the address of the Secret alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func redfishError(secret string, err error) error {
	var some *common.CollectionError
	if errors.As(err, &some) {
		err = errors.Join(slices.Collect(maps.Values(some.Failures))...)
	}
	var answer *common.Error
	if errors.As(err, &answer) && (answer.HTTPReturnedStatusCode == http.StatusUnauthorized || answer.HTTPReturnedStatusCode == http.StatusForbidden) {
		return Refuse(v1alpha1.ReasonHostCredentials, "the management controller refuses username and password of Secret %s (status %d): correct them, or let the account power the system", secret, answer.HTTPReturnedStatusCode)
	}
	return Refuse(v1alpha1.ReasonHostUnreachable, "the management controller at address of Secret %s does not answer as expected: check address, ca.crt and the network: %v", secret, err)
}

func (h *redfishHost) Refuses() error { return nil }

func (h *redfishHost) IsOn() bool { return h.system.PowerState != redfish.OffPowerState }

func (h *redfishHost) PowerOff(_ context.Context, force bool) error {
	graceful := len(h.system.SupportedResetTypes) == 0 || slices.Contains(h.system.SupportedResetTypes, redfish.GracefulShutdownResetType)
	switch {
	case force:
		return h.reset(redfish.ForceOffResetType)
	case graceful:
		return h.reset(redfish.GracefulShutdownResetType)
	}
	return nil // the power is cut later
}

func (h *redfishHost) PowerOn(context.Context) error {
	if h.IsOn() {
		return nil
	}
	return h.reset(redfish.OnResetType)
}

func (h *redfishHost) reset(kind redfish.ResetType) error {
	if err := h.system.Reset(kind); err != nil {
		return redfishError(h.secret, err)
	}
	return nil
}
