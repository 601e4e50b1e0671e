// Package signing signs the serving certificates of agents.
package signing

import (
	"context"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/pki"
)

// Reconciler signs the serving certificates that agents ask
// for. It answers only requests of signer pki.AgentSigner.
type Reconciler struct {
	Client      client.Client
	Clients     kubernetes.Interface
	Authorities pki.Authorities
	Clock       clock.PassiveClock
	// AgentUser is the user name of the agents' ServiceAccount.
	AgentUser string
}

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval;certificatesigningrequests/status,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=joulevirt.io/agent-serving,verbs=approve;sign

// SetupWithManager adds the reconciler to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		request, ok := o.(*certificatesv1.CertificateSigningRequest)
		return ok && request.Spec.SignerName == pki.AgentSigner
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("certificatesigning").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(ours)).
		Complete(r)
}

// Reconcile approves and signs a request, or denies it with the reason.
func (r *Reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var request certificatesv1.CertificateSigningRequest
	if err := r.Client.Get(ctx, key.NamespacedName, &request); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if request.Spec.SignerName != pki.AgentSigner || len(request.Status.Certificate) > 0 || decided(&request, certificatesv1.CertificateDenied) {
		return ctrl.Result{}, nil
	}
	node, refusal := judgeRequest(&request.Spec, r.AgentUser)
	if refusal != nil {
		return ctrl.Result{}, r.conclude(ctx, &request, certificatesv1.CertificateDenied, "NotAnAgent", refusal.Error())
	}
	// Signed before it is approved, so that a request that cannot be signed is
	// denied with the reason and not approved in vain.
	authority, err := r.Authorities.Authority()
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("sign the certificate of node %s: %w", node, err)
	}
	certificate, err := authority.SignServing(request.Spec.Request, node, r.Clock.Now(), pki.ServingLifetime)
	if err != nil {
		return ctrl.Result{}, r.conclude(ctx, &request, certificatesv1.CertificateDenied, "MalformedRequest", err.Error())
	}
	if !decided(&request, certificatesv1.CertificateApproved) {
		err := r.conclude(ctx, &request, certificatesv1.CertificateApproved, "AgentOfNode", "asked by the agent bound to node "+node)
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	request.Status.Certificate = certificate
	_, err = r.Clients.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, &request, metav1.UpdateOptions{})
	return ctrl.Result{}, watch.IgnoreGoneOrChanged(err)
}

// conclude writes a decision, and leaves the request as the server has it.
func (r *Reconciler) conclude(
	ctx context.Context, request *certificatesv1.CertificateSigningRequest,
	decision certificatesv1.RequestConditionType, reason, message string,
) error {
	now := metav1.NewTime(r.Clock.Now())
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: decision, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastUpdateTime: now, LastTransitionTime: now,
	})
	updated, err := r.Clients.CertificatesV1().CertificateSigningRequests().
		UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	if err != nil {
		return watch.IgnoreGoneOrChanged(err)
	}
	updated.DeepCopyInto(request)
	return nil
}

func decided(request *certificatesv1.CertificateSigningRequest, decision certificatesv1.RequestConditionType) bool {
	for _, c := range request.Status.Conditions {
		if c.Type == decision && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// nodeNameExtra is set by the API server from the asker's token, when the
// token is bound to a pod or to a node: it cannot be claimed.
const nodeNameExtra = "authentication.kubernetes.io/node-name"

// judgeRequest returns the node whose agent asks. The certificate is made for
// that node whatever the request names.
func judgeRequest(spec *certificatesv1.CertificateSigningRequestSpec, agentUser string) (node string, refusal error) {
	if spec.Username != agentUser {
		return "", fmt.Errorf("asked by %.128q: only %s may ask", spec.Username, agentUser)
	}
	nodes := spec.Extra[nodeNameExtra]
	if len(nodes) != 1 || nodes[0] == "" {
		return "", errors.New("the asker's token is bound to no node: use the projected token of the agent's pod")
	}
	for _, usage := range spec.Usages {
		if usage != certificatesv1.UsageDigitalSignature && usage != certificatesv1.UsageServerAuth {
			return "", fmt.Errorf("usage %q is not for agents: ask for %v", usage, pki.AgentUsages())
		}
	}
	return nodes[0], nil
}
