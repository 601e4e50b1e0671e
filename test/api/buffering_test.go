package api

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/test/cluster"
)

func profileBufferingRows() []row {
	buffering := func(fields string) string { return `buffering: {` + fields + `}` }
	return append([]row{{
		field:   "spec.buffering.onPacketsPerSecond",
		rule:    "onPacketsPerSecond must be from 1000 to 10000000 packets per second",
		accepts: []string{buffering(`onPacketsPerSecond: 1000`), buffering(`onPacketsPerSecond: 10000000`)},
		refuses: []string{buffering(`onPacketsPerSecond: 999`), buffering(`onPacketsPerSecond: 10000001`), buffering(`onPacketsPerSecond: 0`)},
	}, {
		field:   "spec.buffering.floodDefence",
		rule:    "enum",
		accepts: []string{buffering(`floodDefence: Allow`), buffering(`floodDefence: Forbid`)},
		refuses: []string{buffering(`floodDefence: allow`), buffering(`floodDefence: ""`)},
	}, {
		field:   "spec.buffering.smallPacketServices",
		rule:    "unique",
		accepts: []string{buffering(`smallPacketServices: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}, {port: 54}]`)},
		refuses: []string{
			buffering(`smallPacketServices: [{protocol: TCP, port: 53}, {protocol: TCP, port: 53}]`),
			buffering(`smallPacketServices: [{protocol: UDP, port: 53}, {port: 53}]`),
		},
	}}, serviceRows("spec.buffering.smallPacketServices", func(services string) string {
		return buffering(`smallPacketServices: ` + services)
	})...)
}

// serviceRows are those of a list of ports, which patch makes a patch of.
func serviceRows(field string, patch func(services string) string) []row {
	return []row{{
		field:   field,
		rule:    "maxItems",
		accepts: []string{patch(repeated(8, "{port: 5%d}")), patch(`[]`)},
		refuses: []string{patch(repeated(9, "{port: 5%d}"))},
	}, {
		field:   field + "[].protocol",
		rule:    "enum",
		accepts: []string{patch(`[{protocol: UDP, port: 53}]`), patch(`[{protocol: TCP, port: 53}]`)},
		refuses: []string{patch(`[{protocol: SCTP, port: 53}]`), patch(`[{protocol: udp, port: 53}]`)},
	}, {
		field:   field + "[].port",
		rule:    "minimum",
		accepts: []string{patch(`[{port: 1}]`)},
		refuses: []string{patch(`[{port: 0}]`), patch(`[{port: -1}]`)},
	}, {
		field:   field + "[].port",
		rule:    "maximum",
		accepts: []string{patch(`[{port: 65535}]`)},
		refuses: []string{patch(`[{port: 65536}]`)},
	}}
}

func planBufferingRows() []row {
	buffering := func(fields string) string {
		return `vms: [{namespace: a, name: b, podUID: u, buffering: {onPacketsPerSecond: 1, ` + fields + `}}]`
	}
	window := func(us int) string { return buffering(fmt.Sprintf(`windowMicroseconds: %d`, us)) }
	flood := func(us int) string { return buffering(fmt.Sprintf(`floodWindowMicroseconds: %d`, us)) }
	return append([]row{{
		field:   "spec.vms[].buffering",
		rule:    "buffering must have windowMicroseconds, floodWindowMicroseconds or both",
		accepts: []string{window(125), flood(500), buffering(`windowMicroseconds: 1000, floodWindowMicroseconds: 500`)},
		refuses: []string{buffering(``)},
	}, {
		field:   "spec.vms[].buffering.windowMicroseconds",
		rule:    "enum",
		accepts: []string{window(125), window(250), window(500), window(1000)},
		refuses: []string{window(300), window(0), window(2000)},
	}, {
		field:   "spec.vms[].buffering.floodWindowMicroseconds",
		rule:    "enum",
		accepts: []string{flood(125), flood(250), flood(500)},
		refuses: []string{flood(0), flood(1000)},
	}, {
		field:   "spec.vms[].buffering.onPacketsPerSecond",
		rule:    "minimum",
		accepts: []string{buffering(`windowMicroseconds: 125, onPacketsPerSecond: 1`)},
		refuses: []string{buffering(`windowMicroseconds: 125, onPacketsPerSecond: 0`)},
	}}, serviceRows("spec.vms[].buffering.smallPacketServices", func(services string) string {
		return buffering(`windowMicroseconds: 125, smallPacketServices: ` + services)
	})...)
}

