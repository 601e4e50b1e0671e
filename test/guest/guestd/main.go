// Command guestd is the only service of the test guest: it answers HTTP, keeps
// vCPUs busy on request, echoes UDP datagrams, and powers off at its power button.
//
//	GET  /                             its host name; with ?close it closes the connection
//	GET  /boot                         the identity of this boot
//	GET  /ready                        200, or 503 after POST /ready?ready=false
//	POST /burn?workers=N&seconds=S     N busy threads for S seconds, replacing
//	                                   the ones before; workers=0 stops them
//	GET  /file/NAME                    a file of 4 MiB, the same for each name, which a cache may store
//	GET  /made/NAME                    such a file, which it writes to its share first when the gateway
//	                                   offers to send it from there; it sends it itself else
//	GET  /shared?path=PATH             what the gateway has at a path of the share
//	GET  /compute?megabytes=N          the seconds that it took to compute the SHA-256 of N megabytes
//	GET  /counters                     context switches and bytes sent since the boot
//	UDP 7                              echo
//
// At port 443 it answers by TLS, with the certificate of net/http/httptest for example.com.
//
// It prints READY on standard output (the serial console) when all of them
// accept traffic.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"
)

const (
	maxWorkers = 64
	// maxDatagram is the largest UDP payload over IPv4.
	maxDatagram = 65507
)

// burner keeps a number of operating system threads busy until a deadline.
type burner struct {
	mu   sync.Mutex
	stop context.CancelFunc
}

// start replaces the running workers by the given number of new ones.
func (b *burner) start(workers int, period time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop()
	ctx, stop := context.WithTimeout(context.Background(), period)
	b.stop = stop
	for range workers {
		go burn(ctx)
	}
}

func burn(ctx context.Context) {
	// Own thread: the guest's kernel, not Go's scheduler, spreads the workers
	// over the vCPUs.
	runtime.LockOSThread()
	const countsBetweenChecks = 1 << 20
	for ctx.Err() == nil {
		for range countsBetweenChecks {
			// Counting alone keeps a vCPU busy.
		}
	}
}

func (b *burner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	workers, err := strconv.Atoi(r.FormValue("workers"))
	if err != nil || workers < 0 || workers > maxWorkers {
		http.Error(w, fmt.Sprintf("workers must be a number from 0 to %d", maxWorkers), http.StatusBadRequest)
		return
	}
	seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
	if err != nil {
		http.Error(w, "seconds must be a number", http.StatusBadRequest)
		return
	}
	b.start(workers, time.Duration(seconds*float64(time.Second)))
	w.WriteHeader(http.StatusNoContent)
}

const (
	filePath = "/tmp/file"
	fileSize = 4 << 20
)

// serveFile answers from the guest's file system, as a server of files does.
func serveFile(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeFile(w, r, filePath)
}

const (
	sharePath = "/tmp/share"
	// shareHeader is the location that the gateway sends files of the share from, and redirect the
	// answer that has it do so.
	shareHeader, redirect = "X-Joulevirt-Share", "X-Accel-Redirect"
)

// maker writes files to the share when they are first asked for.
type maker struct {
	content []byte
	writing singleflight.Group
}

// serveShare mounts the share if the VM has one, and answers for it.
func serveShare(mux *http.ServeMux, content []byte) error {
	if err := os.Mkdir(sharePath, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("joulevirt-share", sharePath, "virtiofs", 0, ""); err != nil {
		fmt.Println("this VM has no share:", err)
	}
	mux.HandleFunc("GET /made/{name}", (&maker{content: content}).serve)
	mux.HandleFunc("GET /shared", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(shareHeader) == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set(redirect, r.Header.Get(shareHeader)+r.URL.Query().Get("path"))
	})
	return nil
}

