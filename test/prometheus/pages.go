package prometheus

import (
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// RecordedNode is the node of the recorded page.
const RecordedNode = "node-a"

// keplerV011 was recorded, see testdata/README.md.
//
//go:embed testdata/kepler-v0.11-fake-meter.prom
var keplerV011 []byte

// idleShare is the part of a meter's energy that Kepler 0.9 calls idle.
const idleShare = 0.25

// show returns a meter's lines in the text format, and their type.
func (c *counter) show(node string, fault Fault, now time.Time) (kind string, lines []string) {
	joules, watts := c.at(now), c.Watts
	kind = "counter"
	if c.Family == Platform {
		kind = "gauge"
	}
	switch fault {
	case Frozen:
		joules = c.joules
	case NotANumber:
		joules, watts = math.NaN(), math.NaN()
	case OtherType:
		kind = "histogram"
	}
	switch {
	case c.Pod != Pod{}:
		lines = c.showPod(node, joules)
	case c.Family == Kepler:
		lines = append(lines, fmt.Sprintf(`kepler_node_cpu_joules_total{node_name=%q,path=%q,zone=%q} %s`, node, c.Unit, c.Zone, number(joules)))
	case c.Family == Platform:
		lines = append(lines, fmt.Sprintf(`kepler_platform_watts{bmc_id="bmc-%s",chassis_id="System.Embedded.1",node_name=%q,source="redfish",source_id=%q,source_name=%q,source_type=%q} %s`,
			node, node, c.Unit, c.Unit, c.Zone, number(watts)))
	case c.Family == KeplerLegacy:
		for mode, share := range modes() {
			lines = append(lines, fmt.Sprintf(`kepler_node_%s_joules_total{instance=%q,mode=%q,package=%q,source=%q} %s`,
				c.Zone, node, mode, c.Unit, c.source(), number(joules*share)))
		}
	}
	return kind, lines
}

// showPod has no name of the node for KeplerLegacy, which leaves it to the
// scrape's own labels.
func (c *counter) showPod(node string, joules float64) (lines []string) {
	if c.Family == Kepler {
		state := "running"
		if c.Pod.Terminated {
			state = "terminated"
		}
		return []string{fmt.Sprintf(`kepler_pod_cpu_joules_total{node_name=%q,pod_id=%q,pod_name=%q,pod_namespace=%q,state=%q,zone=%q} %s`,
			node, c.Pod.UID, c.Pod.Name, c.Pod.Namespace, state, c.Zone, number(joules))}
	}
	name, source := "kepler_container_"+c.Zone+"_joules_total", c.source()
	if c.Zone == "" {
		name, source = "kepler_container_joules_total", ""
	}
	for mode, share := range modes() {
		lines = append(lines, fmt.Sprintf(`%s{container_id=%q,container_name=%q,container_namespace=%q,mode=%q,pod_name=%q,source=%q} %s`,
			name, c.Pod.Name+"/"+c.Pod.Container, c.Pod.Container, c.Pod.Namespace, mode, c.Pod.Name, source, number(joules*share)))
	}
	return lines
}

func modes() map[string]float64 {
	return map[string]float64{"idle": idleShare, "dynamic": 1 - idleShare}
}

func (m Meter) source() string {
	switch {
	case m.Source == "" && m.Zone == "platform":
		return "acpi"
	case m.Source == "":
		return "rapl-sysfs"
	}
	return m.Source
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

// recorded is the recorded page as it is after a time: the node's counters went
// on at the watts that the page has for the same zone.
func recorded(elapsed time.Duration) []byte {
	watts := map[string]float64{}
	for _, line := range regexp.MustCompile(`(?m)^kepler_node_cpu_watts(\{.*\}) (\S+)$`).FindAllSubmatch(keplerV011, -1) {
		value, _ := strconv.ParseFloat(string(line[2]), 64)
		watts[string(line[1])] = value
	}
	counter := regexp.MustCompile(`(?m)^kepler_node_cpu_joules_total(\{.*\}) (\S+)$`)
	return counter.ReplaceAllFunc(keplerV011, func(line []byte) []byte {
		parts := counter.FindSubmatch(line)
		joules, _ := strconv.ParseFloat(string(parts[2]), 64)
		return fmt.Appendf(nil, "kepler_node_cpu_joules_total%s %g", parts[1], joules+watts[string(parts[1])]*elapsed.Seconds())
	})
}
