package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// SocketPath is where KubeVirt's launcher has libvirt's socket, in its own file
// system.
const SocketPath = "/var/run/libvirt/virtqemud-sock"

// noWait leaves out statistics that would have to wait for a busy QEMU
// (VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT).
const noWait = 1 << 29

// Dial connects to the launcher's libvirt.
type Dial func(ctx context.Context) (net.Conn, error)

// Read asks for the facts of one domain, until the context ends. A launcher
// that runs as root has libvirt's system driver, another one the session's.
func Read(ctx context.Context, dial Dial, domain string) (*model.DomainFacts, error) {
	var failures []error
	for _, uri := range []libvirt.ConnectURI{libvirt.QEMUSystem, libvirt.QEMUSession} {
		facts, err := readFrom(ctx, dial, uri, domain)
		if err == nil {
			return facts, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", uri, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("libvirt of domain %s: %w", domain, errors.Join(failures...))
}

func readFrom(ctx context.Context, dial Dial, uri libvirt.ConnectURI, domain string) (*model.DomainFacts, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	// Closing ends every call, also one to a server that is silent.
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	client := libvirt.NewWithDialer(dialers.NewAlreadyConnected(newGuard(conn)))
	if err := client.ConnectToURI(uri); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	stats := uint32(libvirt.DomainStatsBalloon | libvirt.DomainStatsVCPU)
	records, err := client.ConnectGetAllDomainStats(nil, stats, noWait)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	for _, record := range records {
		if record.Dom.Name == domain {
			return factsOf(record.Params), nil
		}
	}
	return nil, errors.New("no such domain")
}

// factsOf reads the parameters that it knows and passes over the others.
func factsOf(parameters []libvirt.TypedParam) *model.DomainFacts {
	facts := &model.DomainFacts{}
	for _, p := range parameters {
		value, ok := unsigned(p.Value.I)
		if !ok {
			continue
		}
		switch {
		case p.Field == "balloon.maximum":
			facts.MaxMemoryKiB = value
		case p.Field == "vcpu.current" && value <= units.MaxCPUs:
			facts.VCPUs = int(value)
		default:
			setDelay(facts, p.Field, value)
		}
	}
	return facts
}

// setDelay takes vcpu.INDEX.delay, in nanoseconds.
func setDelay(facts *model.DomainFacts, field string, nanoseconds uint64) {
	rest, ok := strings.CutPrefix(field, "vcpu.")
	if !ok {
		return
	}
	number, what, _ := strings.Cut(rest, ".")
	index, err := strconv.ParseUint(number, 10, 16)
	if err != nil || what != "delay" || index >= units.MaxCPUs {
		return
	}
	for uint64(len(facts.VCPUDelaySeconds)) <= index {
		facts.VCPUDelaySeconds = append(facts.VCPUDelaySeconds, 0)
	}
	facts.VCPUDelaySeconds[index] = float64(nanoseconds) / float64(time.Second)
}

func unsigned(value any) (uint64, bool) {
	switch v := value.(type) {
	case uint32:
		return uint64(v), true
	case uint64:
		return v, true
	default:
		return 0, false
	}
}
