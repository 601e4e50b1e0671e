// Package keeper keeps the authority of agents' certificates in the cluster.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/pki"
)

const (
	fieldOwner = "joulevirt-manager"
	interval   = time.Minute
	retry      = 2 * time.Second
	// renewAuthorityBefore its end: longer than any certificate that it signs.
	renewAuthorityBefore = 30 * 24 * time.Hour
)

// ErrNoAuthority is returned until the keeper has read or made the authority.
var ErrNoAuthority = errors.New("the authority of agents' certificates is not read yet")

// Keeper keeps the authority in a Secret, and its certificate in the ConfigMap
// that agents read. It runs on the leader only.
type Keeper struct {
	clients   kubernetes.Interface
	namespace string
	clock     clock.Clock
	log       logr.Logger
	current   atomic.Pointer[pki.Authority]
}

// New returns a keeper for a namespace. Nothing is read before Start.
func New(clients kubernetes.Interface, namespace string, clk clock.Clock, log logr.Logger) *Keeper {
	return &Keeper{clients: clients, namespace: namespace, clock: clk, log: log}
}

// Authority returns the authority in force, or ErrNoAuthority.
func (k *Keeper) Authority() (*pki.Authority, error) {
	if a := k.current.Load(); a != nil {
		return a, nil
	}
	return nil, ErrNoAuthority
}

// Expires is when the authority ends. False: it is not read yet.
func (k *Keeper) Expires() (time.Time, bool) {
	if a := k.current.Load(); a != nil {
		return a.Expires(), true
	}
	return time.Time{}, false
}

// NeedLeaderElection makes the controller runtime run the keeper on the leader
// only: two managers must not make two authorities.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start keeps the Secret and the ConfigMap until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		delay := interval
		if err := k.Sync(ctx); err != nil && ctx.Err() == nil {
			k.log.Error(err, "authority of agents' certificates not kept: will retry", "after", retry)
			delay = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.clock.After(wait.Jitter(delay, 0.2)):
		}
	}
}

// Sync reads the authority, makes one where there is none, and publishes its
// certificate.
func (k *Keeper) Sync(ctx context.Context) error {
	authority, err := k.read(ctx)
	if err != nil {
		return err
	}
	bundle := corev1apply.ConfigMap(pki.BundleConfigMap, k.namespace).
		WithLabels(map[string]string{"app.kubernetes.io/part-of": "joulevirt"}).
		WithData(map[string]string{pki.BundleKey: string(authority.BundlePEM())})
	_, err = k.clients.CoreV1().ConfigMaps(k.namespace).
		Apply(ctx, bundle, metav1.ApplyOptions{FieldManager: fieldOwner, Force: true})
	if err != nil {
		return fmt.Errorf("publish the authority in ConfigMap %s/%s: %w", k.namespace, pki.BundleConfigMap, err)
	}
	k.current.Store(authority)
	return nil
}

// read returns the Secret's authority, and replaces the Secret when it is
// missing, damaged or ends soon.
func (k *Keeper) read(ctx context.Context) (*pki.Authority, error) {
	secrets := k.clients.CoreV1().Secrets(k.namespace)
	secret, err := secrets.Get(ctx, pki.AuthoritySecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh, authority, err := k.secret(k.current.Load())
		if err != nil {
			return nil, err
		}
		if _, err := secrets.Create(ctx, fresh, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create Secret %s/%s: %w", k.namespace, pki.AuthoritySecret, err)
		}
		return authority, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", k.namespace, pki.AuthoritySecret, err)
	}
	authority, err := pki.ParseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err == nil && authority.Expires().After(k.clock.Now().Add(renewAuthorityBefore)) {
		return authority, nil
	}
	reason := "it ends soon"
	if err != nil {
		reason = err.Error()
	}
	k.log.Info("authority is replaced: agents will ask for new certificates", "secret", pki.AuthoritySecret, "reason", reason)
	fresh, authority, err := k.secret(nil)
	if err != nil {
		return nil, err
	}
	fresh.ResourceVersion = secret.ResourceVersion
	if _, err := secrets.Update(ctx, fresh, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("replace Secret %s/%s: %w", k.namespace, pki.AuthoritySecret, err)
	}
	return authority, nil
}

// secret holds a known authority, so that a Secret deleted by accident costs
// nothing, or else a new one.
func (k *Keeper) secret(known *pki.Authority) (*corev1.Secret, *pki.Authority, error) {
	authority := known
	if authority == nil {
		var err error
		if authority, err = pki.NewAuthority(k.clock.Now()); err != nil {
			return nil, nil, err
		}
	}
	certPEM, keyPEM, err := authority.Encode()
	if err != nil {
		return nil, nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      pki.AuthoritySecret,
			Namespace: k.namespace,
			Labels:    map[string]string{"app.kubernetes.io/part-of": "joulevirt"},
		},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certPEM, corev1.TLSPrivateKeyKey: keyPEM},
	}, authority, nil
}
