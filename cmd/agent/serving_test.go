package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/controllers/signing"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/pki"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// authority is one that does not change.
type authority struct{ fixed *pki.Authority }

func (a authority) Authority() (*pki.Authority, error) { return a.fixed, nil }

func (s *scene) newAuthority() authority {
	s.Helper()
	a, err := pki.NewAuthority(time.Now())
	s.must(err)
	return authority{a}
}

// trust has agents trust the manager's authority.
func (s *scene) trust(a authority) {
	s.Helper()
	s.must(s.manager.Create(s.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pki.BundleConfigMap},
		Data:       map[string]string{pki.BundleKey: string(a.fixed.BundlePEM())},
	}))
}

// sign signs what agents ask for, as the manager.
func (s *scene) sign(a authority) {
	s.Helper()
	clients, err := kubernetes.NewForConfig(s.cluster.AsServiceAccount(namespace, "joulevirt-manager"))
	s.must(err)
	signer := &signing.Reconciler{
		Client: s.manager, Clients: clients, Authorities: a, Clock: clock.RealClock{},
		AgentUser: "system:serviceaccount:" + namespace + ":joulevirt-agent",
	}
	var requests certificatesv1.CertificateSigningRequestList
	s.must(s.manager.List(s.Context(), &requests))
	for i := range requests.Items {
		_, err := signer.Reconcile(s.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&requests.Items[i])})
		s.must(err)
	}
}

// readRates asks the agent as whoever has these TLS settings.
func (s *scene) readRates(settings func(node string) (*tls.Config, error)) (*model.NodeRates, error) {
	clients := pki.NewAgentClients(settings)
	defer clients.Forget(nodeName)
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "https://"+s.rates+"/v1/rates", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := clients.For(nodeName).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/v1/rates answers %s", response.Status)
	}
	var rates model.NodeRates
	return &rates, json.NewDecoder(response.Body).Decode(&rates)
}

// servesRates wants the agent to give the rates of a busy vCPU to the manager, and to nobody else.
func (s *scene) servesRates() {
	s.Helper()
	manager, other := s.newAuthority(), s.newAuthority()
	s.trust(manager)
	const busy, name = 2, "CPU 2/TCG"
	s.vm.Spin(name)
	defer s.vm.EndThread(name)
	s.asManager = pki.NewManagerTLS(manager, clock.RealClock{}).Settings
	hosttest.Eventually(s, "the manager to get the rates of a busy vCPU", func() bool {
		s.sign(manager)
		rates, err := s.readRates(s.asManager)
		return err == nil && len(rates.VMs) == 1 && slices.ContainsFunc(rates.VMs[0].VCPUs, func(v model.VCPURates) bool {
			return v.Index == busy && v.RunCores > 0
		})
	})
	for who, change := range map[string]func(*tls.Config) error{
		"no certificate": func(c *tls.Config) error {
			c.Certificates = nil
			return nil
		},
		"a certificate of another authority": func(c *tls.Config) error {
			foreign, err := other.fixed.IssueClient(time.Now(), time.Hour)
			c.Certificates = []tls.Certificate{*foreign}
			return err
		},
	} {
		_, err := s.readRates(func(node string) (*tls.Config, error) {
			c, err := s.asManager(node)
			if err != nil {
				return nil, err
			}
			return c, change(c)
		})
		if err == nil || !strings.Contains(err.Error(), "remote error: tls:") {
			s.Errorf("with %s rates are served, or another error is: %v", who, err)
		}
	}
}

// servesMetrics wants the agent's metrics served to whom the API server lets read them.
func (s *scene) servesMetrics() {
	s.Helper()
	reader, err := stack.MetricsToken(s.Context(), s.cluster, namespace)
	s.must(err)
	stranger, err := stack.Token(s.Context(), s.cluster, namespace, "stranger")
	s.must(err)
	const series = `joulevirt_agent_vms{node="` + nodeName + `",state="running"} 1`
	for token, want := range map[string]int{reader: http.StatusOK, "": http.StatusUnauthorized, stranger: http.StatusForbidden} {
		status, body, err := stack.Scrape(s.Context(), s.metrics, token)
		s.must(err)
		if allowed := want == http.StatusOK; status != want || strings.Contains(body, series) != allowed || strings.Contains(body, "joulevirt_") != allowed {
			s.Errorf("status %d, want %d: %s", status, want, body)
		}
	}
}

// apiServerAway stops the API server for some rounds of the agent.
func (s *scene) apiServerAway() {
	s.Helper()
	s.must(s.cluster.APIServer().Signal(syscall.SIGSTOP))
	defer func() { s.must(s.cluster.APIServer().Signal(syscall.SIGCONT)) }()
	const rounds = 3
	seen := map[time.Time]bool{}
	hosttest.Eventually(s, "rounds of samples", func() bool {
		rates, err := s.readRates(s.asManager)
		if err == nil {
			seen[rates.Time] = true
		}
		return len(seen) > rounds
	})
	s.wantVCPUs("the pins to stay", s.one, s.other)
}
