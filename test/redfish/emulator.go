// Package redfish runs sushy-emulator for tests: a Redfish service in front of libvirt's test driver,
// which has one simulated machine.
package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/internal/fetch"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	// Version of sushy-tools, as in requirements.txt.
	Version = "2.2.0"
	// UUID of the test driver's machine.
	UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
	// Username and Password that the emulator takes.
	Username, Password = "admin", "right"

	python = "/usr/bin/python3"
)

// requirements pin the emulator and what it needs.
//
//go:embed requirements.txt
var requirements string

// program holds a connection open: with the last one, the test driver forgets its machine's state.
const program = `
import sys
sys.path.insert(0, %q)
import bcrypt, libvirt
from sushy_tools.emulator.main import main
connection = libvirt.open("test:///default")
with open("auth", "w") as f:
    f.write("%s:" + bcrypt.hashpw(b"%s", bcrypt.gensalt(4)).decode())
with open("settings.py", "w") as f:
    f.write("SUSHY_EMULATOR_AUTH_FILE = 'auth'\nSUSHY_EMULATOR_LIBVIRT_URI = 'test:///default'\n")
sys.argv = ["sushy-emulator", "--config", %q, "--interface", "127.0.0.1", "--port", "%d", "--ssl-certificate", "cert.pem", "--ssl-key", "key.pem"]
sys.exit(main())
`

// Packages are the Debian packages that the emulator needs.
func Packages() []string { return []string{"python3-libvirt", "python3-pip"} }

// Modules returns the folder of the emulator's Python modules in a source's cache, where they are put
// first if need be.
func Modules(ctx context.Context, source binaries.Source) (string, error) {
	if err := debian.Host().Ensure(ctx, source.Steps, Packages()...); err != nil {
		return "", err
	}
	target := filepath.Join(source.Cache, "sushy-tools-"+Version)
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	err := source.Steps.Run("get sushy-emulator", func(log io.Writer) error { return install(ctx, target, log) })
	if err != nil {
		return "", fmt.Errorf("get sushy-tools %s: %w", Version, err)
	}
	return target, nil
}

// install works in a folder of its own and renames it into place: processes that do so at the same time
// do not meet.
func install(ctx context.Context, target string, log io.Writer) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(target), "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	list := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(list, []byte(requirements), 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--no-deps", "--requirement="+list, "--target="+filepath.Join(dir, "modules"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return err
	}
	if os.Rename(filepath.Join(dir, "modules"), target) == nil {
		return nil
	}
	_, err = os.Stat(target) // another process was faster
	return err
}

// Emulator is a running sushy-emulator.
type Emulator struct {
	// URL of the service, and the certificate that it serves with, in PEM.
	URL         string
	Certificate []byte

	group *proc.Group
}

// Start starts an emulator on a port of the loopback address, in an empty folder. Call Stop to end it.
func Start(ctx context.Context, source binaries.Source, dir string, port int) (*Emulator, error) {
	modules, err := Modules(ctx, source)
	if err != nil {
		return nil, err
	}
	e := &Emulator{URL: "https://127.0.0.1:" + strconv.Itoa(port), group: proc.NewGroup(dir)}
	if err := e.writeCertificate(dir); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(program, modules, Username, Password, filepath.Join(dir, "settings.py"), port)
	started, err := e.group.Start("sushy-emulator", python, "-c", text)
	if err == nil {
		err = started.WaitReady(ctx, e.ready)
	}
	if err != nil {
		e.group.Stop()
		return nil, err
	}
	return e, nil
}

// Stop ends the emulator.
func (e *Emulator) Stop() { e.group.Stop() }

// writeCertificate writes that of Go's test server, which is for 127.0.0.1.
func (e *Emulator) writeCertificate(dir string) error {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	certificate := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return err
	}
	e.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "cert.pem"), e.Certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	)
}

func (e *Emulator) ready(ctx context.Context) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.Certificate)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	_, err := fetch.Body(ctx, client, e.URL+"/redfish/v1/")
	return err
}