// testStoredBefore reads a profile that was stored before it could say how packets are
// held: it says what one says that leaves it out.
func testStoredBefore(t *testing.T, c *cluster.Cluster) {
	const file = crdFolder + "/bases/joulevirt.io_vmnetworkprofiles.yaml"
	older := fileOf(t, olderCRD(t, file))
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := c.ApplyManifests(ctx, crdFolder); err != nil {
			t.Error(err)
		}
	})
	if err := c.ApplyManifests(ctx, older); err != nil {
		t.Fatal(err)
	}
	profile := newObject("VMNetworkProfile", true)
	profile.SetName("stored-before")
	profile.Object["spec"] = merge(t, `selector: {matchLabels: {app: web}}`, `{}`)
	wait := func(what string, done func() (bool, error)) {
		t.Helper()
		err := c.WaitFor(ctx, time.Minute, what, func(context.Context) error {
			ok, err := done()
			if err == nil && !ok {
				return fmt.Errorf("not yet")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wait("the older kind", func() (bool, error) {
		trial := profile.DeepCopy()
		err := c.Client().Create(ctx, trial, client.DryRunAll)
		return bufferingOf(trial) == nil, err
	})
	if err := c.Client().Create(ctx, profile); err != nil || bufferingOf(profile) != nil {
		t.Fatalf("%v: %v", profile.Object["spec"], err)
	}
	t.Cleanup(func() {
		if err := c.Client().Delete(ctx, profile); err != nil {
			t.Error(err)
		}
	})
	if err := c.ApplyManifests(ctx, file); err != nil {
		t.Fatal(err)
	}
	wait("the newer kind", func() (bool, error) {
		err := c.Client().Get(ctx, client.ObjectKeyFromObject(profile), profile)
		return bufferingOf(profile) != nil, err
	})
	want := map[string]any{"onPacketsPerSecond": int64(10000), "floodDefence": "Allow"}
	if diff := cmp.Diff(any(want), bufferingOf(profile)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// testBufferingStatus writes what agents and the manager say of buffering, within the
// bounds and beyond them.
func testBufferingStatus(t *testing.T, c *cluster.Cluster) {
	applied := func(window, receive, transmit string) string {
		return fmt.Sprintf(`{"status":{"vms":[{"namespace":"a","name":"b","podUID":"u","lever":"Buffering","state":"InForce","reason":"Applied",
			"buffering":{"windowMicroseconds":%s,"receive":%q,"transmit":%q}}]}}`, window, receive, transmit)
	}
	flooded := func(vms, letters int) string {
		one := `{"name":"vm","node":"n","since":"2026-01-01T00:00:00Z","message":"` + strings.Repeat("m", letters) + `"}`
		return `{"status":{"floodedVMs":[` + strings.TrimSuffix(strings.Repeat(one+",", vms), ",") + `]}}`
	}
	for kind, patches := range map[string]map[string]bool{
		"NodePlan": {
			applied("250", "InForce", "NoGuestTools"): true,
			applied("0", "InForce", "GuestDeclines"):  true,
			applied("250", "Novel", "NoGuestTools"):   true,
			applied("250", "InForce", "R.A.P.L."):     false,
			applied("250", "", "InForce"):             false,
			applied(`"250us"`, "InForce", "InForce"):  false,
			`{"status":{"vms":[{"buffering":{}}]}}`:   false,
		},
		"VMNetworkProfile": {flooded(20, 512): true, flooded(21, 1): false, flooded(1, 513): false},
	} {
		object := newObject(kind, tables()[kind].namespaced)
		object.SetName("buffering-status")
		object.Object["spec"] = merge(t, tables()[kind].minimal, `{}`)
		if err := c.Client().Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Client().Delete(context.WithoutCancel(t.Context()), object); err != nil {
				t.Error(err)
			}
		})
		for patch, accepted := range patches {
			err := c.Client().Status().Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
			if accepted && err != nil || !accepted && !apierrors.IsInvalid(err) {
				t.Errorf("%s: want accepted %t: %v", patch, accepted, err)
			}
		}
	}
}

func bufferingOf(profile *unstructured.Unstructured) any {
	value, _, _ := unstructured.NestedFieldNoCopy(profile.Object, "spec", "buffering")
	return value
}

// olderCRD is a CRD of profiles without spec.buffering.
func olderCRD(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	version, ok := versions[0].(map[string]any)
	if !ok {
		t.Fatalf("%s has no versions", file)
	}
	unstructured.RemoveNestedField(version, strings.Split("schema openAPIV3Schema properties spec properties buffering", " ")...)
	if err := unstructured.SetNestedSlice(crd, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func fileOf(t *testing.T, text []byte) string {
	t.Helper()
	file := t.TempDir() + "/crd.yaml"
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
