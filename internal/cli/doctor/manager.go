package doctor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Names of what config/manager installs.
const (
	ManagerLease      = "joulevirt-manager"
	ManagerDeployment = "joulevirt-manager"
)

func isMissing(err error) bool {
	var missing *access.KindMissing
	return errors.As(err, &missing)
}

func isNotFound(err error) bool {
	var none *access.NotFound
	return errors.As(err, &none)
}

func manager(in Input) []Check {
	return []Check{leader(in), deployment(in), skew(in)}
}

// leader looks at the Lease that agents watch.
func leader(in Input) Check {
	check := Check{Area: "Product", Name: "Manager leads", Finding: OK}
	const costs = "nothing new is planned, and agents put their nodes back about 15 minutes after it was renewed last"
	fix := fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/component=manager, and read the log of one", in.Namespace)
	switch {
	case isNotFound(in.LeaseErr):
		check.Finding, check.Costs, check.Fix = Problem, costs, fix+"; if it is installed elsewhere, name the namespace by --system-namespace"
		check.Message = fmt.Sprintf("nobody ever led: there is no Lease %s in namespace %s", ManagerLease, in.Namespace)
		return check
	case in.LeaseErr != nil:
		check.Finding, check.Message, check.Fix = Unknown, "its Lease cannot be read", in.LeaseErr.Error()
		return check
	case in.Lease == nil || in.Lease.Spec.RenewTime == nil || in.Lease.Spec.HolderIdentity == nil || *in.Lease.Spec.HolderIdentity == "":
		check.Finding, check.Message, check.Costs, check.Fix = Problem, "nobody holds its Lease", costs, fix
		return check
	}
	age := max(in.Now.Sub(in.Lease.Spec.RenewTime.Time), 0).Truncate(time.Second)
	holder, _, _ := strings.Cut(*in.Lease.Spec.HolderIdentity, "_")
	check.Message = fmt.Sprintf("%s leads, its Lease was renewed %s ago", holder, age)
	valid := 15 * time.Second
	if seconds := in.Lease.Spec.LeaseDurationSeconds; seconds != nil {
		valid = time.Duration(*seconds) * time.Second
	}
	// Clocks of this machine and of the manager's node differ.
	if age > 2*valid {
		check.Finding, check.Costs, check.Fix = Problem, costs, fix
		check.Message = fmt.Sprintf("nobody leads: %s renewed its Lease %s ago, for %s", holder, age, valid)
	}
	return check
}

func deployment(in Input) Check {
	check := Check{Area: "Product", Name: "Manager runs", Finding: OK}
	switch {
	case isNotFound(in.ManagerErr):
		check.Finding, check.Message = Note, fmt.Sprintf("there is no Deployment %s in namespace %s: it runs in another way, or not at all", ManagerDeployment, in.Namespace)
	case in.ManagerErr != nil:
		check.Finding, check.Message, check.Fix = Unknown, "its Deployment cannot be read", in.ManagerErr.Error()
	case in.Manager != nil:
		ready, wanted := in.Manager.Status.ReadyReplicas, int32(1)
		if in.Manager.Spec.Replicas != nil {
			wanted = *in.Manager.Spec.Replicas
		}
		check.Message = fmt.Sprintf("%d of %d pods are ready", ready, wanted)
		if ready == 0 {
			check.Finding, check.Fix = Problem, fmt.Sprintf("kubectl -n %s describe deployment %s", in.Namespace, ManagerDeployment)
		} else if ready < wanted {
			check.Finding, check.Costs = Note, "when the one that leads is lost, another has to start first"
		}
	}
	return check
}

// skew compares the versions of this program, the manager and the agents.
func skew(in Input) Check {
	check := Check{Area: "Product", Name: "Versions", Finding: OK}
	running := map[string][]string{}
	if v := in.leaderVersion(); v != "" {
		running[v] = append(running[v], "the manager")
	} else if tag := imageTag(in.Manager); tag != "" {
		running[tag] = append(running[tag], "the manager, by its image's tag,")
	}
	agents := map[string]int{}
	for i := range in.Reports {
		if v := in.Reports[i].Status.AgentVersion; v != "" {
			agents[v]++
		}
	}
	for v, n := range agents {
		running[v] = append(running[v], show.Count(n, "agent"))
	}
	if len(running) == 0 {
		check.Finding, check.Message = Note, fmt.Sprintf("this program is %s; no version of manager or agents is known", in.CLIVersion)
		return check
	}
	_, same := running[in.CLIVersion]
	if same && len(running) == 1 {
		check.Message = "all are " + in.CLIVersion
		return check
	}
	var others []string
	for _, v := range sorted(running) {
		others = append(others, strings.Join(running[v], " and ")+" "+v)
	}
	check.Finding = Note
	check.Message = fmt.Sprintf("this program is %s; %s", in.CLIVersion, strings.Join(others, "; "))
	check.Costs = "reasons and fields that one of them does not know are told as such"
	check.Fix = "upgrade in the order of docs/upgrade.md, and take kubectl joulevirt of the manager's version"
	return check
}

// leaderVersion is what the manager that leads, or led last, says of itself. Empty: nothing, as
// those do that are older than its annotation.
func (in *Input) leaderVersion() string {
	if in.Lease == nil {
		return ""
	}
	return in.Lease.Annotations[v1alpha1.AnnotationManagerVersion]
}

// imageTag is the version that the manager's image names. Empty: it names none.
func imageTag(manager *appsv1.Deployment) string {
	if manager == nil {
		return ""
	}
	for i := range manager.Spec.Template.Spec.Containers {
		container := &manager.Spec.Template.Spec.Containers[i]
		if container.Name != "manager" {
			continue
		}
		image, _, _ := strings.Cut(container.Image, "@")
		at := strings.LastIndex(image, ":")
		if at < 0 || strings.Contains(image[at:], "/") || image[at+1:] == "latest" {
			return ""
		}
		return image[at+1:]
	}
	return ""
}
