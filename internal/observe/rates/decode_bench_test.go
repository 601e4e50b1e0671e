package rates

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// BenchmarkDecode decodes an answer about 100 VMs of 4 vCPUs on 96 CPUs: the manager does so
// for each node every 15 s.
func BenchmarkDecode(b *testing.B) {
	r := round(60)
	r.CPUs = nil
	for cpu := range 96 {
		r.CPUs = append(r.CPUs, model.CPURates{CPU: cpu, BusyCores: units.Cores(cpu) / 97})
	}
	threads := func(n int) model.ThreadRates {
		share := units.Cores(n%96) / 97
		return model.ThreadRates{RunCores: share, WaitCores: share / 7, SwitchesPerSecond: 1000 * units.PerSecond(share)}
	}
	traffic := func(n int) model.TrafficRates {
		return model.TrafficRates{BitsPerSecond: 1e9 / units.BitsPerSecond(n+7), PacketsPerSecond: 1e5 / units.PacketsPerSecond(n+7)}
	}
	r.VMs = nil
	for i := range 100 {
		vm := model.VMRates{
			PodUID: fmt.Sprintf("0f9a3c52-7d1e-4b7a-9c55-%012d", i), Namespace: "shop", Name: fmt.Sprintf("web-%d", i), Weight: 1024,
			AllowedCPUs: units.NewCPUSet(0, 1, 2, 3, 4, 5, 95), MemoryMiB: []uint64{8192, 0},
			Emulator: threads(i), IOThreads: threads(i + 1), Vhost: threads(i + 2), Other: threads(i + 3),
			Taps:  []model.TapRates{{Name: "tap0", ToVM: traffic(i), FromVM: traffic(i + 1), BacklogBytes: ptr.To[uint64](0)}},
			Sent:  &model.Sent{BitsPerSecond: 1e6 / units.BitsPerSecond(i+1), Seconds: 60},
			Watts: ptr.To(units.Watts(i) / 7),
		}
		for vcpu := range 4 {
			vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: vcpu, ThreadRates: threads(i + vcpu), CPUs: units.NewCPUSet(vcpu, vcpu+48)})
		}
		r.VMs = append(r.VMs, vm)
	}
	body, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(body, "n"); err != nil {
			b.Fatal(err)
		}
	}
}
