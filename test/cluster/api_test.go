package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/joulevirt/joulevirt/test/cluster"
)

func TestAPIOnlyClusterLeavesNothingBehind(t *testing.T) {
	c := start(t, cluster.Options{Binaries: source()})

	version, err := c.RunKubectl(t.Context(), "version", "--output=yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Without link-time variables they would say v0.0.0-master.
	if want := "gitVersion: v1."; strings.Count(version, want) != 2 {
		t.Errorf("client and server do not both say %q:\n%s", want, version)
	}

	pids, dir := c.PIDs(), c.Dir()
	if len(pids) != 2 {
		t.Errorf("PIDs() = %v, want those of etcd and the API server", pids)
	}
	for range 2 { // idempotent
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d after Stop: %v, want %v", pid, err, syscall.ESRCH)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of the data folder after Stop: %v, want %v", err, os.ErrNotExist)
	}
}

func TestStartQuotesTheLogOfWhatFailed(t *testing.T) {
	logs := t.TempDir()
	_, err := cluster.Start(t.Context(), cluster.Options{
		Binaries:       source(),
		LogDir:         logs,
		APIServerFlags: []string{"--no-such-flag"},
	})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver") || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("Start = %v, want an error that quotes the API server's log", err)
	}
	if _, err := os.Stat(filepath.Join(logs, "kube-apiserver.log")); err != nil {
		t.Errorf("the log did not stay: %v", err)
	}
}

func TestNodeBoundTokenCarriesTheNodeName(t *testing.T) {
	ctx := t.Context()
	c := start(t, cluster.Options{Binaries: source()})
	if err := c.AddNode(ctx, cluster.RealNode{Name: "here"}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"}}
	if err := c.Client().Create(ctx, account); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ node, want string }{{"here", "here"}, {"", ""}} {
		config, kubeconfig, err := c.ServiceAccountConfig(ctx, "default", "agent", test.node)
		if err != nil {
			t.Fatal(err)
		}
		who, err := c.RunKubectl(ctx, "auth", "whoami", "--kubeconfig="+kubeconfig, "--output=jsonpath={.status.userInfo.username}")
		if want := "system:serviceaccount:default:agent"; err != nil || who != want {
			t.Errorf("bound to %q: kubectl auth whoami: %q, %v, want %q", test.node, who, err, want)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		user := review.Status.UserInfo
		if want := "system:serviceaccount:default:agent"; user.Username != want {
			t.Errorf("bound to %q: user = %q, want %q", test.node, user.Username, want)
		}
		got := strings.Join(user.Extra["authentication.kubernetes.io/node-name"], ",")
		if got != test.want {
			t.Errorf("bound to %q: node name = %q, want %q", test.node, got, test.want)
		}
	}
	if _, _, err := c.ServiceAccountConfig(ctx, "default", "agent", "elsewhere"); err == nil {
		t.Error("a token bound to an unknown node: want an error")
	}
}