func (m *maker) serve(w http.ResponseWriter, r *http.Request) {
	name, location := filepath.Base(r.PathValue("name")), r.Header.Get(shareHeader)
	if location == "" || m.ensure(name) != nil { // such as a full share
		serveFile(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(redirect, location+name)
}

// ensure writes a file unless it is there: under another name first, so that nobody gets a part of it.
func (m *maker) ensure(name string) error {
	path := filepath.Join(sharePath, name)
	_, err, _ := m.writing.Do(name, func() (any, error) {
		if _, err := os.Stat(path); err == nil {
			return nil, nil
		}
		part := path + ".part"
		// Past the guest's page cache: the host has the file already.
		f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_DIRECT, 0o644)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(m.content)
		if err = errors.Join(err, f.Close()); err == nil {
			return nil, os.Rename(part, path)
		}
		return nil, errors.Join(err, os.Remove(part))
	})
	return err
}

// compute computes on one thread.
func compute(w http.ResponseWriter, r *http.Request) {
	megabytes, err := strconv.Atoi(r.FormValue("megabytes"))
	if err != nil || megabytes < 0 {
		http.Error(w, "megabytes must be a number", http.StatusBadRequest)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	hash, block, began := sha256.New(), make([]byte, 1e6), time.Now()
	for range megabytes {
		hash.Write(block)
	}
	fmt.Fprintf(w, "%f", time.Since(began).Seconds())
}

// counters reads what the kernel counts.
func counters(w http.ResponseWriter, _ *http.Request) {
	stat, err := os.ReadFile("/proc/stat")
	sent, sentErr := os.ReadFile("/sys/class/net/eth0/statistics/tx_bytes")
	_, switches, found := bytes.Cut(stat, []byte("\nctxt "))
	if err := errors.Join(err, sentErr); err != nil || !found {
		http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "%s %s", bytes.Fields(switches)[0], sent)
}

// readiness answers probes.
type readiness struct{ failing atomic.Bool }

func (r *readiness) get(w http.ResponseWriter, _ *http.Request) {
	if r.failing.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (r *readiness) set(w http.ResponseWriter, request *http.Request) {
	ready, err := strconv.ParseBool(request.FormValue("ready"))
	if err != nil {
		http.Error(w, "ready must be true or false", http.StatusBadRequest)
		return
	}
	r.failing.Store(!ready)
	w.WriteHeader(http.StatusNoContent)
}

// listenForACPI opens a socket that receives the kernel's ACPI events: messages to a multicast group.
func listenForACPI() (socket int, err error) {
	family, err := netlink.GenlFamilyGet("acpi_event")
	if err != nil || len(family.Groups) == 0 {
		return 0, fmt.Errorf("find the kernel's ACPI events: %w", err)
	}
	socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC)
	if err == nil {
		err = unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err == nil {
		err = unix.SetsockoptInt(socket, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(family.Groups[0].ID))
	}
	if err != nil {
		return 0, fmt.Errorf("listen for ACPI events: %w", err)
	}
	return socket, nil
}

// awaitPowerButton powers the guest off when its power button is pressed: so a host asks a guest to
// end, or to reboot.
func awaitPowerButton(socket int) error {
	message := make([]byte, 4096)
	for {
		n, err := unix.Read(socket, message)
		if err != nil {
			return fmt.Errorf("read an ACPI event: %w", err)
		}
		if bytes.Contains(message[:n], []byte("button/power")) {
			return powerOff()
		}
	}
}

// powerOff powers the guest off. Its network ends first, as in any guest: Linux 6.1.192 breaks
// its virtio devices while it powers off, and hangs in what it sends through one of them then.
func powerOff() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list network devices: %w", err)
	}
	for _, link := range links {
		if err := netlink.LinkSetDown(link); err != nil {
			return fmt.Errorf("set network device %s down: %w", link.Attrs().Name, err)
		}
	}
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// keep lets a socket keep what is sent while the guest gets no CPU for seconds.
func keep(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return fmt.Errorf("size the buffer of UDP echo: %w", err)
	}
	return nil
}

// echo answers each datagram until the socket fails.
func echo(conn net.PacketConn) error {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("read from UDP %s: %w", conn.LocalAddr(), err)
		}
		_, _ = conn.WriteTo(buf[:n], from) // UDP: a lost answer is the sender's to notice
	}
}

func serveTLS(handler http.Handler) error {
	listener, err := net.Listen("tcp4", ":443")
	if err != nil {
		return fmt.Errorf("listen for TLS: %w", err)
	}
	server := httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	server.StartTLS()
	return nil
}

func run() error {
	udp, err := net.ListenPacket("udp4", ":7")
	if err != nil {
		return fmt.Errorf("listen for UDP echo: %w", err)
	}
	if err := keep(udp.(*net.UDPConn)); err != nil {
		return err
	}
	web, err := net.Listen("tcp4", ":80")
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	mux := http.NewServeMux()
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host's name: %w", err)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("close") {
			w.Header().Set("Connection", "close")
		}
		fmt.Fprintln(w, name)
	})
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	mux.HandleFunc("GET /boot", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "%s", boot) })
	var ready readiness
	mux.HandleFunc("GET /ready", ready.get)
	mux.HandleFunc("POST /ready", ready.set)
	mux.Handle("POST /burn", &burner{stop: func() {}})

	mux.HandleFunc("GET /file/{name}", serveFile)
	mux.HandleFunc("GET /compute", compute)
	mux.HandleFunc("GET /counters", counters)
	content := bytes.Repeat([]byte("0123456789abcdef"), fileSize/16)
	if err := os.WriteFile(filePath, content, 0o600); err != nil {
		return fmt.Errorf("write the file that clients get: %w", err)
	}
	if err := serveShare(mux, content); err != nil {
		return err
	}

	// Before anything answers: who gets an answer may press the button next.
	button, err := listenForACPI()
	if err != nil {
		return err
	}
	failed := make(chan error, 3)
	go func() { failed <- awaitPowerButton(button) }()
	go func() { failed <- echo(udp) }()
	go func() { failed <- http.Serve(web, mux) }()
	if err := serveTLS(mux); err != nil {
		return err
	}

	fmt.Println("READY")
	return <-failed
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "guestd:", err)
		os.Exit(1)
	}
}
