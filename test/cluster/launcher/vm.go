package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/guest"
)

const guestPoll = 50 * time.Millisecond

// StartDomain starts the VMI's VM in the pod and returns when QEMU runs it. The
// guest then boots; WaitGuestReady tells when it serves. A pod takes one call:
// as with KubeVirt, a failed start is tried again in a new pod.
func (s *Sandbox) StartDomain(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) error {
	if err := s.startDomain(ctx, vmi); err != nil {
		return fmt.Errorf("start the VM of VMI %s/%s: %w%s", vmi.Namespace, vmi.Name, err, s.logTail())
	}
	return nil
}

func (s *Sandbox) startDomain(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) error {
	if !isFileName(string(vmi.UID)) {
		return fmt.Errorf("UID %q cannot name the console's folder", vmi.UID)
	}
	s.mu.Lock()
	used := s.vmiUID != ""
	s.vmiUID = string(vmi.UID)
	s.mu.Unlock()
	if used {
		return errors.New("this pod was already told to start a VM")
	}
	domain, err := domainFor(vmi, s.runtime.opts.KVM, s.runtime.opts.MaxGuestMemory)
	if err != nil {
		return err
	}
	// QEMU's user opens the console's socket there.
	consoles := filepath.Join(s.logDir, consolesFolder, string(vmi.UID))
	if err := os.MkdirAll(consoles, 0o755); err != nil {
		return fmt.Errorf("create the console's folder: %w", err)
	}
	if err := os.Chown(consoles, int(s.runtime.tapOwner), -1); err != nil {
		return fmt.Errorf("give QEMU the console's folder: %w", err)
	}
	if err := masquerade(s.LauncherPID(), s.runtime.tapOwner); err != nil {
		return err
	}
	if err := startDomain(ctx, s.LauncherPID(), domain); err != nil {
		return errors.Join(err, ctx.Err())
	}
	pid, err := s.findQEMU(domainName(vmi))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.qemuPID = pid
	return err
}

// findQEMU looks in the pod's cgroup for the process that runs the domain.
func (s *Sandbox) findQEMU(domain string) (int, error) {
	pids, err := containerProcesses(s.runtime.hierarchies, s.names.CgroupNames)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it ended since
		}
		program, args, _ := strings.Cut(string(cmdline), "\x00")
		isQEMU := strings.HasPrefix(filepath.Base(program), "qemu-system-")
		if isQEMU && strings.Contains(args, "\x00guest="+domain+",") {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("libvirt runs domain %s, but the pod's cgroup has no QEMU for it", domain)
}

// ConsoleLog is the file with what the guest printed on its serial console.
func (s *Sandbox) ConsoleLog() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return filepath.Join(s.logDir, consolesFolder, s.vmiUID, serialLog)
}

// WaitGuestReady returns when the guest answers HTTP at the pod's address, or
// with an error when ctx is done or the pod has ended.
//
// It knocks only after the guest has announced itself on the console: the pod's
// kernel asks for the guest's hardware address once a second, so that a knock
// that comes too early delays the next.
func (s *Sandbox) WaitGuestReady(ctx context.Context) error {
	tick := time.NewTicker(guestPoll)
	defer tick.Stop()
	for {
		err := s.announced()
		if err == nil {
			err = s.knock(ctx)
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("the pod at %s ended before its guest was ready%s", s.address, s.logTail())
		case <-ctx.Done():
			return fmt.Errorf("wait for the guest (console: %s): %w; last seen: %w", s.ConsoleLog(), ctx.Err(), err)
		}
	}
}

// GuestBurn keeps the given number of threads of the guest busy for the given
// seconds, in place of those before; 0 workers end them.
func (s *Sandbox) GuestBurn(ctx context.Context, workers int, seconds float64) error {
	query := url.Values{
		"workers": {strconv.Itoa(workers)},
		"seconds": {strconv.FormatFloat(seconds, 'f', -1, 64)},
	}
	return s.guestRequest(ctx, http.MethodPost, "/burn", query)
}

// announced tells, by a nil error, that the guest said on its console that it
// serves.
func (s *Sandbox) announced() error {
	content, err := os.ReadFile(s.ConsoleLog())
	if err != nil {
		return fmt.Errorf("read the guest's console: %w", err)
	}
	if !bytes.Contains(content, []byte(guest.ReadyLine)) {
		return errors.New("the guest has not announced itself on its console")
	}
	return nil
}

// GuestAnswers asks the guest once whether it serves.
func (s *Sandbox) GuestAnswers(ctx context.Context) error {
	return s.guestRequest(ctx, http.MethodGet, "/", nil)
}

// knock is GuestAnswers for a guest that may not be there yet.
func (s *Sandbox) knock(ctx context.Context) error {
	// A packet that found no guest is sent again after a second at the
	// earliest; a new connection is quicker.
	const attempt = time.Second
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return s.GuestAnswers(ctx)
}

// guestRequest sends one request to the guest's server.
func (s *Sandbox) guestRequest(ctx context.Context, method, path string, query url.Values) error {
	target := url.URL{Scheme: "http", Host: s.IP(), Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return fmt.Errorf("ask the guest at %s: %w", s.address, err)
	}
	request.Close = true // a kept connection would outlive the guest
	// Not the default client: the guest is never behind a proxy.
	client := &http.Client{Transport: &http.Transport{}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the guest at %s: %w", s.address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, logTailBytes))
	if err != nil {
		return fmt.Errorf("read the guest's answer at %s: %w", s.address, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the guest at %s refused %s: %s: %s", s.address, path, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
