package signing

import (
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/joulevirt/joulevirt/internal/pki"
)

func TestJudgeRequest(t *testing.T) {
	const agent = "system:serviceaccount:joulevirt-system:joulevirt-agent"
	bound := map[string]certificatesv1.ExtraValue{nodeNameExtra: {"node-a"}}
	for name, tc := range map[string]struct {
		user    string
		extra   map[string]certificatesv1.ExtraValue
		usages  []certificatesv1.KeyUsage
		refused string
	}{
		"an agent":       {user: agent, extra: bound, usages: pki.AgentUsages()},
		"somebody else":  {user: "system:admin", extra: bound, usages: pki.AgentUsages(), refused: "only " + agent},
		"unbound token":  {user: agent, usages: pki.AgentUsages(), refused: "bound to no node"},
		"client usage":   {user: agent, extra: bound, usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}, refused: "client auth"},
		"two node names": {user: agent, extra: map[string]certificatesv1.ExtraValue{nodeNameExtra: {"a", "b"}}, refused: "bound to no node"},
	} {
		node, refusal := judgeRequest(&certificatesv1.CertificateSigningRequestSpec{
			Username: tc.user, Extra: tc.extra, Usages: tc.usages,
		}, agent)
		if tc.refused == "" {
			if refusal != nil || node != "node-a" {
				t.Errorf("%s: node %q, refused with %v", name, node, refusal)
			}
			continue
		}
		if refusal == nil || !strings.Contains(refusal.Error(), tc.refused) {
			t.Errorf("%s: refusal %v, want one with %q", name, refusal, tc.refused)
		}
	}
}
