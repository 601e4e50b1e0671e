package netspace

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
)

func TestSpaceIsApart(t *testing.T) {
	space, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(space.Close)
	listener, err := space.Listen("127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.WriteString(conn, "inside")
			_ = conn.Close()
		}
	}()
	conn, err := space.Dial(t.Context(), "tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "inside" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	if conn, err := net.Dial("tcp", "127.0.0.1:80"); err == nil {
		conn.Close()
		t.Error("the namespace's server is reached from without")
	}
}

func TestSettingsAreTheSpaces(t *testing.T) {
	const setting = "ipv4/ip_local_port_range"
	outside, err := os.ReadFile("/proc/sys/net/" + setting)
	if err != nil {
		t.Fatal(err)
	}
	space, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(space.Close)
	if err := space.Set(map[string]string{setting: "40000 40010"}); err != nil {
		t.Fatal(err)
	}
	var inside []byte
	if err := space.Do(func() (err error) { inside, err = os.ReadFile("/proc/sys/net/" + setting); return err }); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(inside)); len(got) != 2 || got[0] != "40000" || got[1] != "40010" {
		t.Errorf("the range of ports inside is %q", inside)
	}
	if now, err := os.ReadFile("/proc/sys/net/" + setting); err != nil || string(now) != string(outside) {
		t.Errorf("the range of ports outside is %q, %v, want %q as before", now, err, outside)
	}
	if err := space.Set(map[string]string{"no/such": "1"}); err == nil || !strings.Contains(err.Error(), "no.such") {
		t.Errorf("Set of an unknown setting: %v", err)
	}
}

func TestClosedSpaceSaysSo(t *testing.T) {
	space, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	space.Close()
	space.Close()
	if err := space.Do(func() error { return nil }); err == nil {
		t.Error("Do after Close: want an error")
	}
}
