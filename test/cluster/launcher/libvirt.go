package launcher

import (
	"context"
	"fmt"
	"net"

	"github.com/digitalocean/go-libvirt"

	"github.com/joulevirt/joulevirt/test/cluster/launcher/internal/container"
)

// hostSocketPath is the launcher's libvirt socket as the host reaches it.
func hostSocketPath(launcherPID int) string {
	return fmt.Sprintf("/proc/%d/root%s", launcherPID, container.SocketPath)
}

// contextDialer connects under a context and cuts the connection when it ends:
// go-libvirt's calls take none.
type contextDialer struct {
	ctx  context.Context
	path string
}

func (d contextDialer) Dial() (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(d.ctx, "unix", d.path)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(d.ctx, func() { conn.Close() })
	return conn, nil
}

// startDomain defines and starts a domain in the launcher's libvirt.
func startDomain(ctx context.Context, launcherPID int, domain string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := libvirt.NewWithDialer(contextDialer{ctx: ctx, path: hostSocketPath(launcherPID)})
	if err := conn.ConnectToURI(libvirt.QEMUSystem); err != nil {
		return fmt.Errorf("connect to the launcher's libvirt: %w", err)
	}
	defer conn.Disconnect() //nolint:errcheck // the work is done; cancel closes the socket
	defined, err := conn.DomainDefineXML(domain)
	if err != nil {
		return fmt.Errorf("define the domain: %w", err)
	}
	if err := conn.DomainCreate(defined); err != nil {
		return fmt.Errorf("start the domain: %w", err)
	}
	return nil
}
