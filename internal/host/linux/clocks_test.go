package linux

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
)

func TestClocksOfACPU(t *testing.T) {
	type files map[string]string
	for name, tc := range map[string]struct {
		files files
		want  model.Clocks
	}{
		"no cpufreq": {files{}, model.Clocks{}},
		"a fixed lowest clock": {
			files{"scaling_governor": "powersave", "scaling_driver": "acpi-cpufreq", "scaling_min_freq": "1500000", "scaling_max_freq": "2900000"},
			model.Clocks{Governor: "powersave", Lowest: 1500, Highest: 2900}},
		"the processor chooses": {
			files{"scaling_governor": "powersave", "scaling_driver": "amd-pstate-epp", "scaling_min_freq": "400000", "scaling_max_freq": "5263000"},
			model.Clocks{Governor: "powersave", FollowLoad: true, Lowest: 400, Highest: 5263}},
		"the highest always": {
			files{"scaling_governor": "performance", "scaling_driver": "intel_pstate", "scaling_max_freq": "3700000"},
			model.Clocks{Governor: "performance", Highest: 3700}},
		"a program's own": {
			files{"scaling_governor": "userspace", "scaling_driver": "acpi-cpufreq", "scaling_max_freq": "3700000"},
			model.Clocks{Governor: "userspace", Highest: 3700}},
		"no range":        {files{"scaling_governor": "schedutil"}, model.Clocks{}},
		"no governor":     {files{"scaling_max_freq": "3700000"}, model.Clocks{}},
		"no figures":      {files{"scaling_governor": "schedutil", "scaling_max_freq": "<unsupported>"}, model.Clocks{}},
		"backwards":       {files{"scaling_governor": "schedutil", "scaling_min_freq": "2", "scaling_max_freq": "1"}, model.Clocks{}},
		"what is no word": {files{"scaling_governor": "a name that no governor of the kernel can have", "scaling_max_freq": "1000"}, model.Clocks{}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			for file, content := range tc.files {
				tr.write("sys/devices/system/cpu/cpu3/cpufreq/"+file, content+"\n")
			}
			if got := tr.host().clocks(3); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
